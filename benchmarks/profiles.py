"""Profile the commands that are used most: `python -m benchmarks.profiles measure`, then `… page`.

`benchmarks/profiles.toml` lists the commands, the largest cost of each, and what was changed. With `--before DIR`, a
checkout of an earlier version, each command is timed there too, in turns.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import shutil
import statistics
import sys
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from benchmarks.evidence_made_up import write_rows
from benchmarks.side_by_side.processes import ROOT, in_turns, wall_time
from hardware.detection import detect
from hardware.files import CACHE_VARIABLE
from hardware.software import package_versions
from reports.text import markdown_table

KEPT = ROOT / "docs" / "evidence" / "profiles.json"
PAGE = ROOT / "docs" / "measured" / "profiles.md"
_ACTIONS = Path(__file__).with_suffix(".toml")
_PROFILERS = ROOT / ".venv-profiles" / "bin"
_VERSIONS = ("torch", "transformers", "optimum-intel", "openvino", "pytest", "scikit-learn")
_RATE = 50
"""Samples per second. Each one pauses the process; reading a deep stack takes milliseconds."""


@dataclass(frozen=True, kw_only=True)
class Action:
    """A command and its largest cost: `function` of `file`, with all that it calls.

    `places` are the options for output, `anew` the folders below `{out}` that are removed before each run, `codes`
    the allowed exit codes, `rows` the number of checks of synthetic evidence.
    """

    command: str
    name: str = ""
    what: str = ""
    places: str = ""
    anew: Sequence[str] = ()
    codes: Sequence[int] = (0,)
    rows: int = 0
    cost: str = ""
    function: str = ""
    file: str = ""
    became: str = ""
    why: str = ""

    def words(self, out: Path) -> list[str]:
        """Return the arguments of Python."""
        return shlex.split(f"{self.command} {self.places}".replace("{out}", shlex.quote(str(out))))


def actions(path: Path = _ACTIONS) -> tuple[tuple[Action, ...], tuple[Action, ...]]:
    """Read the actions: those that are profiled, and those that are only timed."""
    plain = tomllib.loads(path.read_text(encoding="utf-8"))
    profiled, others = ([Action(**one) for one in plain[kind]] for kind in ("action", "other"))
    return tuple(profiled), tuple(others)


@dataclass(frozen=True, kw_only=True)
class Stacks:
    """Samples, each with a stack of (function, file) from the outermost frame on, and a weight."""

    samples: Sequence[tuple[tuple[tuple[str, str], ...], float]]

    def share(self, function: str, file: str) -> float:
        """Return the share of samples, from 0 to 1, whose stack contains a function."""
        whole = sum(weight for _, weight in self.samples)
        with_it = sum(
            weight
            for stack, weight in self.samples
            if any(name == function and place.endswith(file) for name, place in stack)
        )
        return with_it / whole if whole else 0.0


_FRAME = re.compile(r"(?P<name>.*) \((?P<file>.*?)(:\d+)?\)")


def from_py_spy(text: str) -> Stacks:
    """Parse py-spy's raw format: frames separated by semicolons, and a count."""
    samples = []
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        found = [_FRAME.fullmatch(frame) for frame in stack.split(";")]
        # `outer.<locals>.function` is `function`.
        frames = tuple((one["name"].rpartition(".")[2], one["file"]) for one in found if one)
        samples.append((frames, float(count)))
    return Stacks(samples=samples)


def profile(action: Action, out: Path, profilers: Path) -> Stacks:
    """Profile one run of an action with py-spy. Raises the errors of `wall_time`."""
    kept = out / "profile"
    command = [str(profilers / "py-spy"), "record", "--subprocesses", "--rate", str(_RATE), "--format", "raw"]
    command += ["--output", str(kept), "--", sys.executable, *action.words(out)]
    wall_time(command, allowed=action.codes, environment=_fresh(action, out))
    return from_py_spy(kept.read_text(encoding="utf-8"))


def _fresh(action: Action, out: Path) -> dict[str, str]:
    if not (out / "evidence").is_dir():
        write_rows(out / "evidence", action.rows)
    for name in action.anew:
        shutil.rmtree(out / name, ignore_errors=True)
    return {CACHE_VARIABLE: str(out / "cache")} if "cache" in action.anew else {}


