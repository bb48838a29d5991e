"""Suites written by hand that sleep, crash or break, in place of generated ones."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from command_line import LIMIT_S

Seen = TypeVar("Seen")

HEAD = """
import os
import time
from pathlib import Path

CELL = {cell!r}


def test_first():
    pass


"""
SLEEPS = """def test_second():
    Path({ready!r}).write_text(str(os.getpid()))
    time.sleep(600)


def test_third():
    pass
"""


def put_suite(folder: Path, cell: str, text: str, **named: str) -> None:
    """Write the suite of a cell below `folder`; `text` follows a first test that passes."""
    slug = cell.replace("/", "_").replace("-", "_")
    (folder / "suites").mkdir(parents=True, exist_ok=True)
    (folder / "suites" / f"test_{slug}.py").write_text((HEAD + text).format(cell=cell, **named), encoding="utf-8")


def put_sleeping_suite(folder: Path, cell: str) -> Path:
    """Write a suite whose second test sleeps; return the file that then holds its process id."""
    ready = folder / f"ready-{cell.replace('/', '-')}"
    put_suite(folder, cell, SLEEPS, ready=str(ready))
    return ready


def wait_until(
    done: Callable[[], Seen], process: subprocess.Popen[str] | None = None, wrong: str = "that never came"
) -> Seen:
    """Wait for something and return it; fail if `process` ends before or it takes too long."""
    until = time.monotonic() + LIMIT_S
    while not (seen := done()):
        assert process is None or process.poll() is None, f"it ended before: {wrong}"
        assert time.monotonic() < until, wrong
        time.sleep(0.05)
    return seen


def process_id(ready: Path, process: subprocess.Popen[str]) -> int:
    """Wait until a suite sleeps; return the id of its process."""
    wait_until(lambda: ready.exists() and ready.read_text(), process)
    return int(ready.read_text())
