"""Find out the state of a device after a suite broke down on it, in a separate process that may break down too."""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
from enum import StrEnum

from ..process import DROPPED, ROOT, Child, end_of
from ..target import Target

TIMEOUT_S = 60.0
_ABSENT_CODE = 7


class DeviceState(StrEnum):
    """The result of the known-answer probe."""

    ANSWERS = "answers"
    LOST = "lost"
    ABSENT = "absent"


@dataclass(frozen=True, kw_only=True)
class Probed:
    """A state, and for a lost device the last message of the probe."""

    state: DeviceState
    reason: str = ""


class Probe:
    """The known-answer probe of one target, in a process of its own. It resets a lost device once, if possible.

    Nothing here waits: call `poll`.
    """

    def __init__(self, target: Target, *, timeout_s: float = TIMEOUT_S) -> None:
        self.target = target
        self.timeout_s = timeout_s
        self._resets = False
        self._start()

    def poll(self) -> Probed | None:
        """Return the result, or None while the probe runs."""
        code = self._process.poll()
        if code is None and time.monotonic() < self._deadline:
            return None
        found = self._found(code)
        self.kill()
        if found.state is not DeviceState.LOST or self._resets:
            return found
        self._resets = True
        self._start()
        return None

    def kill(self) -> None:
        """End the process if it runs."""
        self._process.end()
        self._stderr.close()

    def _start(self) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - `kill` closes it
        self._deadline = time.monotonic() + self.timeout_s
        command = [sys.executable, "-c", _code(self.target, reset=self._resets)]
        self._process = Child(command, stdout=DROPPED, stderr=self._stderr, cwd=ROOT)

    def _found(self, code: int | None) -> Probed:
        if code is None:
            return Probed(state=DeviceState.LOST, reason=f"the known-answer test hung for {self.timeout_s:.0f} s")
        if code == 0:
            return Probed(state=DeviceState.ANSWERS)
        if code == _ABSENT_CODE:
            return Probed(state=DeviceState.ABSENT)
        lines = end_of(self._stderr).strip().splitlines()
        last = (lines or [f"exit code {code}"])[-1]
        return Probed(state=DeviceState.LOST, reason=f"the known-answer test failed: {last[:300]}")


def _code(target: Target, *, reset: bool) -> str:
    return (
        "import sys\n"
        "from hwcompat.hardware.backends.factory import get_backend\n"
        "from hwcompat.hardware.known_answer import agrees\n"
        f"backend = get_backend({str(target)!r})\n"
        f"if backend.unavailable(): sys.exit({_ABSENT_CODE})\n"
        f"if {reset!r} and not backend.reset(): sys.exit('no reset of the device')\n"
        "got = backend.known_answer()\n"
        "sys.exit(0 if agrees(got) else f'it returned {got}')\n"
    )
