"""Lines of checks of one cell made by hand, and what they come to."""

from __future__ import annotations

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
    values = {
        "run_id": "run1",
        "cell_id": CELL.id,
        "check_name": check,
        "outcome": outcome,
        "subject": "tiny",
        "requested_target": "cuda",
        "actual_target": "cuda:0",
        "precision": "float32",
        "model": "gpt2",
        "task": "text-generation",
        "suite_hash": "abc",
        "started_at": "2026-01-01T00:00:00Z",
        "duration_s": 0.1,
        "accelerator": "H200",
        "actual_dtype": "float32",
        "max_rel_error": 1e-6,
        "tolerance": 2e-5,
        "native_ops": NATIVE if check == "runs_natively" else {},
        **changes,
    }
    return CheckLine(**values)


def passed(**changes: object) -> dict[str, CheckLine]:
    return {check: line(check, **changes) for check in PLAN}


def ask(lines, plan=PLAN, *, cell: Cell = CELL, required=(), weights_asked: str = "tiny", **changes) -> Verdict:
    expiry = Expiry(**{"cell": cell, "now": VERSIONS, "then": {"run1": VERSIONS, "run2": VERSIONS}, **changes})
    return judge_cell(cell, plan, list(lines), expiry=expiry, required=required, weights_asked=weights_asked)


def with_change(check: str, outcome: Outcome = Outcome.PASSED, **changes: object) -> Verdict:
    return ask({**passed(), check: line(check, outcome, **changes)}.values())
