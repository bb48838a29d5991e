"""Lines of evidence with defaults, for tests that need no suite that ran."""

from __future__ import annotations

import json
from pathlib import Path

from generators.compatibility.required_checks import required_checks
from hardware.cell import Cell
from hardware.evidence.record import CheckLine, Line, Outcome, PlannedCell, RunLine, to_dict

BERT = "bert/fill-mask/cpu/float32"
BERT_CHECKS = len(required_checks(Cell.parse(BERT)))
GPT2 = "gpt2/text-generation/cpu/float32"
MEASURED = {
    "actual_dtype": "float32",
    "max_rel_error": 1e-6,
    "tolerance": 2e-5,
    "accelerator": "a device",
    "native_ops": {"aten.mm": 1},
}
"""What a check that passed has to record for a level to count as measured."""


def check_line(check: str = "builds", outcome: Outcome = Outcome.PASSED, /, **changes: object) -> CheckLine:
    """Return a result of a check of `cell_id`, by default of `BERT`, on the target that was requested."""
    cell = str(changes.get("cell_id", BERT))
    model, task, target, precision = cell.split("/") if cell.count("/") == 3 else BERT.split("/")
    values = {
        "run_id": "r1",
        "cell_id": cell,
        "check_name": check,
        "outcome": outcome,
        "subject": "tiny",
        "requested_target": target,
        "actual_target": target,
        "precision": precision,
        "model": model,
        "task": task,
        "suite_hash": "h",
        "started_at": "2026-01-01T00:00:01+00:00",
        "duration_s": 0.25,
    }
    return CheckLine(**{**values, **changes})


def planned_cell(cell: str = BERT, checks: tuple[str, ...] = (), **changes: object) -> PlannedCell:
    """Return the plan of one suite."""
    values = {"cell_id": cell, "checks": checks, "suite": "s.py", "suite_hash": "h", "subject": "tiny"}
    return PlannedCell(**{**values, **changes})


def run_line(*plan: PlannedCell, **changes: object) -> RunLine:
    """Return the line of a run on the machine `lab` that planned these suites."""
    values = {
        "run_id": "r1",
        "started_at": "2026-01-01T00:00:00+00:00",
        "command": "hwcompat run",
        "machine": "lab",
        "inventory": {},
        "versions": {},
        "plan": plan,
    }
    return RunLine(**{**values, **changes})


def write_lines(path: Path, *lines: Line) -> None:
    """Write a file of evidence, and its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(to_dict(line)) + "\n" for line in lines), encoding="utf-8")
