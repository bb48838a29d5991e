"""Runs made by hand, with the lines of their checks: green ones, broken ones, and what else a run can be."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from generators.compatibility.run_summary import RunSummary, summarize_run
from hardware.cell import Cell
from hardware.evidence.record import CheckLine, EndLine, Line, Outcome, PlannedCell, RunLine, to_dict

BERT = "bert/fill-mask/cpu/float32"
GPT2 = "gpt2/text-generation/cpu/float32"
CUDA = "bert/fill-mask/cuda/float32"

CHECKS = ("builds", "matches_reference", "backward", "runs_natively")
VERSIONS = {"torch": "2.13.0", "transformers": "5.5.4", "numpy": "2.4.6", "hwcompat": "0.1.0+a"}


def a_run(run_id: str, day: int, *cells: str, **changes: object) -> RunLine:
    """A run of a day of January 2026. `versions` differ from VERSIONS, `plan` from the usual suite of its cells."""
    plan = {"checks": CHECKS, "suite": "s.py", "suite_hash": "suite", "subject": "tiny"} | changes.pop("plan", {})
    values = {
        "run_id": run_id,
        "started_at": f"2026-01-{day:02}T00:00:00+00:00",
        "command": "hwcompat run",
        "machine": "desk",
        "inventory": {},
        "versions": {**VERSIONS, **changes.pop("versions", {})},
        "plan": tuple(PlannedCell(cell_id=cell, **plan) for cell in cells or (BERT,)),
    }
    return RunLine(**{**values, **changes})


def lines_of(run: RunLine, broken: Collection[str] = (), **of_all: object) -> list[CheckLine]:
    """A line of every planned check: passed, but those that are `broken`; `of_all` is so in every line."""
    found = []
    for planned in run.plan:
        cell = Cell.parse(planned.cell_id)
        for check in planned.checks:
            values = {
                "run_id": run.run_id,
                "cell_id": planned.cell_id,
                "check_name": check,
                "outcome": Outcome.FAILED if check in broken else Outcome.PASSED,
                "subject": planned.subject,
                "requested_target": str(cell.target),
                "actual_target": str(cell.target),
                "precision": "float32",
                "actual_dtype": "float32",
                "model": cell.model,
                "task": cell.task,
                "suite_hash": planned.suite_hash,
                "started_at": run.started_at,
                "duration_s": 0.1,
                "accelerator": "a device",
                "config_hash": "c0ffee",
                "max_rel_error": 1e-6,
                "tolerance": 2e-5,
                "native_ops": {"aten.mm": 1} if check == "runs_natively" else {},
                "error_message": "it broke" if check in broken else "",
            }
            found.append(CheckLine(**{**values, **of_all}))
    return found


def shown(run: RunLine, broken: Collection[str] = (), **of_all: object) -> RunSummary:
    """What such a run showed of its first cell."""
    return next(iter(summarize_run(run, lines_of(run, broken, **of_all)).values()))


def write(folder: Path, run: RunLine, broken: Collection[str] = (), *, ended: bool = True, **of_all: object) -> None:
    """Put such a run into a folder of evidence, in two files, as a parent and its child do."""
    folder.mkdir(exist_ok=True)
    end = [EndLine(run_id=run.run_id, ended_at=run.started_at, reason="finished", counts={})] if ended else []
    files: dict[str, list[Line]] = {"1": [run, *end], "2": list(lines_of(run, broken, **of_all))}
    for number, found in files.items():
        text = "".join(json.dumps(to_dict(line)) + "\n" for line in found)
        (folder / f"{run.run_id}-{number}.jsonl").write_text(text, encoding="utf-8")
