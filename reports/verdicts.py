"""From a folder of evidence to verdicts and the matrix: the one way for every front door."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from generators.compatibility.conclude import conclude
from generators.compatibility.matrix import Matrix, build_matrix
from generators.compatibility.rules import load_rules
from generators.compatibility.verdict import Verdict
from hardware.backends.factory import backend_class, known_targets
from hardware.cell import Cell
from hardware.errors import HwCompatError
from hardware.evidence.versions import versions_of

from .current import current_checks

if TYPE_CHECKING:
    from hardware.detection import HardwareInfo
    from hardware.evidence.store import Evidence

_ALWAYS = ("torch", "transformers")


def verdict_of(cell: Cell, evidence: Evidence, inventory: HardwareInfo, *, subject_required: str = "tiny") -> Verdict:
    """What the evidence says of one cell on the versions of this machine; `unknown` where it says nothing."""
    return conclude(
        cell,
        planned_checks(cell, evidence),
        [line for line in current_checks(evidence) if line.cell_id == cell.id],
        current_versions=_versions_for(cell, inventory),
        run_versions={run.run_id: run.versions for run in evidence.runs},
        subject_required=subject_required,
    )


def measured_verdicts(evidence: Evidence, inventory: HardwareInfo) -> tuple[Verdict, ...]:
    """The verdicts of all cells that the evidence names, in the order of their ids."""
    cells = []
    named = {line.cell_id for line in evidence.checks} | {c.cell_id for run in evidence.runs for c in run.plan}
    for id_ in sorted(named):
        try:
            cells.append(Cell.parse(id_))
        except HwCompatError:  # reported as broken evidence by the reporter, and no cell to conclude about
            continue
    return tuple(verdict_of(cell, evidence, inventory) for cell in cells)


def matrix_of(evidence: Evidence | None, inventory: HardwareInfo, *, timestamp: str) -> Matrix:
    """The matrix of declared levels with what was measured laid over it."""
    verdicts = measured_verdicts(evidence, inventory) if evidence else ()
    models = {Cell.parse(verdict.cell).model for verdict in verdicts}
    return build_matrix(load_rules(), verdicts, families_of(models), timestamp=timestamp)


def families_of(models: Iterable[str]) -> dict[str, str]:
    """The family of each model that is known, by type or by name; the others are left out."""
    from generators.models.classifier import classify_or_guess

    found = {model: classify_or_guess(model)[0] for model in sorted(models)}
    return {model: known.family for model, known in found.items() if known is not None}


def planned_checks(cell: Cell, evidence: Evidence) -> tuple[str, ...]:
    """The checks that the newest run planned for a cell; where no run line tells, those that left a line."""
    for run in sorted(evidence.runs, key=lambda run: run.started_at, reverse=True):
        for planned in run.plan:
            if planned.cell_id == cell.id:
                return planned.checks
    return tuple(dict.fromkeys(line.check_name for line in evidence.checks if line.cell_id == cell.id))


def _versions_for(cell: Cell, inventory: HardwareInfo) -> Mapping[str, str]:
    """The versions here on which evidence of the cell's target depends; what isn't here can't have moved on."""
    here = versions_of(inventory)
    known = cell.target.name in known_targets()
    names = backend_class(cell.target.name).EXPIRES_ON if known else _ALWAYS
    return {name: here[name] for name in names if name in here}
