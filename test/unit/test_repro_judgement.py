"""Whether a script fails the same way: what was raised, and how far numbers are off. A failure alone isn't enough."""

from __future__ import annotations

import math

import pytest

from hwcompat.plugins.triage.repro.captured_failure import CapturedFailure, Shape
from hwcompat.plugins.triage.repro.repro_script import Shown
from hwcompat.plugins.triage.repro_match import judge

LGAMMA = "Check 'false' failed\n-- No conversion rule found for operations: aten::lgamma"


def check(**values: object) -> CapturedFailure:
    return CapturedFailure(
        **{"check": "matches_reference", "shape": Shape.RAISED, "exception": "RuntimeError", **values}
    )


def script(code: int | None = 1, exception: str = "RuntimeError", message: str = "") -> Shown:
    return Shown(code=code, seconds=3.0, printed="", exception=exception, message=message)


def off(by: float, printed: str = "") -> Shown:
    message = f"logits is off by {by:.3e} of its scale, 2e-05 is allowed"
    return Shown(code=1, seconds=3.0, printed=printed, exception="AssertionError", message=message)


NUMBERS = {"shape": Shape.NUMBERS, "error": 1.5, "tolerance": 2e-5}


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        (check(**NUMBERS), off(1.5), True),
        (check(**NUMBERS), off(0.2), True),
        (check(**NUMBERS), off(0.1), False),  # not of the same order
        (check(**NUMBERS), off(1e-5), False),
        (check(**NUMBERS), script(exception="RuntimeError", message="no"), False),
        (check(**NUMBERS), script(exception="AssertionError", message="something else"), False),
        (check(**{**NUMBERS, "error": math.inf}), off(math.inf), True),
        (check(**{**NUMBERS, "error": math.inf}), off(1.5), False),
        (check(**{**NUMBERS, "error": None, "message": "228 was"}), off(math.inf, "tokens: 228 was"), True),
        (check(**{**NUMBERS, "error": None, "message": "228 was"}), off(math.inf, "tokens: 269 was"), False),
        (check(message="size of tensor a (48)"), script(message="size of tensor a (33)"), True),
        (check(message="size of tensor a"), script(message="index out of range"), False),
        (check(message="size of tensor a"), script(exception="ValueError", message="size of tensor a"), False),
        (check(message="size of tensor a"), off(1.5), False),
        (check(message=""), script(message="index out of range"), False),
        (check(exception="A", message=LGAMMA), script(exception="B", message=f"in one piece: {LGAMMA}"), True),
        (check(message=LGAMMA), script(message=LGAMMA.replace("lgamma", "polar")), False),
        (
            check(exception="WorkerError", message="Fail: [ONNXRuntimeError] : 1 : FAIL : nodes of the CPU EP"),
            script(exception="Fail", message="[ONNXRuntimeError] : 1 : FAIL : nodes of the CPU EP"),
            True,
        ),
        (check(shape=Shape.TIMEOUT), script(code=None, exception=""), True),
        (check(shape=Shape.TIMEOUT), script(message="no"), False),
        (check(), script(code=None, exception=""), False),
        (check(shape=Shape.CRASHED, signal=11), script(code=-11, exception=""), True),
        (check(shape=Shape.CRASHED, signal=11), script(code=-6, exception=""), False),
        (check(), script(code=-11, exception=""), False),
    ],
)
def test_only_the_same_failure_is_the_same(before: CapturedFailure, after: Shown, same: bool) -> None:
    found = judge(before, after)
    assert found.same is same
    assert found.why


@pytest.mark.parametrize("shape", list(Shape))
def test_a_script_that_does_not_fail_shows_nothing(shape: Shape) -> None:
    found = judge(check(shape=shape), script(code=0, exception=""))
    assert not found.same
    assert "called here" in found.why
