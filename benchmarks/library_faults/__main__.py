"""`python -m benchmarks.library_faults`: show, apply and prove the faults."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click

from hardware.command_line import run_command_line
from hardware.compare import compare
from hardware.errors import UsageError, echo
from hardware.evidence.store import read_folder

from .. import product
from .calls import outcome
from .planting.planted_faults import VARIABLE

HERE = Path(__file__).resolve().parent
FROZEN, HELD_OUT = HERE / "frozen.jsonl", HERE / "held_out.jsonl"
LEAST = {"float16": 1e-2}
"""How far a fault must move what a user sees, relative to the output's scale; 1e-6 for other calls."""
LONGEST_S = 300.0

Fault = Mapping[str, Any]


def faults(file: Path = FROZEN) -> list[Fault]:
    """Return the faults of a file."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def fault_named(name: str) -> Fault:
    """Return a frozen fault by its name."""
    for one in faults():
        if one["name"] == name:
            return one
    raise UsageError(f"no fault is named {echo(name)}", fix="`show` lists them.")


@click.group()
def main() -> None:
    """Show, apply and prove faults of the library."""


@main.command()
@click.argument("name", required=False)
def show(name: str | None) -> None:
    """List the faults, or show one."""
    for one in faults() if name is None else ():
        click.echo(f"{one['name']:24} {one['type']:20} {one['call']:20} {one['source']}")
    if name is not None:
        click.echo("\n".join(f"{field}: {value}" for field, value in fault_named(name).items()))


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def apply(name: str, command: tuple[str, ...]) -> int:
    """Run a command in which every Python has the fault; exit with its code."""
    with tempfile.TemporaryDirectory(prefix="hwcompat-fault-") as folder:
        environment = _environment(fault_named(name), Path(folder))
        return subprocess.run(command, env=environment, check=False).returncode


def _environment(fault: Fault, folder: Path) -> dict[str, str]:
    environment = product.environment(folder, {VARIABLE: json.dumps(fault)})
    return product.planted(environment, "library_fault", folder / "mark", HERE / "planting")


@main.command()
@click.option("--file", default=FROZEN, type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), required=True, help="One line of JSON each.")
@click.option("--jobs", default=2, help="Faults at a time.")
@click.option("--only", default="", help="Part of the names.")
def catch(file: Path, out: Path, jobs: int, only: str) -> None:
    """Run each fault's suite on cpu in float32; write the checks that detected it, and count by kind."""
    found: dict[str, list[bool]] = {}
    with ThreadPoolExecutor(jobs) as pool, out.open("w", encoding="utf-8") as opened:
        chosen = [one for one in faults(file) if only in one["name"]]
        for fault, checks in zip(chosen, pool.map(_caught_by, chosen), strict=True):
            found.setdefault(fault["kind"], []).append(bool(checks))
            click.echo(json.dumps({"name": fault["name"], "type": fault["type"], "checks": checks}), file=opened)
            opened.flush()
    for kind, caught in found.items():
        click.echo(f"{kind:20} {sum(caught):3} of {len(caught)}")
    click.echo(f"{'all':20} {sum(map(sum, found.values())):3} of {sum(map(len, found.values()))}")


@main.command()
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
def table(before: Path, after: Path) -> None:
    """Print, for each kind of fault, how many the suites of two versions caught, from two outputs of `catch`."""
    lines = [map(json.loads, file.read_text(encoding="utf-8").splitlines()) for file in (before, after)]
    caught = [{one["name"]: bool(one["checks"]) for one in found} for found in lines]
    rows = []
    for kind in dict.fromkeys(one["kind"] for one in faults()):
        names = [one["name"] for one in faults() if one["kind"] == kind]
        branch = sum("config" in one for one in faults() if one["kind"] == kind)
        rows.append((kind, len(names), branch, *(sum(one[name] for name in names) for one in caught)))
    rows.append(("all", *(sum(row[column] for row in rows) for column in range(1, 5))))  # type: ignore[arg-type]
    click.echo("| kind | faults | in branches that no recipe enters | caught before | caught now |")
    click.echo("|---|---|---|---|---|")
    for row in rows:
        click.echo("| " + " | ".join(map(str, row)) + " |")


@main.command()
def repros() -> None:
    """Run each script of `repros`, and print what it says."""
    for file in sorted((HERE / "repros").glob("*.py")):
        done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=True)
        click.echo(f"- `{file.name}`: {done.stdout.strip().splitlines()[-1]}")


def _caught_by(fault: Fault) -> list[str]:
    """Return the checks that failed. Raises `UsageError` if nothing was checked."""
    with tempfile.TemporaryDirectory(prefix="hwcompat-fault-") as name:
        folder = Path(name)
        task = ["--task", fault["task"]] if "task" in fault else []
        command = product.command(folder, [fault["type"]], "cpu", "--run", "--jobs", "1", *task)
        done = product.run(command, _environment(fault, folder), LONGEST_S)
        lines = [line for line in read_folder(folder / "evidence").checks if line.requested_target == "cpu"]
    if not lines:
        raise UsageError(f"{fault['name']} was not run", why=done.stderr[-500:])
    return [line.check_name for line in lines if line.outcome.is_failure]


@main.command()
@click.option("--file", "files", multiple=True, default=(FROZEN, HELD_OUT), type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), default=HERE / "proved.jsonl", help="One line of JSON each.")
def prove(files: tuple[Path, ...], out: Path) -> int:
    """Make each call with the sound and with the faulty library; exit with 1 if a fault changes nothing."""
    bad = 0
    with out.open("w", encoding="utf-8") as opened:
        for fault, far, why in _proved([one for file in files for one in faults(file)]):
            bad += bool(why)
            click.echo(f"{fault['name']} {fault['type']} {fault['call']} {far:.1e} {why}", err=True)
            row = {"name": fault["name"], "call": fault["call"], "moved": f"{far:.1e}"}
            if not why:
                click.echo(json.dumps(row), file=opened)
    return 1 if bad else 0


def _proved(chosen: list[Fault]) -> Iterator[tuple[Fault, float, str]]:
    """Yield each fault with how far it moves its call, and why that isn't enough."""
    from transformers import modeling_layers, modeling_utils  # noqa: F401  # once, not in each forked child

    known: dict[str, Any] = {}
    fork, new = (get_context(how).Pool(1, maxtasksperchild=1) for how in ("fork", "spawn"))
    for fault in chosen:
        pool = fork if fault["file"].startswith("models/") else new  # other files are imported already
        key = json.dumps([fault.get(name) for name in ("type", "task", "call", "config", "arguments")])
        try:
            known[key] = known.get(key) or fork.apply_async(outcome, (fault, False)).get(LONGEST_S)
            broken = pool.apply_async(outcome, (fault, True)).get(LONGEST_S)
            far = compare(broken, known[key], required=tuple(known[key])).max_rel_error
        except Exception as error:  # what the library raises is why a fault can't be used
            yield fault, 0.0, f"{type(error).__name__}: {error}"[:200]
        else:
            yield fault, far, "" if far > LEAST.get(fault["call"], 1e-6) else "moves nothing"


if __name__ == "__main__":
    sys.exit(run_command_line(main, sys.argv[1:], program="python -m benchmarks.library_faults"))
