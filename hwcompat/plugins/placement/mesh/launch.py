"""Starts the ranks and whoever computes the whole model, and waits: a rank that dies or stands still ends all, and is
named with the reason."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from hardware.errors import HwCompatError
from hardware.evidence.redaction import redact
from hardware.plain_text import one_line
from hardware.process import MERGED, ROOT, Child, end_of, with_product

from .case import FAILURE_FILE, PROGRESS_FILE
from .starter import STARTER_VARIABLE

DEADLINE_S = 600.0
RANK = ("-m", "hwcompat.plugins.placement.mesh.rank")
ONE_DEVICE = ("-m", "hwcompat.plugins.placement.mesh.one_device")
_LOOK_S = 0.1
_ECHO_S = 1.0
"""How long it is waited for a rank that ended because another did to be told from the one that was first."""
_TAIL = 400
_FOLLOWS = ("connection closed", "connection reset", "broken pipe", "connection refused", "peer", "barrier")
"""What a rank says whose partner is gone: it ended, but it isn't the one."""


class MeshBroken(HwCompatError):
    """The ranks didn't come to an end; `rank` is the one that died or stood still, None for the whole model's, and
    `step` what it was at."""

    exit_code = 1

    def __init__(self, what: str, *, why: str, rank: int | None, step: str = "") -> None:
        super().__init__(what, why=why)
        self.rank = rank
        self.step = step


@dataclass
class Process:
    """A child with what it prints; `rank` is None for the one that computes the whole model."""

    rank: int | None
    child: Child
    log: IO[bytes]

    def said(self) -> str:
        """The end of what it printed, in one line."""
        return redact(one_line(" ".join(end_of(self.log).split())[-_TAIL:]))


def run_processes(folder: Path, ranks: int, *, deadline_s: float = DEADLINE_S, program: Sequence[str] = RANK) -> None:
    """Run all ranks of the job in `folder` to their end, and beside them what computes each model whole.

    `program` is what Python is started with for a rank, before folder, rank and number of ranks. Raises `MeshBroken`
    for the first that ends badly, or for whoever the others wait for when the time is over; nothing is left running.
    """
    until = time.monotonic() + deadline_s
    with _started(folder, ranks, program) as processes:
        while any(one.child.poll() is None for one in processes):
            if any(one.child.poll() for one in processes):
                time.sleep(_ECHO_S)
                raise _died(folder, processes)
            if time.monotonic() > until:
                raise _hung(folder, processes, deadline_s)
            time.sleep(_LOOK_S)
        if any(one.child.returncode for one in processes):
            raise _died(folder, processes)


@contextlib.contextmanager
def _started(folder: Path, ranks: int, program: Sequence[str]) -> Iterator[list[Process]]:
    asked: list[tuple[int | None, list[str]]] = [
        (rank, [*program, str(folder), str(rank), str(ranks)]) for rank in range(ranks)
    ]
    asked.append((None, [*ONE_DEVICE, str(folder)]))
    with contextlib.ExitStack() as stack:
        processes = []
        for rank, arguments in asked:
            log = stack.enter_context((folder / f"log-{rank}").open("w+b"))
            command = [sys.executable, *arguments]
            child = Child(command, cwd=ROOT, environment=environment_of(rank, ranks), stdout=log, stderr=MERGED)
            stack.callback(child.end)
            processes.append(Process(rank=rank, child=child, log=log))
        yield processes


def environment_of(rank: int | None, ranks: int) -> dict[str, str]:
    """One thread each, and no way out of this machine: gloo talks by the loopback interface.

    Each rank orders its sets otherwise, as processes do by themselves, but the same way in every run: a model that
    registers buffers in the order of a set has them in another order on another rank, and that must show always.
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
        STARTER_VARIABLE: str(os.getpid()),
    }
    return with_product() | own | ({} if rank is None else {"RANK": str(rank)})


def _name(process: Process) -> str:
    return "the process of the whole model" if process.rank is None else f"rank {process.rank}"


def _died(folder: Path, processes: Sequence[Process]) -> MeshBroken:
    """The one that ended first by itself: killed by a signal, or with an error that isn't of a partner's end."""
    dead = [one for one in processes if one.child.poll()]
    reasons = {id(one): _failure(folder, one) for one in dead}

    def order(one: Process) -> tuple[int, float]:
        at, message = reasons[id(one)]
        follows = any(word in message.lower() for word in _FOLLOWS)
        return (0 if one.child.returncode < 0 else 2 if follows else 1), at

    first = min(dead, key=order)
    code = first.child.returncode
    message = reasons[id(first)][1]
    if code < 0:
        with contextlib.suppress(ValueError):
            message = f"its process was ended by {signal.Signals(-code).name}"
    step = "" if first.rank is None else _progress(folder, first)[1]
    what = f"{_name(first)} ended at {step}" if step else f"{_name(first)} ended"
    return MeshBroken(what, why=message or f"exit code {code}: {first.said()}", rank=first.rank, step=step)


def _failure(folder: Path, process: Process) -> tuple[float, str]:
    path = folder / FAILURE_FILE.format(process.rank)
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        return float(said["at"]), redact(one_line(f"{said['type']}: {said['message']}", longest=600))
    except (OSError, ValueError, KeyError, TypeError):
        return time.time(), process.said() if process.rank is None else ""


def _hung(folder: Path, processes: Sequence[Process], deadline_s: float) -> MeshBroken:
    """Whoever the others wait for: of the ranks that still run, the one that has talked to others least."""
    running = [one for one in processes if one.child.poll() is None]
    ranks = [one for one in running if one.rank is not None] or running
    where = {id(one): _progress(folder, one) for one in ranks}
    behind = min(ranks, key=lambda one: where[id(one)][0])
    calls, step = where[id(behind)]
    told = ", ".join(f"{_name(one)} at {where[id(one)][1]} after {where[id(one)][0]} calls" for one in ranks)
    ahead = max(found[0] for found in where.values()) > calls
    what = f"{_name(behind)} stood still at {step}" if ahead else "the ranks came to no end"
    return MeshBroken(what, why=f"after {deadline_s:g} s: {told}", rank=behind.rank if ahead else None, step=step)


def _progress(folder: Path, process: Process) -> tuple[int, str]:
    if process.rank is None:
        return 0, "the whole model"
    try:
        calls, step = json.loads((folder / PROGRESS_FILE.format(process.rank)).read_text(encoding="utf-8"))
        return int(calls), str(step)
    except (OSError, ValueError):
        return 0, "its start"
