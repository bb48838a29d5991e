"""Shared parts of tables of measured cells: the last run of each cell, versions, dates, and stored evidence.

The evidence of a page is stored as `docs/evidence/<target>.jsonl.gz`: the check lines and run lines of each cell's
last run, without tracebacks, inventories and paths. Predictions in their plans stay, so that they can be scored.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hardware.evidence.record import CheckLine, Line, RunLine, to_dict
from hardware.evidence.shipped_evidence import last_checks, read_shipped
from hardware.evidence.store import read_folder
from hardware.target import Target

_FOLDERS = re.compile(r"/(?:tmp|var|home|root|Users|work)/(?:[^\s/:'\"]+/)*")


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """Runs and checks of several folders or kept files."""

    runs: tuple[RunLine, ...]
    checks: tuple[CheckLine, ...]


def gathered(places: Iterable[Path]) -> Gathered:
    """Read folders of evidence and stored files (`.jsonl.gz`). Raises `BrokenInput` if a line is broken."""
    lines: list[Line] = []
    for place in places:
        if place.is_dir():
            found = read_folder(place)
            lines += [*found.runs, *found.checks]
        else:
            lines += read_shipped(place)
    return Gathered(
        runs=_whole_runs(line for line in lines if isinstance(line, RunLine)),
        checks=tuple(line for line in lines if isinstance(line, CheckLine)),
    )


def _whole_runs(lines: Iterable[RunLine]) -> tuple[RunLine, ...]:
    """Merge the lines of each run: a run on two targets is stored in two files, each with its part of the plan."""
    found: dict[str, RunLine] = {}
    for line in lines:
        before = found.get(line.run_id, line)
        plan = {one.cell_id: one for one in (*before.plan, *line.plan)}
        found[line.run_id] = replace(before, plan=tuple(plan.values()))
    return tuple(found.values())


def keep(found: Gathered, target: Target, file: Path, *, also: Collection[tuple[str, str]] = ()) -> None:
    """Write the evidence of a page about `target`. The same lines give the same bytes.

    `also` has pairs (run id, cell id) of earlier runs whose lines are stored as well.
    """
    kept = [line for checks in last_checks(found.checks, target).values() for line in checks.values()]
    kept += [
        line
        for line in found.checks
        if (line.run_id, line.cell_id) in also and Target.parse(line.requested_target).name == target.name
    ]
    cells: dict[str, set[str]] = defaultdict(set)
    for line in kept:
        cells[line.run_id].add(line.cell_id)
    runs = {run.run_id: _predicted(run, cells[run.run_id]) for run in found.runs if run.run_id in cells}
    lines: list[Line] = [runs[name] for name in sorted(runs)]
    lines += [replace(line, traceback="") for line in kept]
    text = "".join(json.dumps(_without_folders(to_dict(line)), sort_keys=True) + "\n" for line in lines)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed:
        packed.write(text.encode())


def _without_folders(value: Any) -> Any:
    """Return the value without the machine's paths in its texts."""
    if isinstance(value, str):
        return _FOLDERS.sub("", value)
    if isinstance(value, dict):
        return {key: _without_folders(one) for key, one in value.items()}
    return [_without_folders(one) for one in value] if isinstance(value, list) else value


def _predicted(run: RunLine, cells: set[str]) -> RunLine:
    """Return a run line with the plan and predictions of some cells, without the machine's inventory."""
    plan = tuple(replace(one, selection=None) for one in run.plan if one.cell_id in cells)
    return replace(run, plan=plan, inventory={}, command="")


def versions_of(runs: Sequence[RunLine], names: Sequence[str]) -> dict[str, str]:
    """Return all versions of some packages in these runs."""
    found = {name: sorted({run.versions[name] for run in runs if name in run.versions}) for name in names}
    return {name: " and ".join(had) for name, had in found.items() if had}


def versions_said(runs: Sequence[RunLine], names: Sequence[str]) -> str:
    """Return these versions as text."""
    return ", ".join(f"{name} {had}" for name, had in versions_of(runs, names).items())


def dates_said(runs: Sequence[RunLine]) -> str:
    """Return the first and last date of these runs as text."""
    dates = sorted(run.started_at[:10] for run in runs)
    return dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"


def one_line(text: str, longest: int = 160) -> str:
    """Return a message as one line for a table."""
    plain = re.sub(r"\s+", " ", text).replace("|", "/").strip()
    return plain if len(plain) <= longest else plain[: longest - 1] + "…"
