"""Kill runs during export: the cache has only complete exports, and the next run makes the others."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

from .checking import changed, half_files, half_lines, leftovers, lost, read_raw, unfinished, untold
from .kills import Undisturbed, suites_in
from .product import misread
from .result import Case, Result
from .running import Place, Process

MODEL, TARGET = "bert", "openvino"
KILLS = 8
_LASTS = 1.2
"""How many times longer such a run takes than one of three models on the CPU."""


def export_cases(seed: int) -> Iterator[Case]:
    """Return kills spread over a run that exports into an empty cache."""
    chance = random.Random(f"{seed} exports")
    for number in range(KILLS):
        share = (number + chance.random()) / KILLS
        kind = "an export, at a random moment"
        yield Case(part="exports", id=f"exports-{seed}-{number}", kind=kind, run=_Exporting(share))


def may_export() -> bool:
    """Whether OpenVINO is installed."""
    from hardware.backends.factory import get_backend

    return get_backend(TARGET).is_available


class _Exporting:
    """Run one case."""

    def __init__(self, share: float) -> None:
        self.share = share

    def __call__(self, folder: Path, undisturbed: Undisturbed) -> Result:
        """Run, kill, check, resume and check."""
        if not may_export():
            return Result(facts={"landed": False, "why": "OpenVINO is not here"})
        place = Place(folder=folder)
        command = place.command(models=(MODEL,), device=TARGET)
        running = Process(place, command)
        landed = running.wait_until(self.share * _LASTS * undisturbed.seconds)
        if landed:
            os.kill(running.process.pid, signal.SIGKILL)
        running.wait()
        raw = read_raw(place.evidence)
        wrong = [*_look(place), *(f"process {pid} was left alive" for pid in running.left_alive())]
        at_once = len(leftovers(folder))
        resumed = Process(place, [*command, "--resume"], "resumed").wait()
        after = read_raw(place.evidence)
        wrong += [*changed(raw, after), *_look(place), *(f"run {name} is not over" for name in unfinished(after))]
        wrong += [] if resumed.code == 0 else [f"--resume ended with {resumed.code}: {resumed.err[-300:]}"]
        exports = [one for one in (folder / "cache" / "exports").glob("[!.]*") if one.is_dir()]
        work = [one.name for one in exports if one.name.startswith("export-")]
        wrong += [f"work of the killed export was left: {work}"] if work else []
        wrong += [] if len(exports) > len(work) else ["nothing was exported"]
        return Result(facts={"landed": landed, "exit": resumed.code, "left at once": at_once}, wrong=wrong)


def _look(place: Place) -> list[str]:
    raw = read_raw(place.evidence)
    return [
        *lost(raw, place.folder / "log"),
        *half_lines(raw, killed=True),
        *untold(raw),
        *half_files(place.folder, suites_in(place)),
        *misread(place.evidence, raw),
    ]
