"""Proves each target by computing on it, in a child process: a crash or a hang there becomes a result here."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from hardware.errors import HwCompatError
from hardware.expected_targets import TargetStatus
from hardware.process import NoAnswer, answer, ask

DEFAULT_TIMEOUT_S = 120.0
"""Importing a large framework from a cold disk takes most of it."""

STACK_COMPONENT = "hardware_stack"

_LOG_TAIL = 4_000


@dataclass(frozen=True, kw_only=True)
class StackResult:
    """What came of one target.

    `state` is `computed` (three numbers came out right there), `failed` (it should be here and something went
    wrong) or `absent`. `recorded` is the error type where the way it ended tells it, `log` the child's last words.
    """

    target: str
    state: str
    reason: str = ""
    recorded: str = ""
    log: str = ""
    device_name: str = ""
    duration_s: float | None = None


def run_stack(
    statuses: Sequence[TargetStatus], *, timeout_s: float = DEFAULT_TIMEOUT_S, module: str = __name__
) -> tuple[StackResult, ...]:
    """Compute on every target that is expected; `module` answers for it in a child."""
    return tuple(
        _probe(status, timeout_s, module)
        if status.expected
        else StackResult(target=status.target, state="absent", reason=status.reason, device_name=status.device_name)
        for status in statuses
    )


def _probe(status: TargetStatus, timeout_s: float, module: str) -> StackResult:
    def result(state: str, reason: str = "", device_name: str = "", **more: Any) -> StackResult:
        name = device_name or status.device_name
        return StackResult(target=status.target, state=state, reason=reason, device_name=name, **more)

    try:
        told = ask(module, status.target, limit_s=timeout_s)
    except NoAnswer as error:
        ended = error.ended
        kind = "timeout" if ended.timed_out else "crash"
        return result("failed", f"no answer: it {ended.how}", recorded=kind, log=ended.stderr[-_LOG_TAIL:])
    except (HwCompatError, OSError) as error:
        return result("failed", f"the probe failed: {error}", recorded="component_failed")
    if told["ok"]:
        return result("computed", device_name=told["device_name"], duration_s=told["duration_s"])
    got = "" if told["got"] is None else f" (got {told['got']}, expected {told['expected']})"
    return result("failed", told["reason"] + got, duration_s=told["duration_s"])


def _computed(target: str) -> dict[str, Any]:
    """What came of computing on a target, with the name of its device where the driver can tell it."""
    from hardware.backends.factory import get_backend
    from hardware.detection import probe

    found = asdict(probe(target))
    name = ""
    if found["ok"]:
        with suppress(Exception):  # the answer is there, whatever a driver raises now
            name = get_backend(target).get_device_info().device_name
    return {**found, "device_name": name}


if __name__ == "__main__":
    answer(_computed)
