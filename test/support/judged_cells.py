"""Results of one cell made by hand, and the verdict that they give."""

from __future__ import annotations

from evidence_lines import MEASURED, check_line

from generators.compatibility.expiry import Expiry
from generators.compatibility.judge import judge_cell
from generators.compatibility.verdict import Verdict
from hardware.cell import Cell
from hardware.evidence.record import CheckLine, Outcome
from hardware.testing.checks import all_checks

CELL = Cell.parse("gpt2/text-generation/cuda/float32")
PLAN = tuple(check.name for check in all_checks())
VERSIONS = {"torch": "2.13.0", "transformers": "5.5.4"}
NATIVE = {"aten.addmm": 9}


def line(check: str, outcome: Outcome = Outcome.PASSED, /, **changes: object) -> CheckLine:
    """Return a result on the requested device, with the proof of where it ran."""
    values = {
        **MEASURED,
        "run_id": "run1",
        "cell_id": CELL.id,
        "actual_target": "cuda:0",
        "accelerator": "H200",
        "native_ops": NATIVE if check == "runs_natively" else {},
    }
    return check_line(check, outcome, **{**values, **changes})


def passed(**changes: object) -> dict[str, CheckLine]:
    """Return a pass of each planned check, by its name."""
    return {check: line(check, **changes) for check in PLAN}


def ask(lines, plan=PLAN, *, cell: Cell = CELL, required=(), weights_asked: str = "tiny", **changes) -> Verdict:
    """Return the verdict; `changes` are fields of the cell's `Expiry`."""
    expiry = Expiry(**{"cell": cell, "now": VERSIONS, "then": {"run1": VERSIONS, "run2": VERSIONS}, **changes})
    return judge_cell(cell, plan, list(lines), expiry=expiry, required=required, weights_asked=weights_asked)


def with_change(check: str, outcome: Outcome = Outcome.PASSED, **changes: object) -> Verdict:
    """Return the verdict of passes except for this check."""
    return ask({**passed(), check: line(check, outcome, **changes)}.values())
