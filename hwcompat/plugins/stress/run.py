"""Runs the load of each device in a process of its own, and samples what the devices do meanwhile."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from hardware.detection import HardwareInfo
from hardware.evidence.redaction import redact
from hardware.process import PIPED, ROOT, Child, end_of, ending_of
from hardware.sampling import Sample, Sampler
from hardware.workers import environment_of

from .child import PJRT, StressTask
from .result import DeviceResult, Ending, StressRun
from .summary import summarised
from .targets import Chosen, rounds

_STARTING_S = 180.0
"""Seconds that a child may take to import torch and to find its device."""

_TAIL = 400
Note = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class StressOptions:
    """How long, how often it is looked, and how long a child may say nothing, in seconds."""

    warmup_s: float
    duration_s: float
    interval_s: float
    silence_s: float
    precisions: tuple[str, ...]


@dataclass
class Watched:
    """One child with what it said. `events` grow while it runs."""

    chosen: Chosen
    process: Child
    log: IO[bytes]
    events: list[Mapping[str, Any]] = field(default_factory=list)
    heard_at: float = field(default_factory=time.monotonic)
    has_device: bool = False
    timed_out: bool = False
    ending: tuple[Ending, str] = (Ending.FAILED, "")
    hearing: threading.Thread = field(default_factory=threading.Thread)

    def said(self) -> str:
        """The end of what the child's libraries printed, in one line."""
        return redact(" ".join(end_of(self.log).split()))[-_TAIL:]


def run_stress(
    chosen: Sequence[Chosen], inventory: HardwareInfo, options: StressOptions, *, sampler: Sampler, note: Note
) -> StressRun:
    """Load every device that is here, and say what each did. What isn't here is skipped with its reason."""
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    results: dict[str, DeviceResult] = {}
    for one in chosen:
        if one.reason:
            note(f"{one.target}: skipped: {one.reason}")
            results[one.target] = DeviceResult(target=one.target, ending=Ending.SKIPPED, reason=one.reason)
    for together in rounds(chosen):
        for watched, taken in _round(together, options, sampler, note):
            results[watched.chosen.target] = _result(watched, taken, inventory, options, sampler)
    host = inventory.host
    versions = {name: version for name, version in inventory.packages.items() if version}
    return StressRun(
        started_at=started_at,
        host={**asdict(host), "cpu": inventory.cpu.model, "memory_bytes": inventory.memory.total_bytes},
        versions=versions,
        interval_s=options.interval_s,
        results=tuple(results[one.target] for one in chosen),
    )


def _result(
    watched: Watched, taken: Sequence[Sample], inventory: HardwareInfo, options: StressOptions, sampler: Sampler
) -> DeviceResult:
    ending, reason = watched.ending
    return summarised(
        watched.chosen.target,
        watched.events,
        taken,
        inventory=inventory,
        devices=sampler.devices,
        ending=ending,
        reason=reason,
        warmup_s=options.warmup_s,
        duration_s=options.duration_s,
    )


def _ending(watched: Watched) -> tuple[Ending, str]:
    if watched.timed_out:
        last = watched.events[-1] if watched.events else {}
        at = str(last.get("load") or last.get("event") or "its start")
        return Ending.TIMEOUT, f"it said nothing for too long after {at} and was ended"
    for event in watched.events:
        if event["event"] == "wrong":
            return Ending.WRONG_RESULT, str(event["message"])
        if event["event"] == "elsewhere":
            return Ending.OFFLOADED, str(event["message"])
        if event["event"] == "failed":
            return Ending.FAILED, redact(str(event["message"]))
        if event["event"] == "end":
            return Ending.MEASURED, ""
    how = ending_of(watched.process.wait())
    return Ending.FAILED, f"its process ended with {how}. {watched.said()}".strip()


def _round(
    together: Sequence[Chosen], options: StressOptions, sampler: Sampler, note: Note
) -> list[tuple[Watched, list[Sample]]]:
    """Run these loads at once; each with the samples that were taken meanwhile."""
    taken: list[Sample] = []
    with contextlib.ExitStack() as stack:
        children = [_start(one, options, stack, note) for one in together]
        while any(child.process.poll() is None for child in children):
            began = time.monotonic()
            taken.append(sampler.sample())
            for child in children:
                _end_if_silent(child, options)
            _wait(children, began + options.interval_s)
        for child in children:
            child.hearing.join(timeout=5)
            child.ending = _ending(child)
            note(f"{child.chosen.target}: {child.ending[0].replace('_', ' ')}")
    return [(child, taken) for child in children]


def _wait(children: Sequence[Watched], until: float) -> None:
    while time.monotonic() < until and any(child.process.poll() is None for child in children):
        time.sleep(0.02)


def _end_if_silent(child: Watched, options: StressOptions) -> None:
    limit = options.silence_s if child.has_device else max(_STARTING_S, options.silence_s)
    if child.process.poll() is None and time.monotonic() - child.heard_at > limit:
        child.timed_out = True
        child.process.end()


def _start(chosen: Chosen, options: StressOptions, stack: contextlib.ExitStack, note: Note) -> Watched:
    task = StressTask(
        target=chosen.target,
        warmup_s=options.warmup_s,
        duration_s=options.duration_s,
        precisions=options.precisions,
    )
    log: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
    command = [str(_python_of(chosen.target)), "-m", "hwcompat.plugins.stress.child"]
    process = Child(command, cwd=ROOT, stdin=PIPED, stdout=PIPED, stderr=log)
    stack.callback(process.end)
    watched = Watched(chosen=chosen, process=process, log=log)
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(task.to_json().encode())
        process.stdin.close()
    watched.hearing = threading.Thread(target=_hear, args=(watched, note), daemon=True)
    watched.hearing.start()
    return watched


def _python_of(target: str) -> Path:
    """The interpreter that a target's load runs in: that of its own environment, where it has one."""
    if target.partition(":")[0] != PJRT:
        return Path(sys.executable)
    return environment_of(PJRT).python or Path(sys.executable)


def _hear(watched: Watched, note: Note) -> None:
    assert watched.process.stdout is not None
    for line in watched.process.stdout:
        try:
            event = json.loads(line)
        except ValueError:  # cut off in the middle by an end
            continue
        watched.heard_at = time.monotonic()
        watched.events.append(event)
        if event["event"] == "device":
            watched.has_device = True
            note(f"{watched.chosen.target}: {event['name']}")
        elif event["event"] == "phase":
            note(f"{watched.chosen.target}: {event['phase']} {event['load']}")
