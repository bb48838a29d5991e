"""The child that measures one cell, as it is or under what its environment says.

It leaves a suite and evidence in a folder of its own.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from generators.compatibility.rules import load_rules
from generators.compatibility.verdict import Level
from generators.job import suite_environment, write_suites
from hardware.cell import Cell
from hardware.detection import detect
from hardware.evidence.store import read_folder
from hardware.process import answer
from hardware.testing.runner import Limits, default_memory_limit
from hardware.testing.session import run_session
from hardware.testing.suite_file import read_suite
from hwcompat.plugins.study.refresh.expired import ExpiredCell
from hwcompat.plugins.study.refresh.located import plan_again

SUITES, EVIDENCE = "suites", "evidence"


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a child is told: the `cell` to measure, the cell that was asked for (`asked`, whose model it is), the
    user's `evidence` where it names that model's place (empty: none), its own `folder`, the `command` that goes into
    its evidence, and the seconds of one check (0: the target's own)."""

    cell: str
    asked: str
    evidence: str
    folder: str
    command: str
    timeout_s: float = 0.0


def measure(task: Task) -> None:
    """Plan, write and run the suite of the task's cell. Raises `ModelError` and the like where there is none."""
    inventory = detect()
    planned = plan_again(_located(task), (), (), load_rules(), inventory)
    folder = Path(task.folder)
    (written,) = write_suites([planned], folder / SUITES, force=True)
    suite = read_suite(written.path)
    assert suite is not None  # it was rendered a moment ago
    os.environ.update(suite_environment([written]))
    run_session(
        [suite],
        [suite.planned(planned.verdict.to_dict())],
        inventory,
        evidence=folder / EVIDENCE,
        command=task.command,
        limits=Limits(timeout_s=task.timeout_s or None, memory_bytes=default_memory_limit()),
        jobs=1,
    )


def _located(task: Task) -> ExpiredCell:
    """The cell with what the user's evidence tells of its model: what it is called, and what was run of it."""
    cell, asked = Cell.parse(task.cell), Cell.parse(task.asked)
    evidence = read_folder(Path(task.evidence)) if task.evidence else None
    lines = tuple(line for line in evidence.checks if line.cell_id == asked.id) if evidence else ()
    runs = [run for run in evidence.runs if any(one.cell_id == asked.id for one in run.plan)] if evidence else []
    newest = sorted(runs, key=lambda run: run.started_at, reverse=True)
    return ExpiredCell(cell=cell, level=Level.UNKNOWN, reasons=(), runs=tuple(newest), lines=lines)


if __name__ == "__main__":
    answer(lambda asked: measure(Task(**asked)))
