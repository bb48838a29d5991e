"""What a report takes from evidence: what still counts, what was sealed before, which runs have no end, what came
before, and the machines.

A folder is reduced by DuckDB before any object is made, so that a million lines take seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from generators.compatibility.history import History, history_in, history_of
from generators.compatibility.reduction import newest_plan_places
from generators.compatibility.standing import Standing, standing_from, standing_of
from hardware.evidence.record import RunLine
from hardware.evidence.store import Evidence, read_folder
from hardware.evidence.table import EvidenceTable, UnusualEvidenceError
from hardware.software import is_installed

_MACHINES = 20
"""So many machines are shown, those with the newest runs."""


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """`sealed` is what was predicted of each cell in its newest plan, `unfinished` names the runs without an end.

    `machines` are the newest runs of the machines, the newest first. Of broken lines `standing` has those that were
    come across: one that a later line replaces, and whose columns are whole, isn't read.
    """

    standing: Standing
    sealed: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: MappingProxyType({}))
    unfinished: tuple[str, ...] = ()
    history: History = field(default_factory=History)
    machines: tuple[RunLine, ...] = ()


def gathered_of(evidence: Evidence) -> Gathered:
    """The same by objects, for evidence that was read already."""
    newest: dict[str, RunLine] = {}
    machines: dict[str, RunLine] = {}
    for run in sorted(evidence.runs, key=lambda run: run.started_at, reverse=True):
        for planned in run.plan:
            newest.setdefault(planned.cell_id, run)
        machines.setdefault(run.machine, run)
    return Gathered(
        standing=standing_of(evidence),
        sealed=_sealed(newest),
        unfinished=evidence.unfinished(),
        history=history_of(evidence),
        machines=tuple(machines.values())[:_MACHINES],
    )


def gathered_in(folder: Path) -> Gathered:
    """What a report takes from a folder. Raises `BrokenInput` where there is no such folder."""
    if not is_installed("duckdb"):  # a report is for machines where something is missing, too
        return gathered_of(read_folder(folder))
    import duckdb

    try:
        with EvidenceTable(folder) as table:
            return _gathered(table)
    except (UnusualEvidenceError, duckdb.Error):  # what DuckDB takes otherwise than Python: then Python has it
        return gathered_of(read_folder(folder))


def _gathered(table: EvidenceTable) -> Gathered:
    standing = standing_from(table)
    plans = newest_plan_places(table.connection)
    machines = [
        place
        for (place,) in table.connection.execute(
            "SELECT place FROM runs QUALIFY row_number() OVER (PARTITION BY machine ORDER BY started_at DESC, place) "
            "= 1 ORDER BY started_at DESC, place LIMIT ?",
            [_MACHINES],
        ).fetchall()
    ]
    runs = table.lines({*plans.values(), *machines})
    if len(runs) != len({*plans.values(), *machines}):
        raise UnusualEvidenceError("the line of a run is broken")
    newest = {cell: run for cell, place in plans.items() if isinstance(run := runs[place], RunLine)}
    return Gathered(
        standing=standing,
        sealed=_sealed(newest),
        unfinished=_unfinished(table),
        history=history_in(table),
        machines=tuple(run for place in machines if isinstance(run := runs[place], RunLine)),
    )


def _sealed(newest: Mapping[str, RunLine]) -> Mapping[str, Mapping[str, Any]]:
    """What the run with the newest plan of each cell sealed for it; cells without are left out."""
    found: dict[str, Mapping[str, Any]] = {}
    for run in {id(run): run for run in newest.values()}.values():
        for planned in run.plan:
            if planned.verdict is not None and newest[planned.cell_id] is run:
                found.setdefault(planned.cell_id, planned.verdict)
    return found


def _unfinished(table: EvidenceTable) -> tuple[str, ...]:
    ended = {run_id for (run_id,) in table.connection.execute("SELECT run_id FROM ended").fetchall()}
    runs = table.connection.execute("SELECT run_id, resumes FROM runs ORDER BY place").fetchall()
    ended |= {resumed for _, resumes in runs for resumed in resumes}
    return tuple(run_id for run_id, _ in runs if run_id not in ended)
