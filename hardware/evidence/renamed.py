"""Read earlier results under the target's name of today: those of `qnn` on Qualcomm's emulator are `qnn:emulator`'s.

Every line of a run on the emulator is renamed if one of them names it as its accelerator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .record import CheckLine, Line, PlannedCell, RunLine

_NOW, _EMULATOR = "qnn:emulator", "HTP emulator"
_BEFORE = _NOW.partition(":")[0]

IS_EARLIER = f"requested_target = '{_BEFORE}' AND accelerator LIKE '{_EMULATOR}%'"
"""SQL for the lines that show that a run was on the emulator."""


def with_current_names(lines: Sequence[Line]) -> Sequence[Line]:
    """Return the lines of whole runs with the current names of their targets and cells."""
    runs = {line.run_id for line in lines if isinstance(line, CheckLine) and _is_earlier(line)}
    return [_renamed(line) if line.run_id in runs else line for line in lines] if runs else lines


def _is_earlier(line: CheckLine) -> bool:
    return line.requested_target == _BEFORE and (line.accelerator or "").startswith(_EMULATOR)


def _renamed(line: Line) -> Line:
    if isinstance(line, RunLine):
        return replace(line, plan=tuple(map(_planned, line.plan)))
    if not isinstance(line, CheckLine) or line.requested_target != _BEFORE:
        return line
    actual = _NOW if line.actual_target == _BEFORE else line.actual_target
    return replace(line, cell_id=_cell(line.cell_id), requested_target=_NOW, actual_target=actual)


def _planned(planned: PlannedCell) -> PlannedCell:
    verdict = planned.verdict and {**planned.verdict, "cell": _cell(planned.cell_id)}
    return replace(planned, cell_id=_cell(planned.cell_id), verdict=verdict)


def _cell(cell_id: str) -> str:
    return cell_id.replace(f"/{_BEFORE}/", f"/{_NOW}/")
