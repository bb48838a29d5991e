"""Run tests on one fault, and report whether one failed because of it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import pytest

from .copies import Copy
from .covering import QUICK, Covering
from .drawing import CodeMutant

_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?\.py(?:::.*?)?)(?: - (.*))?$", re.MULTILINE)
_MISSING = re.compile(r"^ERROR: (?:file or directory )?not found: ", re.MULTILINE)
_LEAST_S, _ALL_S = 240.0, 1800.0
_MOST_NEAR, _MOST_FILES = 1500, 12
"""The numbers of fastest tests, and of fastest test files with child processes, that run for a line."""


class OtherTests(RuntimeError):
    """Raised if a named test doesn't exist."""


class Status(StrEnum):
    """The result of a mutant or a clean run."""

    KILLED = "killed"
    HUNG = "hung"
    SURVIVED = "survived"
    GONE = "gone"
    CLEAN = "clean"
    FALSE_ALARM = "false alarm"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The result of the tests: `by` is the first that failed, `asked` the number of tests, or the folders."""

    mutant: str
    status: Status
    by: str = ""
    message: str = ""
    asked: str = ""
    seconds: float = 0.0


def ask(
    copy: Copy,
    mutant: CodeMutant,
    covering: Covering,
    unseen: Sequence[str],
    *,
    clean: bool = False,
    near: bool = False,
) -> Answer:
    """Make the fault in a copy and run the tests of `_steps`, with `near` only the single tests among them. A `clean`
    run makes no fault, and runs only the first step."""
    started = time.monotonic()
    line = mutant.line((copy.folder / mutant.file).read_text(encoding="utf-8"))
    steps = _steps(mutant, line, covering, unseen)
    if near:
        steps = [step for step in steps if "::" in step[0][0]]
    asked, ended = "", _Ended()
    if clean:
        ended = _run(copy, *steps[0])
        status = Status.FALSE_ALARM if ended.by or ended.hung else Status.CLEAN
        return _answer(mutant, status, ended, _words(steps[0][0]), started)
    with copy.with_fault(mutant) as number:
        if number is None:
            return Answer(mutant=mutant.name, status=Status.GONE)
        for tests, longest in steps:
            ended = _detector(copy, tests, longest)
            asked = ", ".join(filter(None, [asked, _words(tests)]))
            if ended.by or ended.hung:
                return _answer(mutant, Status.HUNG if ended.hung else Status.KILLED, ended, asked, started)
    return _answer(mutant, Status.SURVIVED, ended, asked, started)


def ask_again(copy: Copy, mutant: CodeMutant, test: str) -> Answer:
    """Make the fault in a copy and run the test that detected it before; `gone` if site or test don't exist."""
    started = time.monotonic()
    with copy.with_fault(mutant) as number:
        if number is None:
            return Answer(mutant=mutant.name, status=Status.GONE, message="its site was rewritten")
        try:
            ended = _run(copy, [test], _LEAST_S)
        except OtherTests:
            return Answer(mutant=mutant.name, status=Status.GONE, message=f"no such test: {test}")
    if ended.hung:
        return _answer(mutant, Status.HUNG, ended, test, started)
    return _answer(mutant, Status.KILLED if ended.by else Status.SURVIVED, ended, test, started)


def _steps(
    mutant: CodeMutant, line: int | None, covering: Covering, unseen: Sequence[str]
) -> list[tuple[Sequence[str], float]]:
    """Yield the steps, each with a time limit in s: tests that cover the line (else any line of the file, or Python
    next to a table), then test files whose children do or whose other interpreters may. All fast tests come last if
    too many cover the line, or if it only ran at import or in a table."""
    by_line = covering.of(mutant.file, line) if line else []
    near = by_line or covering.of(mutant.file) or covering.beside(mutant.file)
    whole = [*covering.in_children(mutant.file, line)[:_MOST_FILES], *unseen] if line else [*unseen]
    steps = [(near[:_MOST_NEAR], _LEAST_S)] + [([one], _LEAST_S) for one in dict.fromkeys(whole)]
    if len(by_line) > _MOST_NEAR or (not by_line and line and covering.ran(mutant.file, line)):
        steps.append(([*QUICK], _ALL_S))
    return [(tests, longest + 4 * sum(map(covering.seconds, tests))) for tests, longest in steps if tests]


def _detector(copy: Copy, tests: Sequence[str], longest: float) -> _Ended:
    """Return the first test that fails, and fails again alone. A test that fails by chance doesn't count, and the
    others run without it."""
    chance: list[str] = []
    while True:
        ended = _run(copy, tests, longest, without=chance)
        if not ended.by or "::" not in ended.by or _run(copy, [ended.by], longest).by:
            return ended
        chance.append(ended.by)


def _answer(mutant: CodeMutant, status: Status, ended: _Ended, asked: str, started: float) -> Answer:
    return Answer(
        mutant=mutant.name,
        status=status,
        by=ended.by,
        message=ended.message,
        asked=asked,
        seconds=round(time.monotonic() - started, 1),
    )


def _words(tests: Sequence[str]) -> str:
    return f"{len(tests)} tests" if "::" in tests[0] else " ".join(tests)


@dataclass(frozen=True, kw_only=True)
class _Ended:
    by: str = ""
    message: str = ""
    hung: bool = False


def _run(copy: Copy, tests: Sequence[str], longest: float, without: Sequence[str] = ()) -> _Ended:
    many = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"] if "::" not in tests[0] else []
    listed = copy.folder / "asked.txt"
    listed.write_text("\n".join(tests) + "\n", encoding="utf-8")
    left = [f"--deselect={test}" for test in without]
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=line", *many, *left]
    words.append(f"--rootdir={copy.folder}")  # so that tests are named from there, as in what was measured
    words.append(f"@{listed}")
    process = subprocess.Popen(
        words,
        cwd=copy.folder,
        env=copy.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=longest)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return _Ended(hung=True, message=f"the tests took longer than {longest:.0f} s")
    if process.returncode == 0:
        return _Ended()
    if process.returncode == pytest.ExitCode.NO_TESTS_COLLECTED or _MISSING.search(said):
        raise OtherTests(f"what covers which line was measured of other tests: {said[-300:]}")
    found = _FAILED.search(said)
    if found is None:  # pytest itself ended otherwise: a conftest that can't be read, a signal
        return _Ended(by="pytest itself", message=said[-300:])
    return _Ended(by=found[1], message=(found[2] or "")[:200])
