"""Start real runs in child processes, kill them at a moment or a write operation, and resume them."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from .. import product
from ..product import ROOT
from .moments import MODELS, Kill

PLANTING = Path(__file__).with_name("planting")
LIMIT_S = 240
_LOOK_S = 0.005
_MOMENT_S = 3
_ENDING_S = 10


@dataclass(frozen=True, kw_only=True)
class Place:
    """The folders of one run, below `folder`."""

    folder: Path

    def __post_init__(self) -> None:
        for name in ("cache", "tmp", "log"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)

    @property
    def evidence(self) -> Path:
        """The folder of evidence."""
        return self.folder / "evidence"

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of its processes: a separate cache and temporary folder, and a mark to find them."""
        own = {
            "TMPDIR": str(self.folder / "tmp"),
            "PYTHONPATH": os.pathsep.join([str(PLANTING), str(ROOT)]),
            "HWCOMPAT_CRASH_LOG": str(self.folder / "log"),
            "HF_HUB_OFFLINE": "1",
        }
        return product.environment(self.folder / "cache", {**own, **more})

    def command(self, *words: str, models: Sequence[str] = MODELS, device: str = "cpu") -> list[str]:
        """Return the command of its run."""
        return product.command(self.folder, models, device, "--run", "--jobs", "2", "--timeout", "120", *words)


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A finished process: its exit code (negative for a signal) and its output."""

    code: int
    out: str
    err: str
    seconds: float


class Process:
    """A run in progress."""

    def __init__(
        self, place: Place, command: Sequence[str], name: str = "run", more: Mapping[str, str] | None = None
    ) -> None:
        self.place = place
        self.name = name
        self.started = time.monotonic()
        self.mark = f"{place.folder}/{name}"
        environment = place.environment({**(more or {}), "HWCOMPAT_CRASH_MARK": self.mark})
        with self._stream("out").open("wb") as out, self._stream("err").open("wb") as err:
            self.process = subprocess.Popen(
                list(command), cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )

    def _stream(self, name: str) -> Path:
        return self.place.folder / f"{self.name}.{name}"

    def suites_running(self) -> list[int]:
        """Return the children that run suites: each leads its own session and is a fork of the parent."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return [one.pid for one in psutil.Process(self.process.pid).children() if _runs_suites(one)]
        return []

    def wait_until(self, moment: float) -> bool:
        """Wait until this many seconds after the start; return False if it ended before."""
        while time.monotonic() < self.started + moment:
            if self.process.poll() is not None:
                return False
            time.sleep(_LOOK_S)
        return self.process.poll() is None

    def wait(self) -> Ran:
        """Wait for the end; kill it if that takes too long."""
        try:
            code = self.process.wait(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        seconds = time.monotonic() - self.started
        out, err = (self._stream(name).read_text(encoding="utf-8", errors="replace") for name in ("out", "err"))
        return Ran(code=code, out=out, err=err, seconds=seconds)

    def marked(self) -> list[psutil.Process]:
        """Return the processes of this run without its own."""
        found = [one for one in psutil.process_iter(["environ"]) if one.pid != self.process.pid]
        return [one for one in found if (one.info["environ"] or {}).get("HWCOMPAT_CRASH_MARK") == self.mark]

    def left_alive(self) -> list[int]:
        """Return the processes that are alive a while after the end: children that run suites must end with the run,
        device probes end by themselves."""
        ended = time.monotonic()
        while found := self.marked():
            suites = [one.pid for one in found if _runs_suites(one)]
            if suites and time.monotonic() > ended + _MOMENT_S:
                return suites
            if time.monotonic() > ended + _ENDING_S:
                return [one.pid for one in found]
            time.sleep(_LOOK_S * 10)
        return []


def run_to_end(place: Place, *words: str, name: str = "run") -> Ran:
    """Run without a disturbance."""
    return Process(place, place.command(*words), name).wait()


@dataclass(frozen=True, kw_only=True)
class Killed:
    """The result of a kill: whether it `landed` before the run ended, and the surviving processes."""

    ran: Ran
    landed: bool
    left: Sequence[int]


def run_and_kill(place: Place, kill: Kill, lasts_s: float, *, name: str = "run", words: Sequence[str] = ()) -> Killed:
    """Start a run and kill it as drawn; `lasts_s` is the time of an undisturbed run in s."""
    more = {"HWCOMPAT_CRASH_AT": kill.point} if kill.point else {}
    share = kill.again if name == "again" else kill.share
    running = Process(place, place.command(*words), name, more)
    if kill.point:
        landed = True
    elif kill.victim == "child":
        landed = _kill_a_child(running, share, lasts_s, random.Random(kill.number))
    else:
        landed = running.wait_until(share * lasts_s)
        for pid in [running.process.pid, *(running.suites_running() if kill.victim == "all" else ())] * landed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    ran = running.wait()
    if kill.point:
        landed = ran.code == -signal.SIGKILL or "SIGKILL" in ran.out
    return Killed(ran=ran, landed=landed, left=running.left_alive())


def _kill_a_child(running: Process, share: float, lasts_s: float, chance: random.Random) -> bool:
    """Kill one of the children that run at a moment, or the next one if none does."""
    first: float | None = None
    while running.process.poll() is None:
        there = running.suites_running()
        if there and first is None:
            first = time.monotonic() - running.started
        # Moments are spread over the part of the run that has children.
        if there and first is not None and time.monotonic() - running.started >= first + share * (lasts_s - first):
            with contextlib.suppress(ProcessLookupError):
                os.kill(chance.choice(there), signal.SIGKILL)
                return True
        time.sleep(_LOOK_S)
    return False


def clean(place: Place) -> None:
    """Remove all files of a run."""
    shutil.rmtree(place.folder, ignore_errors=True)


def _runs_suites(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return any(Path(word).name in ("run_test_generation.py", "hwcompat") for word in process.cmdline())
    return False
