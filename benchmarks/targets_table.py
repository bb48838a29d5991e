"""Prints docs/TARGETS.md: the ten reference models on every target, those that can't be used here with the reason.

`python -m benchmarks.targets_table > docs/TARGETS.md` runs the models on each target that is here and reads the
evidence; `--evidence FOLDER` keeps it there, and `--read` takes what is there already.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from generators.compatibility.judge import judge
from generators.compatibility.verdict import Level, Verdict
from hardware.backends.factory import get_backend, known_targets
from hardware.detection import detect
from hardware.errors import HwCompatError
from hardware.evidence.latest import read_latest
from hardware.evidence.store import Evidence, read_folder
from hardware.evidence.versions import library_versions, relevant_versions
from hardware.target import Target
from reports.wording import texts

from .evidence_rows import Row, rows_of
from .reference_models import REFERENCE_MODELS

_ROOT = Path(__file__).parents[1]
_USUAL = (0, 1)
"""Exit codes of a run that came to its end: all passed, or a check failed."""

_HEAD = """# The ten reference models on every target

Made by `{command}`, which runs `run_test_generation.py --device TARGET --run` for each target
that can be used on the machine it is started on, with runs from {first} to {last}. Subject: tiny, with loud
weights, in float32. What a row stands for is said by the table of the targets: an emulator is no device.

A level says what `README.md` says of it. *checks* are those that passed of those that ran; *error* is that of the
check which came nearest to its tolerance, relative to the output's scale, against a float64 reference on the host.
Operators are what the execution proof saw: *native* ones ran on the target, *offloaded* ones on the host. *computes
in* is what the backend measured or declared.
"""


@dataclass(frozen=True, kw_only=True)
class OnTarget:
    """One target: why it can't be used here (empty where it can), its rows, their verdicts, and what computed."""

    name: str
    missing: str
    rows: tuple[Row, ...]
    verdicts: Mapping[str, Verdict]
    devices: tuple[str, ...]
    versions: Mapping[str, str]


def on_target(name: str, evidence: Evidence) -> OnTarget:
    """What the evidence says of a target."""
    rows = tuple(rows_of(evidence.checks, Target(name=name)))
    cells = {row.cell.id: row.cell for row in rows}
    own = [line for line in evidence.checks if line.cell_id in cells]
    versions: dict[str, str] = {}
    for run in sorted(evidence.runs, key=lambda one: one.started_at):
        for cell in (cells[one.cell_id] for one in run.plan if one.cell_id in cells):
            versions |= library_versions(relevant_versions(cell, run.versions))
    return OnTarget(
        name=name,
        missing=get_backend(name).unavailable(),
        rows=rows,
        verdicts={one.cell: one for one in judge(read_latest(evidence), detect()) if one.cell in cells},
        devices=tuple(sorted({line.accelerator for line in own if line.accelerator and line.actual_target == name})),
        versions=versions,
    )


def page(targets: Sequence[OnTarget], runs: Sequence[str], command: str) -> str:
    """The whole page; `runs` are the times at which runs began. Raises `ValueError` where nothing was run."""
    if not runs:
        raise ValueError("no target can be used here, or nothing ran")
    head = _HEAD.format(command=command, first=min(runs)[:10], last=max(runs)[:10])
    return "\n".join([head, *_of_targets(targets), "", *_of_models([one for one in targets if one.rows])])


def _of_targets(targets: Sequence[OnTarget]) -> Iterator[str]:
    yield "| target | models | checks | computed by | all on condition | versions |\n|---|---|---|---|---|---|"
    for target in targets:
        if not target.rows:
            why = f"not here: {_cell(target.missing)}" if target.missing else "nothing ran"
            yield f"| {target.name} | {why} | - | - | - | - |"
            continue
        levels = [verdict.level for verdict in target.verdicts.values()]
        said = ", ".join(f"{levels.count(level)} {level}" for level in Level if level in levels)
        passed, ran = sum(row.passed for row in target.rows), sum(row.checks for row in target.rows)
        versions = ", ".join(f"{name} {version}" for name, version in sorted(target.versions.items()))
        yield (
            f"| {target.name} | {said} | {passed} of {ran} | {_cell(' and '.join(target.devices))} | "
            f"{_cell('; '.join(sorted(_shared(target))))} | {versions} |"
        )


