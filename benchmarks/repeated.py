"""Runs the types of `--priority high` several times and holds the runs against each other: are the answers the same?

Prints the wall time of each run, its largest error, and every cell whose verdict or outcomes differ; the exit code is
1 where any does.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import click

from hardware.evidence.store import read_folder

_ROOT = Path(__file__).parents[1]

Answers = dict[str, tuple[str, tuple[str, ...]]]
"""By cell: its verdict, and the outcome of each of its checks."""


def _answers(folder: Path) -> tuple[Answers, float]:
    """What a run found, and the largest error it measured."""
    (report,) = (folder / "reports").glob("*.json")
    levels = {one["cell"]: one["level"] for one in json.loads(report.read_text(encoding="utf-8"))["verdicts"]}
    checks = read_folder(folder / "evidence").checks
    outcomes: dict[str, list[str]] = {}
    for line in sorted(checks, key=lambda line: line.check_name):
        outcomes.setdefault(line.cell_id, []).append(f"{line.check_name} {line.outcome}")
    errors = [line.max_rel_error for line in checks if line.max_rel_error is not None]
    return {cell: (levels[cell], tuple(found)) for cell, found in outcomes.items()}, max(errors, default=0.0)


@click.command()
@click.option("--runs", default=10, show_default=True, type=click.IntRange(min=2))
@click.option("--device", default="cpu", show_default=True)
@click.option("--jobs", default=2, show_default=True, type=click.IntRange(min=1))
def main(runs: int, device: str, jobs: int) -> None:
    """Run, compare, print."""
    found: list[Answers] = []
    times = []
    for number in range(1, runs + 1):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            command = [sys.executable, "run_test_generation.py", "--priority", "high", "--device", device, "--run"]
            command += ["--jobs", str(jobs), "--output-dir", str(folder / "suites")]
            command += ["--evidence", str(folder / "evidence"), "--report-dir", str(folder / "reports")]
            started = time.perf_counter()
            ended = subprocess.run(command, cwd=_ROOT, check=False, capture_output=True, text=True)
            times.append(time.perf_counter() - started)
            if ended.returncode not in (0, 1):
                raise click.ClickException(f"run {number} ended with {ended.returncode}: {ended.stderr[-500:]}")
            answers, error = _answers(folder)
        found.append(answers)
        levels = Counter(level for level, _ in answers.values())
        said = ", ".join(f"{count} {level}" for level, count in levels.most_common())
        click.echo(f"run {number:2}: {times[-1]:6.1f} s, {len(answers)} cells ({said}), largest error {error:.1e}")
    differing = [cell for cell in found[0] if any(other.get(cell) != found[0][cell] for other in found[1:])]
    for cell in differing:
        click.echo(f"differs: {cell}: {sorted({str(answers.get(cell)) for answers in found})}")
    click.echo(f"median {statistics.median(times):.1f} s; {len(differing)} cells differ between {runs} runs")
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()
