"""Check splits of models: start the ranks once for all cases, and compare each with one device.

Another process computes each whole model. A process that dies or hangs ends all, and is reported with the reason.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from hwcompat.hardware.plain_text import one_line
from hwcompat.hardware.process import MERGED, ROOT, Child, end_of, with_product
from hwcompat.hardware.redaction import redact

from .mesh_case import JOB_FILE, STATUS_FILE, Inputs, MeshCase, MeshJob, MeshModel, MeshResult, keep
from .verify_ranks import judge

DEADLINE_S = 600.0
RANK = ("-m", "hwcompat.plugins.placement.mesh.rank")
WHOLE = ("-m", "hwcompat.plugins.placement.mesh.mesh_model")
_LOOK_S = 0.1
_ECHO_S = 1.0
"""Seconds to wait after a process failed: an earlier failure of another process may have caused it."""
_TAIL = 400
_FOLLOWS = ("connection closed", "connection reset", "broken pipe", "connection refused", "peer", "barrier")
"""Errors of a rank whose partner ended: the rank isn't the cause."""


def check_mesh(
    models: Sequence[tuple[MeshModel, Inputs]],
    cases: Sequence[MeshCase],
    *,
    deadline_s: float = DEADLINE_S,
    program: Sequence[str] = RANK,
) -> MeshResult:
    """Run all cases on ranks of this machine, one process each, and judge them.

    Each model comes with its inputs (arrays whose first axis is the batch). A rank that dies or hangs is in the
    result, with its reason, beside the cases that were finished before. `program` are Python's arguments for a rank,
    before folder, rank and number of ranks.
    """
    own_models, inputs = zip(*models, strict=True)
    job = MeshJob(models=own_models, inputs=inputs, cases=tuple(cases), seconds=deadline_s)
    with tempfile.TemporaryDirectory(prefix="hwcompat-mesh-") as name:
        folder = Path(name)
        keep(folder / JOB_FILE, asdict(job))
        with _started(folder, job.ranks, program) as processes:
            broken = _broken(processes, deadline_s)
        found, missing = [], ""
        for number in range(len(cases)):
            try:
                found.append(judge(job, number, folder))
            except OSError as error:
                missing = f"a rank wrote no result: {one_line(str(error))}"
    if broken is None:
        return MeshResult(cases=tuple(found), broken=missing)
    process, what, why, step = broken
    return MeshResult(cases=tuple(found), broken=f"{what}: {why}", rank=process.rank if process else None, step=step)


@dataclass(frozen=True, kw_only=True)
class MeshStatus:
    """The status of a rank: the number of its communications, its step, and when and why it failed."""

    calls: int = 0
    step: str = "its start"
    at: float = 0.0
    failure: str = ""


@dataclass(frozen=True, kw_only=True)
class Process:
    """A child with its output; `rank` is None for the one that computes the whole model."""

    rank: int | None
    child: Child
    log: IO[bytes]
    folder: Path

    def __str__(self) -> str:
        return "the process of the whole model" if self.rank is None else f"rank {self.rank}"

    def said(self) -> str:
        """Return the end of its output, in one line."""
        return redact(one_line(" ".join(end_of(self.log).split())[-_TAIL:]))

    def status(self) -> MeshStatus:
        """Return the last status that it wrote."""
        if self.rank is None:
            return MeshStatus(step="the whole model", at=time.time(), failure=self.said())
        try:
            return MeshStatus(**json.loads((self.folder / STATUS_FILE.format(self.rank)).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return MeshStatus()


Broken = tuple[Process | None, str, str, str]
"""The rank that failed, if known; what happened, why, and at which step."""


def _broken(processes: Sequence[Process], deadline_s: float) -> Broken | None:
    """Wait for all processes; return None if all succeeded, else the first that failed, or after the deadline the one
    that the others wait for."""
    until = time.monotonic() + deadline_s
    while any(one.child.poll() is None for one in processes):
        if any(one.child.poll() for one in processes):
            time.sleep(_ECHO_S)
            break
        if time.monotonic() > until:
            return _waited_for(processes, deadline_s)
        time.sleep(_LOOK_S)
    dead = [one for one in processes if one.child.poll()]
    return _first_failed(dead) if dead else None


@contextlib.contextmanager
def _started(folder: Path, ranks: int, program: Sequence[str]) -> Iterator[list[Process]]:
    """Start all ranks of the job in `folder`, and the process of the whole models; end them with the block."""
    with contextlib.ExitStack() as stack:
        processes = []
        for rank in (*range(ranks), None):
            arguments = (*WHOLE, folder) if rank is None else (*program, folder, rank, ranks)
            log = stack.enter_context((folder / f"log-{rank}").open("w+b"))
            command = [sys.executable, *map(str, arguments), str(os.getpid())]
            child = Child(command, cwd=ROOT, environment=environment_of(rank, ranks), stdout=log, stderr=MERGED)
            stack.callback(child.end)
            processes.append(Process(rank=rank, child=child, log=log, folder=folder))
        yield processes


def environment_of(rank: int | None, ranks: int) -> dict[str, str]:
    """Return the environment of a rank: one thread, and gloo on the loopback interface only.

    Ranks have different hash seeds, as processes usually do, but the same ones in every run: a model that registers
    buffers in the order of a set has another order on another rank, and that must always show.
    """
    own = {
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
        "PYTHONHASHSEED": str((rank or 0) + 1),
        "NCCL_SOCKET_IFNAME": "lo",
        "MASTER_ADDR": "127.0.0.1",
        "WORLD_SIZE": str(ranks),
    }
    return with_product() | own | ({} if rank is None else {"RANK": str(rank)})


def _first_failed(dead: Sequence[Process]) -> Broken:
    """Return the process that failed first: killed by a signal, or with an error other than a partner's end."""
    states = {str(one): one.status() for one in dead}

    def order(one: Process) -> tuple[int, float]:
        status = states[str(one)]
        follows = any(word in status.failure.lower() for word in _FOLLOWS)
        return (0 if one.child.returncode < 0 else 2 if follows else 1), status.at or time.time()

    first = min(dead, key=order)
    code, status = first.child.returncode, states[str(first)]
    why = redact(one_line(status.failure, longest=600)) or f"exit code {code}: {first.said()}"
    if code < 0:
        with contextlib.suppress(ValueError):
            why = f"its process was ended by {signal.Signals(-code).name}"
    step = "" if first.rank is None else status.step
    return first, f"{first} ended at {step}" if step else f"{first} ended", why, step


def _waited_for(processes: Sequence[Process], deadline_s: float) -> Broken:
    """Return the rank that the others wait for: of the running ones, the one with the least communication."""
    running = [one for one in processes if one.child.poll() is None]
    where = [(one.status(), one) for one in running if one.rank is not None] or [
        (one.status(), one) for one in running
    ]
    status, behind = min(where, key=lambda one: one[0].calls)
    statuses = ", ".join(f"{one} at {its.step} after {its.calls} calls" for its, one in where)
    ahead = max(its.calls for its, _ in where) > status.calls
    what = f"{behind} hung at {status.step}" if ahead else "the ranks didn't finish"
    return behind if ahead else None, what, f"after {deadline_s:g} s: {statuses}", status.step
