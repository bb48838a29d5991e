"""The process that runs suites, forked or newly started: its limits, its logs, and pytest with the recorder.

It writes each suite and check that it starts to a pipe, so that its parent knows where it was when it ends.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from ..process import die_with_parent, limit_memory
from ..step_times import listeners
from .check_lines import is_full_disk
from .pytest_environment import shield_pytest

_SUITE_INI = Path(__file__).with_name("suite.ini")
_LONGEST_REASON = 1000  # so that a message is written to the pipe at once

PYTEST_INTERNAL = 3
"""pytest's exit code for an internal error."""


class Word(StrEnum):
    """The first word of a message on the pipe: the number of a suite that starts, a check that starts, a step of
    loading a model (empty when it is over), pytest's exit code, or why nothing can be written any more."""

    SUITE = "suite"
    CHECK = "check"
    STEP = "step"
    OVER = "over"
    FULL = "full"


@dataclass(frozen=True, kw_only=True)
class ChildTask:
    """The task of a child: the `suites` to run in order, each with a log of its own (`log` and its number), and the
    `hashes` that they were planned with.

    `memory_limit` in bytes and `threads` of one runtime, 0 for none; `pipe` is the descriptor for messages, `parent`
    the process that it must not outlive. `temporary` is the temporary directory of the child and its processes, which
    the parent removes; an empty text keeps the system's. The child ends after a suite that failed if
    `ends_on_failure`.
    """

    suites: Sequence[str]
    hashes: Sequence[str]
    evidence: str
    run_id: str
    log: str
    pipe: int
    memory_limit: int
    parent: int
    pytest_arguments: Sequence[str]
    threads: int = 0
    temporary: str = ""
    ends_on_failure: bool = False


def run_child(task: ChildTask) -> int:
    """Run the suites in this process and return pytest's last exit code. The process can't be used afterwards."""
    try:
        return _run_child(task)
    except Exception as error:
        if is_full_disk(error):
            _send_full_disk(task.pipe, error)
        raise


def _run_child(task: ChildTask) -> int:
    die_with_parent(task.parent)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})  # blocked while it was started
    _log_to(task, 0)
    sys.stdout = os.fdopen(1, "w", buffering=1, errors="replace", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="replace", closefd=False)
    faulthandler.enable(file=sys.stderr)
    faulthandler.register(signal.SIGUSR1, file=sys.stderr, all_threads=True)
    limit_memory(task.memory_limit)
    shield_pytest(os.environ)
    if task.temporary:
        os.environ["TMPDIR"] = tempfile.tempdir = task.temporary  # a forked child remembers its parent's
    _limit_threads(task.threads)
    code = 0
    for number, suite in enumerate(task.suites):
        _log_to(task, number)
        _send(task.pipe, Word.SUITE, number)
        code = _run_suite(task, Path(suite), task.hashes[number])
        sys.stdout.flush()
        sys.stderr.flush()
        if code == PYTEST_INTERNAL:
            return code
        _send(task.pipe, Word.OVER, code)
        if code and task.ends_on_failure:
            return code
        gc.collect()  # free the model of the last suite
    return code


def _run_suite(task: ChildTask, suite: Path, planned_hash: str) -> int:
    import pytest

    from ..evidence.writer import EvidenceWriter
    from .pytest_plugin import EvidenceRecorder

    listeners[:] = [lambda step: _send(task.pipe, Word.STEP, step)]
    writer = EvidenceWriter(Path(task.evidence), task.run_id)
    recorder = EvidenceRecorder(
        writer,
        on_start=lambda check: _send(task.pipe, Word.CHECK, check),
        on_full_disk=lambda error: _send_full_disk(task.pipe, error),
        planned_hash=planned_hash,
    )
    settings = [
        "-c",
        str(_SUITE_INI),
        f"--rootdir={suite.parent}",
        "--noconftest",  # no other file decides what its checks mean
        "--continue-on-collection-errors",  # a suite that can't be imported fails with its reason
        "--capture=sys",  # native code's last words belong in the log
    ]
    code = pytest.main([str(suite), *settings, *task.pytest_arguments], plugins=[recorder])
    writer.close()
    return int(code)


def _log_to(task: ChildTask, number: int) -> None:
    """Redirect standard output and error to the log of a suite."""
    log = os.open(f"{task.log}{number}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


def _limit_threads(threads: int) -> None:
    """Limit the threads of runtimes that are loaded later, and of torch if it is loaded."""
    if not threads:
        return
    os.environ["OMP_NUM_THREADS"] = str(threads)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(threads)


def _send(pipe: int, word: Word, text: object) -> None:
    with contextlib.suppress(OSError):  # the parent has ended, and this process will too
        os.write(pipe, f"{word} {text}\n".encode())


def _send_full_disk(pipe: int, error: BaseException) -> None:
    _send(pipe, Word.FULL, " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST_REASON])


def command_for(task: ChildTask) -> list[str]:
    """Return the command that runs a task in a new interpreter, for targets that don't survive a fork."""
    return [sys.executable, "-m", "hwcompat.hardware.testing.suite_child", json.dumps(asdict(task))]


if __name__ == "__main__":
    os._exit(run_child(ChildTask(**json.loads(sys.argv[1]))))
