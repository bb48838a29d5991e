"""Generating suites whose recipes are known, beside the least that a Python program with a template can cost.

Prints the whole-process time of `run_test_generation.py` for one type and for `--priority high`, both written anew
and with nothing changed, and in the same run of a Python process that imports Jinja2 and click and renders one line.
Medians of several, and the ratio.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

_ROOT = Path(__file__).parents[1]
_FLOOR = "import click, jinja2; jinja2.Environment().from_string('{{ x }}').render(x=1)"
_NO_TORCH = """
import sys
from generators.profile import profile_of
from generators.suites.render import render
from hardware.cell import Cell

render(profile_of("bert").recipe, Cell.parse("bert/fill-mask/cpu/float32"), [])
print("torch" in sys.modules)
"""


def _seconds(command: list[str], cache: Path) -> float:
    started = time.perf_counter()
    subprocess.run(
        command, cwd=_ROOT, check=True, capture_output=True, env={**os.environ, "HWCOMPAT_CACHE": str(cache)}
    )
    return time.perf_counter() - started


@click.command()
@click.option("--runs", default=7, show_default=True, type=click.IntRange(min=1))
def main(runs: int) -> None:
    """Print medians and ratios."""
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        suites, cache = Path(folder) / "suites", Path(folder) / "cache"
        product = [sys.executable, "run_test_generation.py", "--device", "cpu", "--output-dir", str(suites)]
        for _ in range(runs + 1):
            times.setdefault("click and Jinja2 alone", []).append(_seconds([sys.executable, "-c", _FLOOR], cache))
            for name, chosen in (("bert", ["--model", "bert"]), ("--priority high", ["--priority", "high"])):
                shutil.rmtree(suites, ignore_errors=True)
                times.setdefault(f"{name}, anew", []).append(_seconds([*product, *chosen], cache))
                times.setdefault(f"{name}, unchanged", []).append(_seconds([*product, *chosen], cache))
        count = len(list(suites.glob("test_*.py")))
    floor = statistics.median(times["click and Jinja2 alone"][1:])
    for name, taken in times.items():
        middle = statistics.median(taken[1:])
        click.echo(f"{name:<28} median {middle * 1e3:6.0f} ms of {runs} runs, ratio {middle / floor:.2f}")
    click.echo(f"suites of --priority high    {count}")
    done = subprocess.run([sys.executable, "-c", _NO_TORCH], cwd=_ROOT, check=True, capture_output=True, text=True)
    click.echo(f"torch imported               {done.stdout.strip()}")


if __name__ == "__main__":
    main()
