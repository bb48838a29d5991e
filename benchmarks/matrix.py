"""How long the matrix takes over a large folder of evidence, raw and compacted: `python -m benchmarks.matrix`.

Each is asked with nothing kept of it, and again.

The evidence is made up and proves nothing: every model type on every target with the checks that the cell has to
have, run after run, each machine with targets of its own, one check in fifty failing. Times are medians of processes
started anew.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from generators.compatibility.judge import required_checks
from generators.compatibility.vocabulary import vocabulary
from generators.models.store import stored_recipes
from hardware.cell import Cell
from hardware.detection import detect
from hardware.evidence.record import CheckLine, EndLine, Outcome, PlannedCell, RunLine, to_dict
from hardware.evidence.versions import versions_of
from hardware.paths import CACHE_VARIABLE
from hardware.target import Target

ROOT = Path(__file__).parents[1]
MACHINES = ("lab-a", "lab-b", "lab-c")
_FIRST = datetime(2026, 1, 1, tzinfo=UTC)
_RUN, _MOMENT, _ACCELERATOR = "run-id-stands-here", "moment-stands-here", "accelerator-stands-here"


def write_evidence(folder: Path, rows: int) -> int:
    """Write at least `rows` check lines into `folder`, a file a run; returns how many there are."""
    folder.mkdir(parents=True, exist_ok=True)
    versions = versions_of(detect())
    names = vocabulary().hardware_types
    suites = [list(_suites(names[place :: len(MACHINES)])) for place in range(len(MACHINES))]
    texts = [[text for suite in own for text in _templates(suite)] for own in suites]
    written = number = 0
    while written < rows:
        templates = texts[number % len(MACHINES)]
        run_id = f"{_FIRST + timedelta(hours=number):%Y%m%dT%H%M%SZ}-{number:06x}"
        machine = MACHINES[number % len(MACHINES)]
        start = _FIRST + timedelta(hours=number)
        with (folder / f"{run_id}-1.jsonl").open("w", encoding="utf-8") as file:
            file.write(_line(_run(run_id, start, machine, versions, suites[number % len(MACHINES)])))
            for place, text in enumerate(templates[: rows - written]):
                moment = (start + timedelta(milliseconds=place)).isoformat(timespec="microseconds")
                named = text.replace(_RUN, run_id).replace(_MOMENT, moment)
                file.write(named.replace(_ACCELERATOR, f"accelerator of {machine}"))
            file.write(_line(EndLine(run_id=run_id, ended_at=moment, reason="done", counts={})))
        written += min(len(templates), rows - written)
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
        command="python -m benchmarks.matrix",
        machine=machine,
        inventory={},
        versions=versions,
        plan=tuple(suites),
    )


def _templates(suite: PlannedCell) -> Iterator[str]:
    """The text of a line for each check of a suite, with marks where runs differ."""
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


@dataclass(frozen=True, kw_only=True)
class Taken:
    """Seconds by the clock and of processor time, and the largest memory of the process in MiB: medians."""

    wall_s: float
    cpu_s: float
    memory_mib: float


_CHILD = """
import json, resource, sys
from hardware.front_door import open_door
import run_test_generation
code = open_door(run_test_generation.main, sys.argv[1:], program="run_test_generation.py")
used = resource.getrusage(resource.RUSAGE_SELF)
memory = used.ru_maxrss / 1024
heavy = sorted({"torch", "transformers", "numpy"} & set(sys.modules))
print(json.dumps([code, used.ru_utime + used.ru_stime, memory, heavy]), file=sys.stderr)
"""


def measure(folder: Path | None, times: int, cache: Path, *, anew: bool) -> tuple[Taken, list[str]]:
    """`--hardware-compatibility --format json` as a process started anew, and which heavy modules it imported.

    With `anew` what it concluded before is taken out of `cache` each time.
    """
    more = ["--evidence", str(folder.resolve())] if folder else []
    command = [sys.executable, "-c", _CHILD, "--hardware-compatibility", "--format", "json", *more]
    rows, heavy = [], []
    environment = {**os.environ, CACHE_VARIABLE: str(cache)}
    for _ in range(times):
        if anew:
            shutil.rmtree(cache / "conclusions", ignore_errors=True)
        before = time.perf_counter()
        done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, env=environment)
        wall = time.perf_counter() - before
        code, cpu, memory, heavy = json.loads(done.stderr.splitlines()[-1])
        if code != 0:
            raise RuntimeError(done.stderr)
        rows.append((wall, cpu, memory))
    wall, cpu, memory = (statistics.median(column) for column in zip(*rows, strict=True))
    return Taken(wall_s=wall, cpu_s=cpu, memory_mib=memory), heavy


def main() -> int:
    """Make the evidence, measure, compact it, measure again, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="Leave the evidence there.")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as kept:
        folder, cache = (asked.keep or Path(kept)).resolve() / "evidence", Path(kept) / "cache"
        _say("no evidence", *measure(None, asked.times, cache, anew=True))
        print(f"made {write_evidence(folder, asked.rows):,} check lines in {_size(folder)}", flush=True)
        _say("raw", *measure(folder, asked.times, cache, anew=True))
        _say("raw, again", *measure(folder, asked.times, cache, anew=False))
        before = time.perf_counter()
        # In a process of its own: a child's memory counts from that of its parent.
        own = [sys.executable, "hardware_compatibility_reporter.py", "--compact", "--evidence", str(folder)]
        subprocess.run(own, cwd=ROOT, check=True, capture_output=True)
        print(f"compacted in {time.perf_counter() - before:.0f} s to {_size(folder)}", flush=True)
        _say("compacted", *measure(folder, asked.times, cache, anew=True))
        _say("compacted, again", *measure(folder, asked.times, cache, anew=False))
    return 0


def _size(folder: Path) -> str:
    paths = list(folder.iterdir())
    return f"{len(paths)} file(s), {sum(path.stat().st_size for path in paths) / 1e6:,.0f} MB"


def _say(name: str, taken: Taken, heavy: list[str]) -> None:
    imported = f"; imported {', '.join(heavy)}" if heavy else ""
    times = f"{taken.wall_s:.2f} s by the clock, {taken.cpu_s:.2f} s of processor time"
    print(f"{name:<16} {times}, {taken.memory_mib:,.0f} MiB{imported}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
