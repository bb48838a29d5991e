"""A folder to run a page's commands in: it looks like the repository, and keeps what they write to itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMIT_S = 600.0

_ENTRIES = (
    "hardware",
    "generators",
    "reports",
    "templates",
    "examples",
    "test",
    "benchmarks",
    "run_test_generation.py",
    "hardware_compatibility_reporter.py",
    "requirements.txt",
    "Makefile",
)


class Workspace:
    """Commands of one page run here, one after the other, in one folder and one environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in _ENTRIES:
            (folder / name).symlink_to(ROOT / name)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HWCOMPAT_", "PYTEST_"))}
        self.environment = {
            **kept,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": "100",
            "NO_COLOR": "1",
            "HWCOMPAT_CACHE": os.environ.get("HWCOMPAT_CACHE") or str(folder / ".cache"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def run(self, command: str) -> tuple[int, tuple[str, ...]]:
        """The exit code of a shell command, and the lines that it printed to standard output and to standard error,
        in that order; progress and notes are no part of a page."""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        errors = [line for line in done.stderr.splitlines() if line.startswith(("error: ", "Run it: "))]
        lines = [*done.stdout.strip("\n").splitlines(), *errors]
        return done.returncode, tuple(self._plain(line).rstrip() for line in lines)

    def run_python(self, script: str) -> tuple[int, tuple[str, ...]]:
        """The same of a script of Python; of one that fails its traceback's end."""
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        told = done.stderr.splitlines()[-1:] if done.returncode else []
        return done.returncode, (*done.stdout.splitlines(), *told)

    def _plain(self, line: str) -> str:
        """A line without this machine's folders."""
        for folder, word in ((self.folder, "."), (ROOT, "."), (Path.home(), "~")):
            line = line.replace(f"{folder}{os.sep}", "" if word == "." else f"{word}/").replace(str(folder), word)
        return line
