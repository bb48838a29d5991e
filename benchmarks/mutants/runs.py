"""Runs suites with and without a break, each in a child forked from a warm parent, two at a time.

The parent imports torch and transformers and never computes a tensor (`hardware.testing.runner` says why).
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from hardware.evidence.record import CheckLine, Outcome
from hardware.evidence.store import read_file
from hardware.testing.child import ChildTask, run_child
from hardware.testing.suite_file import SuiteFile

from .plugin import MUTANT_VARIABLE, REPORT_VARIABLE
from .probe import SMALLEST_CHANGE

CHILDREN = 2
DEADLINE_S = 60.0

_CAUGHT = frozenset({"numerical_mismatch", "non_finite", "silent_offload"})
"""Error types of a check that looked and disagreed. Anything else that fails says nothing about the break."""

_LOG_TAIL = 2_000


class Status(StrEnum):
    """How a run ended. Only `killed` (a mutant) and `clean` (no mutant, every check passed) are good."""

    KILLED = "killed"
    SURVIVED = "survived"
    EQUIVALENT = "equivalent"
    CLEAN = "clean"
    RAISED = "raised"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run of one suite: `mutant` is `<operator>@<seed>` or empty; `counts` is false for a control or clean run.

    `threads` is how many torch computes with: another number is another order of summation.
    """

    suite: SuiteFile
    mutant: str = ""
    counts: bool = True
    threads: int = 1
    number: int = 0

    @property
    def model(self) -> str:
        """The model type."""
        return self.suite.cell.model


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came of a job: the check that caught it and the error it measured, where that is known.

    `change` is how far the break moved the outputs, relative to their scale; None where nothing was broken.
    """

    job: Job
    status: Status
    caught_by: str = ""
    error: float | None = None
    change: float | None = None
    site: str = ""
    side: str = ""
    describe: str = ""
    message: str = ""
    duration_s: float = 0.0

    @property
    def good(self) -> bool:
        """Whether this is what a good suite and a good harness give."""
        return self.status in (Status.KILLED, Status.CLEAN)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; an infinite number is the text `inf`."""
        operator, _, seed = self.job.mutant.partition("@")
        return {
            "model": self.job.model,
            "cell_id": self.job.suite.cell.id,
            "operator": operator or None,
            "seed": int(seed) if seed else None,
            "is_mutant": self.job.counts,
            "threads": self.job.threads,
            "status": str(self.status),
            "caught_by": self.caught_by or None,
            "error": _plain(self.error),
            "change": _plain(self.change),
            "site": self.site or None,
            "side": self.side or None,
            "describe": self.describe or None,
            "message": self.message or None,
            "duration_s": round(self.duration_s, 3),
        }


def _plain(value: float | None) -> float | str | None:
    return str(value) if value is not None and value in (float("inf"), float("-inf")) else value


@dataclass(kw_only=True)
class _Child:
    job: Job
    pid: int
    folder: Path
    started: float = field(default_factory=time.monotonic)


def run_jobs(
    jobs: Sequence[Job], folder: Path, *, deadline_s: float = DEADLINE_S, children: int = CHILDREN
) -> Iterator[Result]:
    """Run all jobs and give each result as it comes. Everything that is written goes below `folder`.

    A child that runs longer than `deadline_s` is ended. Whoever stops listening ends those that still run.
    """
    waiting = list(reversed(jobs))
    running: list[_Child] = []
    try:
        while waiting or running:
            while waiting and len(running) < children:
                running.append(_start(waiting.pop(), folder))
            for child in list(running):
                ended, status = os.waitpid(child.pid, os.WNOHANG)
                if ended:
                    running.remove(child)
                    yield _finish(child, os.waitstatus_to_exitcode(status))
                elif time.monotonic() - child.started > deadline_s:
                    running.remove(child)
                    _end(child.pid)
                    yield Result(job=child.job, status=Status.ERROR, message=f"no end after {deadline_s:.0f} s")
            time.sleep(0.005)
    finally:
        for child in running:
            _end(child.pid)


def _end(pid: int) -> None:
    """Kill a child with all that it started, and take leave of it."""
    for send in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            send(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _start(job: Job, folder: Path) -> _Child:
    own = folder / f"{job.model}-{job.mutant or 'clean'}-{job.number}"
    own.mkdir(parents=True)
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return _Child(job=job, pid=pid, folder=own)
    code = 3
    try:
        os.setsid()
        code = _run(job, own, folder / "cache", parent)
    finally:
        os._exit(code)


def _run(job: Job, own: Path, cache: Path, parent: int) -> int:
    """In the child: pytest on the suite with evidence, cache and temporary files of its own."""
    import torch

    torch.set_num_threads(job.threads)
    os.environ["HWCOMPAT_CACHE"] = str(cache)
    os.environ[MUTANT_VARIABLE] = job.mutant
    os.environ[REPORT_VARIABLE] = str(own / "mutant.json")
    task = ChildTask(
        suite=str(job.suite.path),
        evidence=str(own / "evidence"),
        run_id="mutants",
        log=str(own / "log"),
        pipe=os.open(os.devnull, os.O_WRONLY),
        memory_limit=0,
        parent=parent,
        pytest_arguments=("-x", "-p", "benchmarks.mutants.plugin", f"--basetemp={own / 'tmp'}"),
    )
    return run_child(task)


def _finish(child: _Child, code: int) -> Result:
    path = child.folder / "mutant.json"
    made = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    lines = [
        line
        for file in sorted((child.folder / "evidence").glob("*.jsonl"))
        for line in read_file(file)[0]
        if isinstance(line, CheckLine)
    ]
    result = conclude(child.job, code, lines, made, _tail(child.folder / "log"))
    return replace(result, duration_s=time.monotonic() - child.started)


def conclude(job: Job, code: int, lines: Sequence[CheckLine], made: Mapping[str, Any], log: str) -> Result:
    """What came of a job whose child ended with `code`, from its checks and from what it says it broke (`made`).

    A mutant is killed only if it changed something and a check looked and disagreed.
    """
    odd = [line for line in lines if line.outcome is not Outcome.PASSED]
    odd.sort(key=lambda line: line.outcome is not Outcome.FAILED)
    first = odd[0] if odd else None
    complete = {line.check_name for line in lines} == set(job.suite.checks)
    change = float(made["change"]) if made else None
    message = ""
    if code not in (0, 1) or not lines:
        status, message = Status.ERROR, f"ended with {code}: {log}"
    elif not job.counts:
        status = Status.CLEAN if code == 0 and first is None and complete else Status.RAISED
    elif change is None:
        status, message = Status.ERROR, "no model was broken"
    elif not change > SMALLEST_CHANGE:
        status, message = Status.EQUIVALENT, f"the outputs changed by {change:.1e} of their scale"
    elif code == 0:
        status, message = Status.SURVIVED, "every check passed" if complete else "not every check ran"
    elif first is not None and first.outcome is Outcome.FAILED and first.error_type in _CAUGHT:
        status = Status.KILLED
    else:
        status = Status.ERROR
    if first is not None and status not in (Status.KILLED, Status.CLEAN):
        message = f"{message}; {first.check_name} {first.outcome}: {_first_line(first.error_message)}"
    return Result(
        job=job,
        status=status,
        caught_by=first.check_name if first is not None else "",
        error=None if first is None or first.max_rel_error is None else float(first.max_rel_error),
        change=change,
        site=made.get("site", ""),
        side=made.get("side", ""),
        describe=made.get("describe", ""),
        message=message.removeprefix("; "),
    )


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def _tail(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")[-_LOG_TAIL:]
    except OSError as error:
        return f"no log: {error}"
