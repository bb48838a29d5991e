"""Run sound model types again and again on cpu, some beside load, and count the checks that fail: false alarms.

The types are drawn by seed from those that work in the kept evidence of cpu.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import product
from benchmarks.evidence_rows import rows_of
from benchmarks.evidence_table import gathered
from hardware.evidence.record import Outcome
from hardware.evidence.shipped_evidence import FOLDER
from hardware.evidence.store import read_folder
from hardware.target import Target

_SEED = 35
_LONGEST_S = 3600.0


def _sound() -> list[str]:
    """Return the types that work in the kept evidence, in a seeded order."""
    kept = rows_of(gathered([FOLDER / "cpu.jsonl.gz"]).checks, Target(name="cpu"))
    names = sorted({row.cell.model for row in kept if row.works})
    random.Random(_SEED).shuffle(names)
    return names


def _run(names: Sequence[str]) -> tuple[int, list[str]]:
    """Return the number of checks of one run, and those that didn't pass."""
    with tempfile.TemporaryDirectory(prefix="hwcompat-") as name:
        folder = Path(name)
        product.run(product.command(folder, names, "cpu", "--run"), product.environment(folder / "cache"), _LONGEST_S)
        lines = read_folder(folder / "evidence").checks
    alarms = [one for one in lines if one.outcome is not Outcome.PASSED]
    return len(lines), [f"{one.cell_id} {one.check_name}: {one.error_message[:150]}" for one in alarms]


@contextlib.contextmanager
def _load(processes: int) -> Iterator[None]:
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for one in busy:
            one.kill()


@click.command()
@click.option("--types", default=48, show_default=True, type=click.IntRange(min=1))
@click.option("--runs", default=20, show_default=True, type=click.IntRange(min=1))
@click.option("--loaded-types", default=40, show_default=True, type=click.IntRange(min=1), help="Other types.")
@click.option("--loaded-runs", default=3, show_default=True, type=click.IntRange(min=0), help="Runs beside load.")
def main(types: int, runs: int, loaded_types: int, loaded_runs: int) -> None:
    """Print each alarm and the counts; exit with 1 if there is one."""
    names = _sound()
    plans = [(names[:types], 0)] * runs
    plans += [(names[types : types + loaded_types], (os.cpu_count() or 1) + 1)] * loaded_runs
    checks, alarms = 0, 0
    for chosen, processes in plans:
        with _load(processes):
            count, found = _run(chosen)
        checks, alarms = checks + count, alarms + len(found)
        for one in found:
            click.echo(one)
    click.echo(f"{alarms} of {checks:,} checks of sound models failed, in {len(plans)} runs")
    raise SystemExit(1 if alarms or not checks else 0)


if __name__ == "__main__":
    main()
