"""Synthetic evidence for benchmarks, millions of lines in minutes. It proves nothing.

Runs contain every model type on every target with the required checks; each machine has its own targets, and one
check in fifty fails. Measured numbers (durations, errors) differ in each line, so that they compress as little as
real ones. `python -m benchmarks.evidence_made_up FOLDER [ROWS]` writes a folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from generators.compatibility.required_checks import required_checks
from generators.compatibility.vocabulary import vocabulary
from generators.models.recipe_store import stored_recipes
from hardware.cell import Cell
from hardware.detection import detect
from hardware.evidence.record import CheckLine, EndLine, Outcome, PlannedCell, RunLine, to_dict
from hardware.evidence.versions import versions_of
from hardware.target import Target

_MACHINES = ("lab-a", "lab-b", "lab-c")
_FIRST = datetime(2026, 1, 1, tzinfo=UTC)
_RUN, _MOMENT, _ACCELERATOR = "run-id-stands-here", "moment-stands-here", "accelerator-stands-here"

BETWEEN = timedelta(hours=3)
"""The time between two runs: ten million lines are 860 runs in four months."""

_MEASURED = ('"duration_s": 0.05', '"max_abs_error": 1e-07', '"max_rel_error": 1e-06', '"latency_ms": 3.5')


def write_rows(folder: Path, rows: int) -> int:
    """Write complete runs, one file each, until there are `rows` lines of checks; return their number."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(0)
    versions = versions_of(detect())
    names = vocabulary().hardware_types
    suites = [list(_suites(names[place :: len(_MACHINES)])) for place in range(len(_MACHINES))]
    texts = [[_template(text) for suite in own for text in _templates(suite)] for own in suites]
    written = number = 0
    while written < rows:
        place = number % len(_MACHINES)
        start = _FIRST + BETWEEN * number
        run_id = f"{start:%Y%m%dT%H%M%SZ}-{number:06x}"
        with (folder / f"{run_id}-1.jsonl").open("w", encoding="utf-8") as file:
            file.write(_line(_run(run_id, start, _MACHINES[place], versions, suites[place])))
            file.writelines(_checks(texts[place], run_id, f"{start:%Y-%m-%dT%H}", _MACHINES[place], draw))
            file.write(_line(EndLine(run_id=run_id, ended_at=start.isoformat(), reason="done", counts={})))
        written += len(texts[place])
        number += 1
    return written


def _suites(targets: Sequence[str]) -> Iterator[PlannedCell]:
    for recipe in stored_recipes():
        for name in targets:
            cell = Cell(model=recipe.model_type, task=recipe.task, target=Target(name=name), precision="float32")
            verdict = {"cell": cell.id, "level": "high", "basis": "predicted", "rule_ids": ["made.up"]}
            yield PlannedCell(
                cell_id=cell.id,
                checks=required_checks(cell),
                suite=f"test_{cell.slug}.py",
                suite_hash="0" * 16,
                subject="tiny",
                verdict=verdict,
            )


def _run(
    run_id: str, start: datetime, machine: str, versions: dict[str, str], suites: Sequence[PlannedCell]
) -> RunLine:
    return RunLine(
        run_id=run_id,
        started_at=start.isoformat(),
        command="python -m benchmarks.evidence_growth",
        machine=machine,
        inventory={},
        versions=versions,
        plan=tuple(suites),
    )


def _templates(suite: PlannedCell) -> Iterator[str]:
    """Return the text of a line for each check of a suite, with placeholders for values that differ between runs."""
    cell = Cell.parse(suite.cell_id)
    for check in suite.checks:
        failed = hashlib.sha256(f"{cell.id}{check}".encode()).digest()[0] < 5
        line = CheckLine(
            run_id=_RUN,
            cell_id=cell.id,
            check_name=check,
            outcome=Outcome.FAILED if failed else Outcome.PASSED,
            subject="tiny",
            requested_target=str(cell.target),
            actual_target=str(cell.target),
            precision=cell.precision,
            model=cell.model,
            task=cell.task,
            suite_hash=suite.suite_hash,
            started_at=_MOMENT,
            duration_s=0.05,
            config_hash="0" * 64,
            architecture="encoder-only",
            accelerator=_ACCELERATOR,
            actual_dtype="float32",
            batch=2,
            sequence_length=16,
            conditions={"optimisation": "O0", "attention": "sdpa"},
            error_type="numerical_mismatch" if failed else "",
            error_message="off by more than the tolerance" if failed else "",
            max_abs_error=1e-7,
            max_rel_error=1e-6,
            tolerance=2e-5,
            native_ops={f"aten.operator_{i}.default": i + 1 for i in range(20)} if check == "runs_natively" else {},
            latency_ms=3.5,
            peak_memory_bytes=500_000_000,
        )
        yield _line(line)


def _line(line: CheckLine | RunLine | EndLine) -> str:
    return json.dumps(to_dict(line)) + "\n"


def _template(text: str) -> str:
    """Return a line as text with placeholders."""
    text = text.replace("%", "%%")
    for mark in (_RUN, _MOMENT, _ACCELERATOR):
        text = text.replace(mark, f"%({mark})s")
    for mark in _MEASURED:
        name, _, _ = mark.partition(": ")
        text = text.replace(mark, f"{name}: %({name.strip(chr(34))}).6g")
    return text


def _checks(texts: list[str], run_id: str, hour: str, machine: str, draw: random.Random) -> Iterator[str]:
    for place, text in enumerate(texts):
        seconds, micros = divmod(place * 50_000, 1_000_000)
        minute, second = divmod(seconds, 60)
        yield text % {
            _RUN: run_id,
            _MOMENT: f"{hour}:{minute:02}:{second:02}.{micros:06}+00:00",
            _ACCELERATOR: f"accelerator of {machine}",
            "duration_s": draw.uniform(0.01, 0.2),
            "max_abs_error": draw.uniform(1e-8, 1e-6),
            "max_rel_error": draw.uniform(1e-7, 1e-5),
            "latency_ms": draw.uniform(1, 9),
        }


def beginning(whole: Path, folder: Path, rows: int, rows_of_all: int) -> Path:
    """Hard-link the first runs of a folder with `rows_of_all` lines, about `rows` lines, into a new folder."""
    folder.mkdir(parents=True)
    paths = sorted(whole.glob("*.jsonl"))
    for path in paths[: max(1, round(len(paths) * rows / rows_of_all))]:
        os.link(path, folder / path.name)
    return folder


if __name__ == "__main__":
    print(write_rows(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000))
