"""Generating a suite whose recipe is known, beside the least that a Python program with a template can cost.

Prints the whole-process time of `run_test_generation.py --model bert --device cpu` (cold) and, in the same run, of a
Python process that imports Jinja2 and click and renders one line; median of several, and the ratio.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

_ROOT = Path(__file__).parents[1]
_FLOOR = "import click, jinja2; jinja2.Environment().from_string('{{ x }}').render(x=1)"


def _seconds(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, cwd=_ROOT, check=True, capture_output=True)
    return time.perf_counter() - started


@click.command()
@click.option("--runs", default=7, show_default=True, type=click.IntRange(min=1))
def main(runs: int) -> None:
    """Print medians and the ratio."""
    ours: list[float] = []
    floor: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "run_test_generation.py", "--model", "bert", "--device", "cpu"]
        command += ["--output-dir", folder]
        for _ in range(runs + 1):
            floor.append(_seconds([sys.executable, "-c", _FLOOR]))
            ours.append(_seconds([*command, "--force"]))
    ours, floor = ours[1:], floor[1:]
    first, second = statistics.median(ours), statistics.median(floor)
    click.echo(f"generate bert for cpu   median {first * 1e3:6.0f} ms of {runs} runs")
    click.echo(f"click and Jinja2 alone  median {second * 1e3:6.0f} ms, ratio {first / second:.2f}")
    imported = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys\nfrom generators.models.profile import profile_of\n"
            "from generators.suites.render import render\n"
            "from hardware.cell import Cell\nr = profile_of('bert').recipe\n"
            "render(r, Cell.parse('bert/fill-mask/cpu/float32'), [])\nprint('torch' in sys.modules)",
        ],
        cwd=_ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    click.echo(f"torch imported          {imported}")


if __name__ == "__main__":
    main()