def timed(action: Action, folders: Mapping[str, Path], runs: int) -> dict[str, dict[str, float]]:
    """Return medians of wall-clock and processor time in s for each folder with our sources, measured in turns."""
    spent: dict[str, list[float]] = {name: [] for name in folders}

    def run(name: str, out: Path) -> Callable[[], float]:
        def once() -> float:
            environment = _fresh(action, out)
            before = _processor_s()
            taken = wall_time(
                [sys.executable, *action.words(out)], allowed=action.codes, cwd=folders[name], environment=environment
            )
            spent[name].append(_processor_s() - before)
            return taken

        return once

    with tempfile.TemporaryDirectory() as kept:
        for name in folders:
            Path(kept, name).mkdir()
        seconds = in_turns({name: run(name, Path(kept, name)) for name in folders}, runs)
    return {
        name: {"seconds": statistics.median(seconds[name]), "processor_s": statistics.median(spent[name][1:])}
        for name in folders
    }


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured(
    action: Action, before: Path | None, runs: int, profilers: Path, *, known: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the facts of an action: its times, those of the earlier version, and the share of its largest cost.
    Without an earlier version, its `known` times stay, with their date."""
    folders = {"now": ROOT, **({"before": before.resolve()} if before else {})}
    found: dict[str, Any] = {**timed(action, folders, runs), "runs": runs}
    if before:
        found["ratio"] = {kind: found["now"][kind] / found["before"][kind] for kind in ("seconds", "processor_s")}
        found["compared_on"] = f"{datetime.now(UTC):%Y-%m-%d}"
    elif known and "before" in known:
        found |= {key: known[key] for key in ("before", "ratio", "compared_on")}
    if action.function:
        with tempfile.TemporaryDirectory() as kept:
            share = profile(action, Path(kept), profilers).share(action.function, action.file)
        if not share:
            raise RuntimeError(f"{action.function} of {action.file} stands in no sample of: {action.command}")
        found["share"] = share
    return found


def page(kept: Mapping[str, Any], profiled: Sequence[Action], others: Sequence[Action]) -> str:
    """Return the page as Markdown."""
    found = kept["actions"]
    there = [one for one in profiled if one.name in found]
    ordered = sorted(there, key=lambda one: found[one.name]["now"]["processor_s"], reverse=True)
    rows = [
        [
            one.what,
            f"`{one.command}`",
            f"{found[one.name]['now']['processor_s']:.1f} s",
            f"{found[one.name]['now']['seconds']:.1f} s",
            one.cost,
            f"{found[one.name]['share']:.0%}",
            one.became,
            _ratio(found[one.name]),
        ]
        for one in ordered
    ]
    head = ["action", "command", "processor time", "wall-clock time", "largest cost", "its share", "what was done"]
    head += ["ratio to before"]
    reasons = "".join(f"**{one.what[0].upper()}{one.what[1:]}.** {one.why}\n\n" for one in ordered)
    less = [
        [f"`{one.command}`", *(f"{found[one.command]['now'][kind]:.2f} s" for kind in ("processor_s", "seconds"))]
        for one in others
        if one.command in found
    ]
    slowest = ordered[0]
    seconds = found[slowest.name]["now"]["processor_s"]
    about = f"{kept['date']}, {kept['machine']}; {', '.join(f'{k} {v}' for k, v in kept['versions'].items())}."
    title = _HEAD.format(slowest=slowest.what, seconds=seconds)
    return (
        f"{title}{about}\n\n{markdown_table(head, rows)}\n\n## Causes\n\n{reasons}"
        f"## Other commands\n\n{_LESS}{markdown_table(['command', 'processor time', 'wall-clock time'], less)}\n"
    )


def _ratio(found: Mapping[str, Any]) -> str:
    if "ratio" not in found:
        return "not measured"
    by_clock, by_processor = found["ratio"]["seconds"], found["ratio"]["processor_s"]
    return f"**{by_processor:.2f}** (wall-clock {by_clock:.2f}; {found['compared_on']})"


_HEAD = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")

_LESS = """Timed, without a profile; coverage reads 10,000 synthetic checks. Commands that read evidence take longer
with each line: the report above is an example, and [Evidence at scale](evidence-at-scale.md) has times for a million
lines.

"""


@click.group(help=__doc__)
def main() -> None:
    """Profile the commands that are used most."""


@main.command()
@click.argument("names", nargs=-1)
@click.option("--runs", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--before", type=click.Path(path_type=Path, file_okay=False, exists=True), metavar="DIR")
@click.option("--profilers", type=click.Path(path_type=Path, file_okay=False), default=_PROFILERS)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), default=KEPT)
def measure(names: tuple[str, ...], runs: int, before: Path | None, profilers: Path, out: Path) -> None:
    """Time and profile the named actions, or all. Each result is stored when it is complete."""
    kept: dict[str, Any] = json.loads(out.read_text(encoding="utf-8")) if out.is_file() else {"actions": {}}
    inventory = detect()
    memory = (inventory.memory.total_bytes or 0) / 2**30
    kept |= {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"{inventory.cpu.model}, {inventory.cpu.usable_threads} threads, {memory:.0f} GiB",
        "versions": {name: version for name, version in package_versions(_VERSIONS).items() if version},
    }
    profiled, others = actions()
    for action in (*profiled, *others):
        key = action.name or action.command
        if names and (action.name or "others") not in names:
            continue
        click.echo(f"{key} …", err=True)
        known = kept["actions"].get(key)
        kept["actions"][key] = measured(action, before if action.name else None, runs, profilers, known=known)
        out.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        click.echo(f"{key}: {json.dumps(kept['actions'][key])}")


@main.command("page")
@click.option("--kept", type=click.Path(path_type=Path, dir_okay=False, exists=True), default=KEPT)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), default=PAGE)
def write_page(kept: Path, out: Path) -> None:
    """Write PROFILES.md from the stored results."""
    out.write_text(page(json.loads(kept.read_text(encoding="utf-8")), *actions()), encoding="utf-8")


if __name__ == "__main__":
    os.chdir(ROOT)
    main()
