"""What became of a device after a suite on it broke down: asked in a process of its own, which may go down too."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ..target import Target

_ROOT = Path(__file__).parents[2]
_TIMEOUT_S = 60.0
_ABSENT_CODE = 7


class DeviceState(StrEnum):
    """What the known-answer probe found."""

    ANSWERS = "answers"
    LOST = "lost"
    ABSENT = "absent"


@dataclass(frozen=True, kw_only=True)
class Probed:
    """A state, and for a lost device what the probe said last."""

    state: DeviceState
    reason: str = ""


def state_of_device(target: Target) -> Probed:
    """Whether the target still computes the known answer; it is reset once where its backend can do that."""
    found = _probe(target, reset=False)
    return _probe(target, reset=True) if found.state is DeviceState.LOST else found


def _probe(target: Target, *, reset: bool) -> Probed:
    code = (
        "import sys\n"
        "from hardware.backends.factory import get_backend\n"
        "from hardware.known_answer import agrees\n"
        f"backend = get_backend({str(target)!r})\n"
        f"if backend.unavailable(): sys.exit({_ABSENT_CODE})\n"
        f"if {reset!r} and not backend.reset(): sys.exit('it cannot be reset from here')\n"
        "got = backend.known_answer()\n"
        "sys.exit(0 if agrees(got) else f'it computed {got}')\n"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            timeout=_TIMEOUT_S,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            cwd=_ROOT,
        )
    except subprocess.TimeoutExpired:
        return Probed(state=DeviceState.LOST, reason=f"the known-answer probe hung for {_TIMEOUT_S:.0f} s")
    if done.returncode == 0:
        return Probed(state=DeviceState.ANSWERS)
    if done.returncode == _ABSENT_CODE:
        return Probed(state=DeviceState.ABSENT)
    last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return Probed(state=DeviceState.LOST, reason=f"the known-answer probe failed: {last[:300]}")
