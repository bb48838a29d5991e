"""Freeze the product's answers as data, and compare later answers with them.

\b
Examples:
  python -m benchmarks.nets freeze --root ../base
  python -m benchmarks.nets compare
  python -m benchmarks.nets compare matrix verdicts

Exit codes of compare: 0 no difference, or only accepted ones; 1 other differences; 2 a usage error.
"""

from __future__ import annotations

import functools
import gzip
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import click

from .differences import Accepted, Difference, Intended, compare, read_intended, representatives, sort_out
from .doors import Product
from .parts import PARTS, Part, names

HERE = Path(__file__).parent
FROZEN = HERE / "frozen.json.gz"
ACCEPTED = HERE / "accepted.toml"
PACKAGES = ("torch", "transformers", "diffusers", "openvino", "optimum-intel", "nncf", "onnx", "onnxruntime", "click")
MANY_SECONDS = ("runs",)
"""Parts that are compared only when they are named."""

_ROOT = click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False, exists=True, resolve_path=True),
    default=HERE.parents[1],
    help="Ask the product in this checkout. [default: the checkout of this command]",
)
_PARTS = click.argument("parts", nargs=-1, metavar="[PART]...")


def packed(part: Part) -> dict[str, Any]:
    """Return a part as columns: for each field its distinct values, and the place of each key's value among them."""
    keys = sorted(part)
    columns: dict[str, Any] = {}
    for name in sorted({name for entry in part.values() for name in entry}):
        values: dict[str, int] = {}
        texts = [json.dumps(part[key][name], sort_keys=True) if name in part[key] else None for key in keys]
        places = [-1 if text is None else values.setdefault(text, len(values)) for text in texts]
        columns[name] = {"values": [json.loads(text) for text in values], "places": places}
    return {"keys": keys, "columns": columns}


def unpacked(data: Mapping[str, Any]) -> Part:
    """Return the part of such columns."""
    part: Part = {key: {} for key in data["keys"]}
    for name, column in data["columns"].items():
        for key, place in zip(data["keys"], column["places"], strict=True):
            if place >= 0:
                part[key][name] = column["values"][place]
    return part


def read_frozen() -> dict[str, Any]:
    """Return the frozen document, or an empty one if there is none yet."""
    return json.loads(gzip.decompress(FROZEN.read_bytes())) if FROZEN.exists() else {"made": {}, "parts": {}}


def write_frozen(document: Mapping[str, Any]) -> None:
    """Write the document. The same content gives the same bytes."""
    text = json.dumps(document, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    fresh = FROZEN.with_suffix(".new")
    fresh.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    os.replace(fresh, FROZEN)


def made(root: Path) -> dict[str, Any]:
    """Return the commit, and what answers depend on beside the code: versions and the kind of machine."""
    commit = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True)
    installed = {one.metadata["Name"]: one.version for one in importlib.metadata.distributions()}
    versions = {name: installed.get(name, "") for name in PACKAGES}
    return {
        "commit": commit.stdout.strip(),
        "machine": f"{platform.system()} {platform.machine()}",
        "versions": versions | {"python": platform.python_version()},
    }


def asked(parts: Collection[str], default: Collection[str]) -> list[str]:
    """Return the named parts in a fixed order. Raises `click.UsageError` for an unknown one."""
    if wrong := set(parts) - PARTS.keys():
        raise click.UsageError(f"unknown part: {', '.join(sorted(wrong))}. Known: {', '.join(PARTS)}.")
    return [name for name in PARTS if name in (parts or default)]


def note(text: str) -> None:
    """Print a line to standard error."""
    click.echo(text, err=True)


@click.group(help=__doc__, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """See `help`."""


@main.command()
@_ROOT
@_PARTS
def freeze(root: Path, parts: tuple[str, ...]) -> None:
    """Write the product's answers to frozen.json.gz: all parts, or only the named ones."""
    for name in asked(parts, PARTS):
        with tempfile.TemporaryDirectory(prefix="nets-") as scratch:
            started = time.monotonic()
            part = PARTS[name](Product(root, Path(scratch)), None)
        document = read_frozen()
        document["parts"][name] = packed(part)
        document["made"] = made(root)
        write_frozen(document)
        note(f"{name}: {len(part):,} entries, {time.monotonic() - started:.0f} s")
    note(f"{FROZEN.name}: {FROZEN.stat().st_size / 1000:.0f} kB")


@main.command("compare")
@_ROOT
@click.option("--every-cell", is_flag=True, help="Compare all cells of explain, not three of a kind. Takes minutes.")
@_PARTS
def compare_command(root: Path, every_cell: bool, parts: tuple[str, ...]) -> None:
    """Print each difference from the frozen answers on one line.

    Compare all parts but `runs`, which takes minutes, or only the named ones.
    """
    document = read_frozen()
    if not document["parts"]:
        raise click.UsageError(f"{FROZEN.name} is missing: run freeze first")
    intended = read_intended(ACCEPTED)
    _say_versions(document["made"], made(root))
    chosen = asked(parts, [name for name in document["parts"] if name not in MANY_SECONDS])
    left: list[Difference] = []
    for name in chosen:
        if name not in document["parts"]:
            raise click.UsageError(f"{name} was not frozen")
        started = time.monotonic()
        found = _compared(name, unpacked(document["parts"][name]), root, intended, every_cell=every_cell)
        own = sort_out(found, intended.accepted)
        for one in own:
            click.echo(str(one))
        left += own
        note(f"{name}: {len(found):,} differences, {len(own):,} not accepted, {time.monotonic() - started:.0f} s")
    _say_accepted(intended.accepted, chosen)
    _say_kinds(left)
    sys.exit(1 if left else 0)


def _compared(name: str, frozen: Part, root: Path, intended: Intended, *, every_cell: bool) -> list[Difference]:
    if name == "explain" and not every_cell:
        frozen = {cell: frozen[cell] for cell in representatives(frozen)}
    ask = functools.partial(names, moved=intended.moved) if name == "names" else PARTS[name]
    with tempfile.TemporaryDirectory(prefix="nets-") as scratch:
        try:
            answered = ask(Product(root, Path(scratch)), frozen)
        except (LookupError, TypeError, AttributeError, ValueError, subprocess.CalledProcessError) as error:
            return [Difference(key=f"{name} answers entry", was="readable", now=f"{type(error).__name__}: {error}")]
    return list(compare(name, frozen, answered, intended.reworded))


def _say_versions(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    old, new = before["versions"] | {"machine": before["machine"]}, now["versions"] | {"machine": now["machine"]}
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            note(f"note: frozen with {name} {old.get(name)}, compared with {new.get(name)}")


def _say_accepted(accepted: Collection[Accepted], chosen: Collection[str]) -> None:
    for one in accepted:
        if one.met:
            note(f"accepted {one.met:,} times: {one.key}: {one.reason}")
        elif one.key.split()[0] in chosen:
            note(f"note: an accepted difference was not found, remove it if it is fixed: {one.key}")


def _say_kinds(left: Collection[Difference]) -> None:
    """Print the commonest kinds among many differences."""
    if len(left) < 20:
        return
    kinds = Counter(f"{one.key.split()[0]} … {one.key.split()[-1]}" for one in left)
    note("most: " + "; ".join(f"{kind} {number:,}" for kind, number in kinds.most_common(6)))


if __name__ == "__main__":
    main()
