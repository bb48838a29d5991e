"""Run the load of each device in its own process, and sample telemetry at the same time."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from hwcompat.hardware.inventory.hardware_info import HardwareInfo
from hwcompat.hardware.inventory.telemetry import Sample, Sampler
from hwcompat.hardware.process import PIPED, ROOT, Child, end_of, ending_of
from hwcompat.hardware.redaction import redact
from hwcompat.hardware.workers import environment_of

from .stress_child import PJRT, StressOptions, is_pjrt
from .stress_result import DeviceResult, StressEnding, StressRun
from .stress_targets import Chosen, rounds
from .summary import summarized
from .tensorflow_device import TENSORFLOW, python_with_tensorflow

_STARTING_S = 180.0
"""The time limit in seconds for importing torch and finding the device."""

_TAIL = 400
_ENDINGS = {
    "wrong": StressEnding.WRONG_RESULT,
    "elsewhere": StressEnding.OFFLOADED,
    "failed": StressEnding.FAILED,
    "end": StressEnding.MEASURED,
}
Note = Callable[[str], None]


@dataclass
class Watched:
    """One child with its output. `events` grow while it runs."""

    options: StressOptions
    process: Child
    log: IO[bytes]
    events: list[Mapping[str, Any]] = field(default_factory=list)
    last_output_at: float = field(default_factory=time.monotonic)
    has_device: bool = False
    timed_out: bool = False
    ending: tuple[StressEnding, str] = (StressEnding.FAILED, "")
    hearing: threading.Thread = field(default_factory=threading.Thread)

    def kill_if_hung(self) -> None:
        """Kill the child if it printed nothing for too long."""
        limit = self.options.silence_s if self.has_device else max(_STARTING_S, self.options.silence_s)
        if self.process.poll() is None and time.monotonic() - self.last_output_at > limit:
            self.timed_out = True
            self.process.end()


def run_stress(
    chosen: Sequence[Chosen], inventory: HardwareInfo, options: StressOptions, *, sampler: Sampler, note: Note
) -> StressRun:
    """Put load on every available device, and return the results. An absent device is skipped with its reason."""
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    results: dict[str, DeviceResult] = {}
    for one in chosen:
        if one.reason:
            note(f"{one.target}: skipped: {one.reason}")
            results[one.target] = DeviceResult(target=one.target, ending=StressEnding.SKIPPED, reason=one.reason)
    for together in rounds(chosen):
        children, taken = _round(together, options, sampler, note)
        for child in children:
            ending, reason = child.ending
            results[child.options.target] = summarized(
                child.options,
                child.events,
                taken,
                inventory=inventory,
                devices=sampler.devices,
                ending=ending,
                reason=reason,
            )
    return StressRun(
        started_at=started_at,
        host={**asdict(inventory.host), "cpu": inventory.cpu.model, "memory_bytes": inventory.memory.total_bytes},
        versions={name: version for name, version in inventory.packages.items() if version},
        interval_s=options.interval_s,
        results=tuple(results[one.target] for one in chosen),
    )


def _ending_of(watched: Watched) -> tuple[StressEnding, str]:
    if watched.timed_out:
        last = watched.events[-1] if watched.events else {}
        at = str(last.get("load") or last.get("event") or "its start")
        return StressEnding.TIMEOUT, f"no output for too long after {at}; the process was killed"
    for event in watched.events:
        if event["event"] in _ENDINGS:
            return _ENDINGS[event["event"]], redact(str(event.get("message", "")))
    said = redact(" ".join(end_of(watched.log).split()))[-_TAIL:]
    return StressEnding.FAILED, f"its process ended with {ending_of(watched.process.wait())}. {said}".strip()


def _round(
    together: Sequence[Chosen], options: StressOptions, sampler: Sampler, note: Note
) -> tuple[list[Watched], list[Sample]]:
    """Run these loads at the same time, and return them with the samples."""
    taken: list[Sample] = []
    with contextlib.ExitStack() as stack:
        children = [_start(replace(options, target=one.target, folder=one.folder), stack, note) for one in together]
        while any(child.process.poll() is None for child in children):
            until = time.monotonic() + options.interval_s
            taken.append(sampler.sample())
            for child in children:
                child.kill_if_hung()
            while time.monotonic() < until and any(child.process.poll() is None for child in children):
                time.sleep(0.02)
        for child in children:
            child.hearing.join(timeout=5)
            child.ending = _ending_of(child)
            note(f"{child.options.target}: {child.ending[0].replace('_', ' ')}")
    return children, taken


def _start(options: StressOptions, stack: contextlib.ExitStack, note: Note) -> Watched:
    log: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
    own_python = environment_of(PJRT).python if is_pjrt(options.target) else None
    if options.library == TENSORFLOW and own_python is None:
        own_python = Path(python_with_tensorflow())
    command = [str(own_python or sys.executable), "-m", "hwcompat.plugins.stress.stress_child"]
    process = Child(command, cwd=ROOT, stdin=PIPED, stdout=PIPED, stderr=log)
    stack.callback(process.end)
    watched = Watched(options=options, process=process, log=log)
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(json.dumps(asdict(options)).encode())
        process.stdin.close()
    watched.hearing = threading.Thread(target=_read_events, args=(watched, note), daemon=True)
    watched.hearing.start()
    return watched


def _read_events(watched: Watched, note: Note) -> None:
    assert watched.process.stdout is not None
    with watched.process.stdout as stdout:
        for line in stdout:
            try:
                event = json.loads(line)
            except ValueError:  # cut off in the middle of a line
                continue
            watched.last_output_at = time.monotonic()
            watched.events.append(event)
            if event["event"] == "device":
                watched.has_device = True
                note(f"{watched.options.target}: {event['name']}")
            elif event["event"] == "phase":
                note(f"{watched.options.target}: {event['phase']} {event['load']}")
