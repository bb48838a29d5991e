"""Starts the command line as a user would, in a process of its own, and reads what it left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from network_watch import QUIETING, Attempt, network_log, read_attempts, why_not_watched

from generators.compatibility.verdict import Level
from hardware.evidence.record import CheckLine, Outcome, RunLine
from hardware.evidence.store import Evidence, read_folder

REPOSITORY = Path(__file__).parents[2]
FEWER_IMPORTS = Path(__file__).with_name("fewer_imports")
LIMIT_S = 240


def _can_be_interrupted() -> None:
    """Tests that were started in the background hand on that an interruption is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A process that ended: its id and exit code, its streams, and the folder that holds all that it wrote."""

    pid: int
    code: int
    out: str
    err: str
    folder: Path

    @property
    def suites(self) -> Path:
        return self.folder / "suites"

    @property
    def reports(self) -> Path:
        return self.folder / "reports"

    @property
    def evidence(self) -> Evidence:
        return read_folder(self.folder / "evidence")

    @property
    def run_line(self) -> RunLine:
        (run,) = self.evidence.runs
        return run

    @property
    def network(self) -> list[Attempt]:
        """What it and all that it started tried to reach elsewhere. Skips the test where nothing watches."""
        if why := why_not_watched():
            pytest.skip(f"the network isn't watched: {why}")
        return read_attempts(network_log(), below=self.pid)

    def lines(self, cell: str) -> dict[str, CheckLine]:
        """The last line of each check of a cell."""
        return {line.check_name: line for line in self.evidence.checks if line.cell_id == cell}

    def outcomes(self, cell: str) -> dict[str, Outcome]:
        return {name: line.outcome for name, line in self.lines(cell).items()}

    def verdict(self, cell: str) -> str:
        """The level that is printed in the row of a cell."""
        rows = [line.split() for line in self.out.splitlines()]
        levels = {level.value for level in Level}
        found = [row[2] for row in rows if row[:1] == [cell] and row[2:3] and row[2] in levels]
        return (found or ["none was printed"])[0]

    @property
    def error(self) -> str:
        """The one line that says what was wrong; fails the test where there is another number of them."""
        (line,) = (line for line in self.err.splitlines() if line.startswith("error: "))
        assert "Traceback" not in self.err
        return line


@dataclass(frozen=True, kw_only=True)
class CommandLine:
    """How processes are started: with one cache for all, one thread each, and no variable that quiets libraries."""

    cache: Path

    def environment(self, folder: Path, given: Mapping[str, str] | None = None) -> dict[str, str]:
        dropped = [name for name in os.environ if name.startswith("HWCOMPAT_") or name in QUIETING]
        kept = {name: value for name, value in os.environ.items() if name not in dropped}
        return kept | {
            "HWCOMPAT_CACHE": str(self.cache),
            "PYTHONPATH": os.pathsep.join([str(FEWER_IMPORTS), str(REPOSITORY)]),
            "OMP_NUM_THREADS": "1",
            **(given or {}),
        }

    def start(
        self, folder: Path, *arguments: str | Path, cwd: Path = REPOSITORY, **how: Any
    ) -> subprocess.Popen[str]:
        """Start `run_test_generation.py` with all its output below `folder`, unless an argument says otherwise.

        `how` goes to `start_program`.
        """
        words = [str(argument) for argument in arguments]
        for option, name in (("--output-dir", "suites"), ("--evidence", "evidence"), ("--report-dir", "reports")):
            if option not in words:
                words = [option, str(folder / name), *words]
        script = "run_test_generation.py" if cwd == REPOSITORY else REPOSITORY / "run_test_generation.py"
        return self.start_python(folder, script, *words, cwd=cwd, **how)

    def start_python(self, folder: Path, *words: str | Path, **how: Any) -> subprocess.Popen[str]:
        return self.start_program(folder, sys.executable, *words, **how)

    def start_program(
        self,
        folder: Path,
        *words: str | Path,
        env: Mapping[str, str] | None = None,
        cwd: Path = REPOSITORY,
    ) -> subprocess.Popen[str]:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
            return subprocess.Popen(
                [*map(str, words)],
                cwd=cwd,
                env=self.environment(folder, env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                text=True,
                preexec_fn=_can_be_interrupted,
            )

    def wait(self, process: subprocess.Popen[str], folder: Path) -> Ran:
        try:
            code = process.wait(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        out, err = ((folder / name).read_text(encoding="utf-8") for name in ("out", "err"))
        return Ran(pid=process.pid, code=code, out=out, err=err, folder=folder)

    def run(self, folder: Path, *arguments: str | Path, **how: Any) -> Ran:
        return self.wait(self.start(folder, *arguments, **how), folder)

    def python(self, folder: Path, *words: str | Path, **how: Any) -> Ran:
        """Run a script, or a module after `-m`, and wait for it."""
        return self.wait(self.start_python(folder, *words, **how), folder)

    def pytest(self, folder: Path, *arguments: str | Path, env: Mapping[str, str] | None = None) -> Ran:
        """Plain pytest, as somebody would call it who knows nothing of our command line."""
        where = {"HWCOMPAT_EVIDENCE": str(folder / "evidence"), **(env or {})}
        words = ("-m", "pytest", "-p", "no:cacheprovider", *arguments)
        return self.python(folder, *words, env=where)


def together(jobs: Mapping[str, Callable[[], Ran]]) -> dict[str, Ran]:
    """Several processes by name, two at a time."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        started = {name: pool.submit(job) for name, job in jobs.items()}
        return {name: future.result() for name, future in started.items()}


def installed_example(name: str, folder: Path) -> Path:
    """A package of `examples`, installed below `folder` as pip installs it; return where."""
    source, installed = folder / "source" / name, folder / "installed"
    shutil.copytree(REPOSITORY / "examples" / name, source)
    words = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--target", str(installed), str(source)]
    subprocess.run([sys.executable, "-m", "pip", "install", *words], check=True, capture_output=True)
    return installed
