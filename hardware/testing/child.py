"""The process that runs one suite: its limits, its log, and pytest with the recorder. Forked or freshly started."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import resource
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

_SUITE_INI = Path(__file__).with_name("suite.ini")
_PR_SET_PDEATHSIG = 1
_REWRITERS = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")
"""Variables by which a shell that once ran other tests would deselect or rewrite ours."""

PYTEST_IS_OVER = ""
"""What a child says in place of a check's name when pytest has come to its end."""


@dataclass(frozen=True, kw_only=True)
class ChildTask:
    """What a child is told. `memory_limit` in bytes, 0 for none; `pipe` is where it names each check it starts,
    `parent` the process that it must not outlive."""

    suite: str
    evidence: str
    run_id: str
    log: str
    pipe: int
    memory_limit: int
    parent: int
    pytest_arguments: Sequence[str]


def run_child(task: ChildTask) -> int:
    """Run one suite in this process and return pytest's exit code. The process is of no use afterwards."""
    _die_with_parent(task.parent)
    log = os.open(task.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.stdout = os.fdopen(1, "w", buffering=1, errors="replace", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="replace", closefd=False)
    faulthandler.enable(file=sys.stderr)
    faulthandler.register(signal.SIGUSR1, file=sys.stderr, all_threads=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if task.memory_limit:
        resource.setrlimit(resource.RLIMIT_DATA, (task.memory_limit, task.memory_limit))

    for name in _REWRITERS:
        os.environ.pop(name, None)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    import pytest

    from ..evidence.writer import EvidenceWriter
    from .plugin import Recorder

    writer = EvidenceWriter(Path(task.evidence), task.run_id)
    recorder = Recorder(writer, on_start=lambda check: _tell(task.pipe, check))
    suite = Path(task.suite)
    settings = [
        "-c",
        str(_SUITE_INI),
        f"--rootdir={suite.parent}",
        "--noconftest",  # a suite stands alone: no other file decides what its checks mean
        "--continue-on-collection-errors",  # a suite that can't be imported fails with its reason
        "--capture=sys",  # what native code says when it dies belongs in the log, not in a file of pytest's
    ]
    code = pytest.main([str(suite), *settings, *task.pytest_arguments], plugins=[recorder])
    writer.close()
    _tell(task.pipe, PYTEST_IS_OVER)
    sys.stdout.flush()
    sys.stderr.flush()
    return int(code)


def _tell(pipe: int, check: str) -> None:
    with contextlib.suppress(OSError):  # the parent is gone, and this process with it in a moment
        os.write(pipe, f"{check}\n".encode())


def _die_with_parent(parent: int) -> None:
    """Ask Linux to end this process when its parent ends; elsewhere an orphan runs to its end."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before Linux was asked
        os._exit(1)


def command_for(task: ChildTask) -> list[str]:
    """The command that runs a task in a fresh interpreter, for targets that don't survive a fork."""
    return [sys.executable, "-m", "hardware.testing.child", json.dumps(asdict(task))]


if __name__ == "__main__":
    os._exit(run_child(ChildTask(**json.loads(sys.argv[1]))))
