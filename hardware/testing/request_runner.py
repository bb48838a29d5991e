"""Serve a bundle's suites: read requests from standard input, run the named suites, and answer when they are done.
Packages are imported once.

A request is a JSON object on one line, and so is its answer. The process ends with its input, also during a run.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import HwCompatError, UsageError
from ..evidence.versions import versions_of
from ..evidence.writer import machine_label
from ..plain_text import one_line
from .checkpoints import CHECKPOINTS_VARIABLE
from .pytest_environment import DEVICES_VARIABLE
from .runner import Limits, default_memory_limit
from .session import run_session

if TYPE_CHECKING:
    from ..detection import HardwareInfo
    from .suite_file import Carried


def answer_requests(carried: Sequence[Carried], missing: Sequence[str]) -> int:
    """Answer requests until the input ends, and return the exit code.

    `report` returns what this machine has and which packages are `missing`. `run` runs the named cells: the answer
    has the run's id, and the evidence is in the folder that the request names. A failed request is answered with an
    `error`.
    """
    by_id = {one.suite.cell.id: one for one in carried}
    answers = _take_streams()
    inventory = None
    for request in _requests(answers[0]):
        inventory = inventory or _detected()
        try:
            if request["do"] == "report":
                answer = _report(inventory, missing)
            else:
                answer = _run([by_id[cell] for cell in request["cells"]], inventory, missing, request)
        except (HwCompatError, KeyError, TypeError, ValueError) as error:
            answer = {"error": one_line(f"{type(error).__name__}: {error}", longest=2000)}
        os.write(answers[1], json.dumps(answer).encode() + b"\n")
    return 0


def _detected() -> HardwareInfo:
    from ..detection import detect

    return detect()


def _report(inventory: HardwareInfo, missing: Sequence[str]) -> dict[str, Any]:
    from ..expected_targets import targets

    return {
        "machine": machine_label(),
        "python": inventory.host.python_version,
        "versions": versions_of(inventory),
        "missing": list(missing),
        "free_memory_bytes": inventory.memory.available_bytes,
        "inventory": inventory.to_dict(),
        "targets": [asdict(one) for one in targets(inventory)],
    }


def _run(
    carried: Sequence[Carried], inventory: HardwareInfo, missing: Sequence[str], request: Mapping[str, Any]
) -> dict[str, Any]:
    if missing:
        raise UsageError(f"{', '.join(missing)} isn't installed in {sys.executable}")
    os.environ[DEVICES_VARIABLE] = ""
    os.environ[CHECKPOINTS_VARIABLE] = str(request["checkpoints"])
    session = run_session(
        [one.suite for one in carried],
        [one.planned() for one in carried],
        inventory,
        evidence=Path(request["evidence"]),
        command=str(request["command"]),
        node=str(request["node"]),
        limits=Limits(
            timeout_s=request["timeout_s"], memory_bytes=default_memory_limit(), by_cell=dict(request["timeouts_s"])
        ),
        jobs=int(request["beside"]),
        pytest_arguments=tuple(request["pytest_arguments"]),
    )
    if session.interrupted:
        raise KeyboardInterrupt
    return {"run_id": session.run_id}


def _take_streams() -> tuple[int, int]:
    """Return descriptors for requests and answers. Other output goes to standard error."""
    own = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return own


def _requests(descriptor: int) -> Iterator[Any]:
    """Yield requests as they arrive. When the input ends, so does the current run, since its answer would be lost."""
    lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    threading.Thread(target=_read_lines, args=(descriptor, lines), daemon=True).start()
    while (line := lines.get()) is not None:
        yield json.loads(line)


def _read_lines(descriptor: int, lines: queue.SimpleQueue[bytes | None]) -> None:
    with os.fdopen(descriptor, "rb") as requests:
        for line in requests:
            if line.endswith(b"\n"):  # otherwise the client died while it wrote
                lines.put(line)
    lines.put(None)
    os.kill(os.getpid(), signal.SIGTERM)
