"""`make gpu-session`: run the most informative checks on a machine with one GPU, in minutes and without a network.

Each stage is a command with a deadline, so that a failing one loses only its own result. All results are packed
after each stage.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import click
from tabulate import tabulate

from benchmarks import product
from hardware.evidence.record import Outcome
from hardware.evidence.store import read_folder
from hardware.files import CACHE_VARIABLE

from .stages import ROOT, Stage, stages

_SHOWN = 2000
_LARGEST = 16_000_000
"""Bytes of session.tar.gz, so that it can be sent by any way."""
_PACKED = ("evidence", "reports", "*.json", "*.jsonl", "*.txt", "*.md", "logs")
_FOLDER = Path("hwcompat-out/gpu-session")


class Session:
    """Runs stages below a folder until a deadline, and stores their results."""

    def __init__(self, backend: str, folder: Path, ends: float, reserve: float) -> None:
        self.backend = backend
        self.folder = folder
        self.ends = ends
        self.reserve = reserve
        self.found: list[dict[str, Any]] = []
        self._packing = threading.Lock()
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        self.environment = {**os.environ, CACHE_VARIABLE: os.environ.get(CACHE_VARIABLE, str(folder / "cache"))}
        self.environment |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": self._path()}  # models are tiny
        self.environment |= {"HF_HUB_OFFLINE": "1"}  # nothing is downloaded

    def forks(self) -> bool:
        """Whether a check passes on the device in a forked child, which some drivers don't support."""
        words = tuple(product.command(self.folder / "smoke", ["bert"], self.backend, "--run"))
        self.run(Stage(name="smoke", words=words, turn=0, prints="smoke.txt"))
        return any(line.outcome is Outcome.PASSED for line in read_folder(self.folder / "smoke" / "evidence").checks)

    def run(self, stage: Stage) -> dict[str, Any]:
        """Run one stage until it ends or the session does."""
        started = time.monotonic()
        out = self.folder / (stage.prints or f"logs/{stage.name}.txt")
        log = self.folder / "logs" / f"{stage.name}.log"
        with out.open("w") as printed, log.open("w") as errors:
            try:
                code: int | str = subprocess.run(
                    list(stage.words),
                    cwd=ROOT,
                    env={**self.environment, **stage.environment},
                    stdin=subprocess.DEVNULL,
                    stdout=printed,
                    stderr=errors,
                    timeout=max(1.0, self.ends - started - (self.reserve if stage.turn == 1 else 0)),
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                code = "out of time"
            except OSError as error:
                code = str(error.strerror)
        one = {"stage": stage.name, "exit_code": code, "seconds": round(time.monotonic() - started, 1)}
        click.echo(f"{stage.name}: {code}, {one['seconds']:.0f} s", err=True)
        with self._packing:
            self.found.append(one)
            self.pack()
        return one

    def pack(self) -> None:
        """Collect the evidence of all runs in one folder, and pack all results into one file."""
        evidence = self.folder / "evidence"
        evidence.mkdir(exist_ok=True)
        for place in (self.folder / "runs").glob("*/*.jsonl"):
            shutil.copy2(place, evidence / place.name)
        (self.folder / "session.json").write_text(json.dumps(self.found, indent=1), encoding="utf-8")
        with tarfile.open(self.folder / "session.tar.gz.part", "w:gz") as packed:
            for pattern in _PACKED:
                for place in sorted(self.folder.glob(pattern)):
                    packed.add(place, place.name)
        os.replace(self.folder / "session.tar.gz.part", self.folder / "session.tar.gz")

    def _path(self) -> str:
        return os.pathsep.join(one for one in (str(ROOT), os.environ.get("PYTHONPATH", "")) if one)


def _turns(session: Session, planned: Sequence[Stage], jobs: int) -> None:
    for turn in sorted({stage.turn for stage in planned}):
        now = sorted((stage for stage in planned if stage.turn == turn), key=lambda stage: -stage.cost)
        with ThreadPoolExecutor(jobs if turn < 2 else 1) as pool:
            for done in as_completed([pool.submit(session.run, stage) for stage in now]):
                done.result()


def _summary(session: Session) -> str:
    """Return the results as Markdown."""
    checks = read_folder(session.folder / "evidence").checks
    cells: dict[str, dict[str, set[str]]] = {}
    for line in checks:
        of_precision = cells.setdefault(str(line.precision), {})
        of_precision.setdefault(line.cell_id, set()).add(str(line.outcome))
    rows = [
        (precision, len(found), sum(one == {"passed"} for one in found.values()), _counts(found))
        for precision, found in sorted(cells.items())
    ]
    parts = [
        f"# A session on {session.backend}\n",
        tabulate(rows, headers=("precision", "cells", "every check passed", "others"), tablefmt="github"),
        "\n## Stages\n",
        tabulate(
            [list(one.values()) for one in session.found], headers=("stage", "exit code", "s"), tablefmt="github"
        ),
    ]
    return "\n".join(parts) + "\n"


def _counts(found: Mapping[str, set[str]]) -> str:
    return ", ".join(sorted(cell for cell, outcomes in found.items() if outcomes != {"passed"}))[:_SHOWN]


@click.command()
@click.option("--backend", default="cuda", show_default=True, help="The target; `cpu` rehearses it.")
@click.option("--folder", type=click.Path(path_type=Path), default=_FOLDER, show_default=True)
@click.option("--minutes", type=float, default=25.0, show_default=True)
@click.option("--jobs", type=int, default=0, help="Stages at a time; default: one for each core.")
@click.option("--shares", type=click.IntRange(min=1), default=1, show_default=True, help="Processes a precision.")
@click.option("--memory-gb", type=float, default=60.0, show_default=True, help="The largest peak that is aimed at.")
@click.option("--reserve", type=float, default=70.0, show_default=True, help="Seconds for the last stages.")
@click.option("--only", multiple=True, help="Stages whose names begin so.")
@click.option("--model", "models", multiple=True, help="Only these types, to rehearse every stage in minutes.")
def main(
    backend: str,
    folder: Path,
    minutes: float,
    jobs: int,
    shares: int,
    memory_gb: float,
    reserve: float,
    only: tuple[str, ...],
    models: tuple[str, ...],
) -> None:
    """Run the session; session.tar.gz in the folder has all results."""
    if folder.is_dir() and any(folder.iterdir()):
        raise click.UsageError(f"{folder} isn't empty: name another folder, or remove it")
    started = time.monotonic()
    session = Session(backend, folder.resolve(), started + minutes * 60, reserve)
    forks = session.forks()
    planned = list(stages(backend, session.folder, forks=forks, shares=shares, memory_gb=memory_gb, models=models))
    chosen = [stage for stage in planned if not only or stage.name.startswith(only)]
    _turns(session, chosen, jobs or os.cpu_count() or 1)
    (session.folder / "summary.md").write_text(_summary(session), encoding="utf-8")
    session.pack()
    click.echo((session.folder / "summary.md").read_text(encoding="utf-8"))
    size = (session.folder / "session.tar.gz").stat().st_size
    click.echo(f"session.tar.gz: {size / 1e6:.1f} MB in {(time.monotonic() - started) / 60:.1f} minutes")
    if size > _LARGEST:
        raise click.ClickException(f"session.tar.gz has more than {_LARGEST / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
