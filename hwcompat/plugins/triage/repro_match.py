"""Compare how a script failed with the check: by the exception, or by the size of the error."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from hwcompat.hardware.plain_text import one_line
from hwcompat.plugins.triage.repro.captured_failure import CapturedFailure, Shape
from hwcompat.plugins.triage.repro.repro_script import Shown
from hwcompat.reports.diagnose import identify
from hwcompat.reports.finding import signature

ORDER = 10.0
"""Two errors are of the same order if neither is more than ten times the other."""

_RUNTIMES = "[ONNXRuntimeError]"
_OPERATOR = re.compile(r"\b(?:aten|prim|onnx|ai\.onnx|torchvision)::\w+")
_LONGEST_ALIKE = 160


@dataclass(frozen=True, kw_only=True)
class ReproMatch:
    """Whether the failure is the `same`, and `why`: the comparison, or the difference."""

    same: bool
    why: str


def judge(captured: CapturedFailure, shown: Shown) -> ReproMatch:
    """Compare how the script ended with what the check showed."""
    if shown.code == 0:
        return _no("the script doesn't fail, so the fault is in how hwcompat calls the runtime, not in the runtime")
    if captured.shape is Shape.TIMEOUT or shown.code is None:
        same = captured.shape is Shape.TIMEOUT and shown.code is None
        text = f"no answer in {shown.seconds:.0f} s" if shown.code is None else _ended(shown)
        return ReproMatch(same=same, why=f"both: {text}" if same else text)
    if captured.shape is Shape.CRASHED or shown.code < 0:
        same = captured.shape is Shape.CRASHED and -shown.code == captured.signal
        return ReproMatch(
            same=same, why=f"{'both were' if same else 'only one was'} ended by a signal: {_ended(shown)}"
        )
    if captured.shape is Shape.NUMBERS:
        return _judge_numbers(captured, shown)
    return _judge_exceptions(captured, shown)


def _judge_numbers(captured: CapturedFailure, shown: Shown) -> ReproMatch:
    if shown.error is None:
        return _no(f"the check gave wrong numbers, and the script ended otherwise: {_ended(shown)}")
    if captured.error is None:  # tokens were compared
        same = captured.message in shown.printed
        return ReproMatch(
            same=same, why=f"tokens: {captured.message}{' in both' if same else '; the script computes other tokens'}"
        )
    limit = captured.tolerance or 0.0
    figures = f"off by {captured.error:.2g} in the check, by {shown.error:.2g} in the script (tolerance {limit:g})"
    if captured.error <= limit or shown.error <= limit:
        return _no(figures)
    same = _same_order(captured.error, shown.error)
    return ReproMatch(same=same, why=figures if same else f"{figures}: not of the same order")


def _same_order(one: float, other: float) -> bool:
    if not (math.isfinite(one) and math.isfinite(other)):
        return math.isfinite(one) == math.isfinite(other)
    return max(one, other) <= ORDER * min(one, other)


def _judge_exceptions(captured: CapturedFailure, shown: Shown) -> ReproMatch:
    if shown.error is not None:
        return _no(f"the check raised {captured.exception}, and the script computes numbers off by {shown.error:.2g}")
    first, second = _core(captured.message), _core(shown.message)
    # An exception of a worker arrives as text: its class and the runtime's own status are in the message.
    if captured.exception == "WorkerError":
        first = first.removeprefix(f"{shown.exception}: ")
    if captured.exception in (shown.exception, "WorkerError") and _similar(first, second):
        return _yes(f"{shown.exception} in both, with the same message")
    named, said = set(_OPERATOR.findall(first)), set(_OPERATOR.findall(second))
    if named and named == said:
        return _yes(f"{shown.exception} in both messages, with {', '.join(sorted(named))}")
    if captured.exception == shown.exception and not (named or said):
        before, after = identify(first), identify(second)
        if before.error_type == after.error_type != "unknown" and before.cause == after.cause:
            return _yes(f"{shown.exception} in both, diagnosed as {before.error_type}")
    raised = f"{captured.exception}: {one_line(captured.message, longest=160)}"
    return _no(f"the check raised {raised}; the script ended otherwise: {_ended(shown)}")


def _core(message: str) -> str:
    """Return a message from the runtime's own status onward, if it has one."""
    _, found, rest = message.partition(_RUNTIMES)
    return found + rest if found else message


def _similar(first: str, second: str) -> bool:
    before, after = signature(first), signature(second)
    length = min(len(before), len(after), _LONGEST_ALIKE)
    return before[:length] == after[:length] and bool(length or before == after)


def _ended(shown: Shown) -> str:
    if shown.code is None:
        return f"no answer in {shown.seconds:.0f} s"
    if shown.code < 0:
        return f"signal {-shown.code}"
    if not shown.exception:
        return f"exit code {shown.code}"
    return f"{shown.exception}: {one_line(shown.message, longest=160)}"


def _yes(why: str) -> ReproMatch:
    return ReproMatch(same=True, why=why)


def _no(why: str) -> ReproMatch:
    return ReproMatch(same=False, why=why)
