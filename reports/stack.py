"""Test each target by computing on it in a child process: a crash or a hang becomes a result."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from hwcompat.hardware.expected_targets import TargetStatus
from hwcompat.hardware.process import ROOT, run

DEFAULT_TIMEOUT_S = 120.0
"""Importing a large framework from a cold disk takes most of it."""

STACK_COMPONENT = "hardware_stack"

_MARK = "hwcompat-probe:"
_NAME_MARK = "hwcompat-device:"
_LOG_TAIL = 4_000
_PROBE = (
    "import dataclasses, json, sys\n"
    "from hwcompat.hardware.backends.factory import get_backend\n"
    "from hwcompat.hardware.detection import probe\n"
    "result = dataclasses.asdict(probe(sys.argv[1]))\n"
    f"print({_MARK!r} + json.dumps(result), flush=True)\n"
    "if result['ok']:\n"  # last, so that a driver that can't name its device still gives the result
    "    name = get_backend(sys.argv[1]).get_device_info().device_name\n"
    f"    print({_NAME_MARK!r} + json.dumps(name), flush=True)\n"
)


@dataclass(frozen=True, kw_only=True)
class StackResult:
    """The result of one target.

    `state` is `computed` (three numbers were right), `failed` (it should be here and doesn't work) or `absent`.
    `recorded` is the error type if the way it ended shows it, `log` the child's last output.
    """

    target: str
    state: str
    reason: str = ""
    recorded: str = ""
    log: str = ""
    device_name: str = ""
    duration_s: float | None = None


def run_stack(
    statuses: Sequence[TargetStatus],
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    command: Sequence[str] = (),
) -> tuple[StackResult, ...]:
    """Compute on every expected target.

    `command`, to which the target is appended, replaces the probe in tests.
    """
    return tuple(
        _probe(status, timeout_s, command)
        if status.expected
        else StackResult(target=status.target, state="absent", reason=status.reason, device_name=status.device_name)
        for status in statuses
    )


def _probe(status: TargetStatus, timeout_s: float, command: Sequence[str]) -> StackResult:
    argv = [*(command or (sys.executable, "-c", _PROBE)), status.target]
    try:
        done = run(argv, limit_s=timeout_s, cwd=ROOT)
    except OSError as error:
        return _failed(status, f"the probe could not be started: {error.strerror}", recorded="component_failed")
    if done.returncode is None:
        return _failed(status, f"no answer in {timeout_s:.0f} s", recorded="timeout", log=done.stderr)
    answer = _answer(done.stdout, _MARK)
    log = done.stderr[-_LOG_TAIL:]
    if answer is None:
        return _failed(status, _ending(done.returncode), recorded="crash", log=log)
    result = json.loads(answer)
    if not result["ok"]:
        got = "" if result["got"] is None else f" (got {result['got']}, expected {result['expected']})"
        return _failed(status, result["reason"] + got, duration_s=result["duration_s"], log=log)
    return StackResult(
        target=status.target,
        state="computed",
        device_name=json.loads(_answer(done.stdout, _NAME_MARK) or '""') or status.device_name,
        duration_s=result["duration_s"],
    )


def _answer(output: str, mark: str) -> str | None:
    """Return what follows the last line of the child that begins with `mark`; runtimes print lines of their own."""
    lines = reversed(output.splitlines())
    return next((line.removeprefix(mark) for line in lines if line.startswith(mark)), None)


def _failed(
    status: TargetStatus, reason: str, *, recorded: str = "", log: str = "", duration_s: float | None = None
) -> StackResult:
    return StackResult(
        target=status.target,
        state="failed",
        reason=reason,
        recorded=recorded,
        log=log,
        device_name=status.device_name,
        duration_s=duration_s,
    )


def _ending(code: int) -> str:
    if code < 0:
        return f"ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code} and no answer"
