"""Run the benchmark on a product with a planted fault: if it doesn't find the fault, its results don't count."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from .checking import read_raw
from .deaths import Death, put_suites
from .kills import Undisturbed, look
from .moments import MODELS
from .result import Case, Result
from .running import Place, Process

_FOUND_BY = {
    "buffered": "was acknowledged and is gone",
    "half_files": "is not what was generated",
    "orphans": "was left alive",
    "silence": "has its end, and",
}
"""The violation that each fault must cause."""

_SLEEPS = Death(name="sleeps", title="", body="import time\ntime.sleep(30)", outcome="", after="", says="")


def sabotage_cases() -> Iterator[Case]:
    """Return a case for each planted fault."""
    for name in _FOUND_BY:
        yield Case(part="sabotage", id=f"sabotage-{name}", kind=name, run=_Sabotaged(name))


class _Sabotaged:
    """Run one case."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, folder: Path, undisturbed: Undisturbed) -> Result:
        """Run the faulty product, kill and check."""
        place = Place(folder=folder)
        command = place.command()
        if self.name == "orphans":
            Process(place, [word for word in command if word != "--run"], "generated").wait()
            put_suites(folder / "suites", dict.fromkeys(MODELS, _SLEEPS))
        running = Process(place, command, "run", {"HWCOMPAT_CRASH_SABOTAGE": self.name})
        if self.name != "half_files":
            self._kill(running)
        running.wait()
        found = look(place, read_raw(place.evidence), undisturbed, running.left_alive())
        for one in running.marked():
            one.kill()
        words = _FOUND_BY[self.name]
        is_found = any(words in text for text in found)
        wrong = [] if is_found else [f"nobody found that {words}: {found}"]
        return Result(
            facts={"found": is_found, "said": next((one for one in found if words in one), "")[:200]}, wrong=wrong
        )

    def _kill(self, running: Process) -> None:
        """Kill the parent (for silence: a child) after the first check (for orphans: while it sleeps)."""
        while running.process.poll() is None:
            children = running.suites_running()
            checks = len(read_raw(running.place.evidence).of_kind("check"))
            if children and (checks >= 3 or (self.name == "orphans" and checks >= 1)):
                os.kill(children[0] if self.name == "silence" else running.process.pid, signal.SIGKILL)
                return
            time.sleep(0.005)
