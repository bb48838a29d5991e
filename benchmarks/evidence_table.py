"""What tables of measured cells share: the last run of each cell, versions and dates, and evidence that is kept.

Evidence that a page was made from is kept as `docs/evidence/<target>.jsonl.gz`: the lines of each cell's last run,
and of those runs, without tracebacks, plans and inventories.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hardware.evidence.record import CheckLine, Line, Outcome, RunLine, from_dict, to_dict
from hardware.evidence.store import read_folder
from hardware.target import Target

_COMMON = "runs_natively"
"""The last check of every suite that runs anything: a cell without it was cut off."""


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """Runs and checks of several folders or kept files."""

    runs: tuple[RunLine, ...]
    checks: tuple[CheckLine, ...]


def gathered(places: Iterable[Path]) -> Gathered:
    """The lines of folders of evidence and of kept files (`.jsonl.gz`). Raises `BrokenInput` where one is broken."""
    lines: list[Line] = []
    for place in places:
        if place.is_dir():
            found = read_folder(place)
            lines += [*found.runs, *found.checks]
        else:
            with gzip.open(place, "rt", encoding="utf-8") as file:
                lines += [from_dict(json.loads(text)) for text in file]
    return Gathered(
        runs=tuple(line for line in lines if isinstance(line, RunLine)),
        checks=tuple(line for line in lines if isinstance(line, CheckLine)),
    )


def keep(found: Gathered, target: Target, file: Path) -> None:
    """Write what a page about `target` is made from. The same lines give the same bytes."""
    kept = [line for checks in last_checks(found.checks, target).values() for line in checks.values()]
    named = {line.run_id for line in kept}
    runs = {run.run_id: replace(run, plan=(), inventory={}, command="") for run in found.runs if run.run_id in named}
    lines: list[Line] = [runs[name] for name in sorted(runs)]
    lines += [replace(line, traceback="") for line in kept]
    text = "".join(json.dumps(to_dict(line), sort_keys=True) + "\n" for line in lines)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed:
        packed.write(text.encode())


def last_checks(lines: Sequence[CheckLine], target: Target) -> dict[str, dict[str, CheckLine]]:
    """By cell and name, the last run of each check on a target, on every variant where it names none; cells that were
    cut off are left out.

    A cell whose last run was cut off keeps what the run before showed.
    """
    runs: dict[str, dict[str, dict[str, CheckLine]]] = {}
    for line in sorted(lines, key=lambda one: one.started_at):
        asked = Target.parse(line.requested_target)
        is_meant = asked.name == target.name and target.variant in ("", asked.variant)
        if line.outcome is not Outcome.NOT_RUN and is_meant:
            cell = runs.setdefault(line.cell_id, {})
            cell.setdefault(line.run_id, {})[line.check_name] = line
    whole = {cell: [checks for checks in found.values() if _COMMON in checks] for cell, found in runs.items()}
    return {cell: found[-1] for cell, found in sorted(whole.items()) if found}


def versions_said(runs: Sequence[RunLine], names: Sequence[str]) -> str:
    """The versions of some packages, all that these runs had."""
    found: Mapping[str, set[str]] = {
        name: {run.versions[name] for run in runs if name in run.versions} for name in names
    }
    return ", ".join(f"{name} {' and '.join(sorted(found[name]))}" for name in names if found[name])


def dates_said(runs: Sequence[RunLine]) -> str:
    """From when to when these runs were."""
    dates = sorted(run.started_at[:10] for run in runs)
    return dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"


def one_line(text: str, longest: int = 160) -> str:
    """A message as a table's cell holds it."""
    plain = re.sub(r"\s+", " ", text).replace("|", "/").strip()
    return plain if len(plain) <= longest else plain[: longest - 1] + "…"