def _shared(target: OnTarget) -> frozenset[str]:
    """The conditions that all cells of a target are under, those that don't work and have none aside."""
    found = [
        frozenset(texts(one.conditions))
        for one in target.verdicts.values()
        if one.level.is_supported and one.conditions
    ]
    return frozenset.intersection(*found) if found else frozenset()


def _of_models(targets: Sequence[OnTarget]) -> Iterator[str]:
    yield "| model | target | level | checks | error / tolerance | native | offloaded | computes in |"
    yield "|---|---|---|---|---|---|---|---|"
    here = {target.name: {row.cell.model: row for row in target.rows} for target in targets}
    for model in REFERENCE_MODELS:
        for target in targets:
            row = here[target.name].get(model)
            if row is None:
                yield f"| {model} | {target.name} | unknown: its run was cut off | - | - | - | - | - |"
            else:
                yield _line(row, target.verdicts[row.cell.id], _shared(target))


def _line(row: Row, verdict: Verdict, shared: frozenset[str]) -> str:
    works = verdict.level in (Level.HIGH, Level.MEDIUM)
    why = [one for one in texts(verdict.conditions if works else verdict.reasons) if one not in shared]
    level = f"**{verdict.level}** {_cell('; '.join(why))}".strip()
    error = "-" if row.nearest is None else f"{row.nearest:.1e} / {row.allowed:g}"
    return (
        f"| {row.cell.model} | {row.cell.target} | {level} | {row.passed} of {row.checks} | {error} | {row.native} | "
        f"{row.offloaded} | {', '.join(row.dtypes) or '-'} |"
    )


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "/")


def _run(target: str, folder: Path) -> None:
    """Run the ten models on a target; evidence and the rest go below `folder`. Raises `ClickException`."""
    models = [word for name in REFERENCE_MODELS for word in ("--model", name)]
    places = [word for name in ("evidence", "output", "report") for word in (_OPTIONS[name], str(folder / name))]
    command = [sys.executable, "run_test_generation.py", *models, "--device", target, "--run", *places]
    done = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=False)
    click.echo(done.stdout, err=True)
    if done.returncode not in _USUAL:
        raise click.ClickException(f"the run on {target} ended with exit code {done.returncode}")


_OPTIONS = {"evidence": "--evidence", "output": "--output-dir", "report": "--report-dir"}


@click.command()
@click.option("--target", "names", multiple=True, help="Run on this one alone; may be repeated. Default: all.")
@click.option("--evidence", type=click.Path(path_type=Path, file_okay=False), help="Where evidence is kept.")
@click.option("--read", is_flag=True, help="Run nothing; read what --evidence holds.")
def main(names: tuple[str, ...], evidence: Path | None, read: bool) -> None:
    """Run the models and print the page."""
    if read and evidence is None:
        raise click.UsageError("--read goes with --evidence")
    with tempfile.TemporaryDirectory() as folder:
        place = (evidence or Path(folder)).resolve()
        for name in () if read else names or known_targets():
            try:
                reason = get_backend(name).unavailable()
            except HwCompatError as error:
                raise click.UsageError(str(error)) from error
            if reason:
                click.echo(f"{name}: {reason}", err=True)
            else:
                _run(name, place)
        kept = place / "evidence"
        found = read_folder(kept) if kept.is_dir() else read_folder()
        targets = [on_target(name, found) for name in known_targets()]
    times = [run.started_at for run in found.runs]
    try:
        click.echo(page(targets, times, "python -m benchmarks.targets_table"))
    except ValueError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
