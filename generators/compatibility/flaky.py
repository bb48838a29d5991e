"""Flaky cells: one of their checks passed and failed although nothing that is recorded differed.

Such a cell is quarantined until something that is recorded changes, or until the check has passed in several runs in
a row (`clean_runs` of levels.toml). A failure stays a failure.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from hardware.cell import Cell
from hardware.errors import HwCompatError
from hardware.evidence.latest import Latest
from hardware.evidence.record import EDITED, CheckLine, Outcome
from hardware.evidence.versions import modified_for, relevant_versions

from .grade import ran_elsewhere, tolerance_moved
from .levels import level_rules

_BROKE = (Outcome.FAILED, Outcome.CRASHED)
"""Outcomes that a cell brings about by itself. Time and memory also run out on a machine that does other work."""


def flaky_cells(latest: Latest, own_limits: Mapping[str, float] = MappingProxyType({})) -> dict[str, tuple[str, ...]]:
    """The runs of each flaky cell in which one check passed and failed by turns, by cell id, oldest first.

    Two results are of one condition if machine, accelerator, suite, conditions, modeling files and the versions on
    which the target depends are the same; the newest condition of a check in a place counts. A run without versions,
    one of a modified checker, and a result that today's tolerance decides otherwise show nothing here; `own_limits`
    are a project's tolerances by cell id.
    """
    lines, versions, machines = latest.alternating, latest.versions, latest.machines
    accelerators = {(line.run_id, line.cell_id): line.accelerator for line in lines if line.accelerator}
    seen: dict[tuple[str, str, str, object, tuple[object, ...]], dict[str, bool]] = {}
    for line in lines:
        broke = line.outcome in _BROKE and line.error_type not in level_rules().not_the_target
        if not (broke or line.outcome is Outcome.PASSED) or line.run_id not in versions or EDITED in line.conditions:
            continue
        try:
            cell = Cell.parse(line.cell_id)
        except HwCompatError:
            continue
        if ran_elsewhere(cell, line) or line.is_to_come or (line.run_id, line.cell_id) in latest.other_modeling:
            continue
        if tolerance_moved(cell, line, own_limits.get(cell.id)):
            continue
        if modified_for(cell, versions[line.run_id], (line.check_name,)):
            continue
        now = tuple(sorted(relevant_versions(cell, versions[line.run_id]).items()))
        # What a parent writes for a child that died names no accelerator; the run's other lines of the cell do.
        where = (machines.get(line.run_id), accelerators.get((line.run_id, line.cell_id)), *_where(line))
        key = (line.cell_id, line.check_name, line.suite_hash, now, where)
        runs = seen.setdefault(key, {})
        runs[line.run_id] = runs.get(line.run_id, False) or broke
    newest: dict[tuple[object, ...], dict[str, bool]] = {}
    for (cell_id, check, _, _, where), runs in seen.items():
        place = (cell_id, check, *where[:3])
        if max(runs) >= max(newest.get(place, ("",))):
            newest[place] = runs
    found: dict[str, set[str]] = {}
    for place, runs in newest.items():
        if len(set(runs.values())) > 1 and not _has_recovered(runs):
            found.setdefault(str(place[0]), set()).update(runs)
    return {cell: tuple(sorted(runs)) for cell, runs in sorted(found.items())}


def _has_recovered(runs: Mapping[str, bool]) -> bool:
    """Whether the newest runs of a check, by id, which sorts by time, all passed, and there are enough of them."""
    newest = sorted(runs)[-level_rules().clean_runs :]
    return len(newest) == level_rules().clean_runs and not any(runs[run] for run in newest)


def _where(line: CheckLine) -> tuple[object, ...]:
    return line.requested_target, line.config_hash, line.model_revision, tuple(sorted(line.conditions.items()))
