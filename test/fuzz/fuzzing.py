"""How many inputs each test of this folder tries: one number, FUZZ_EXAMPLES, says it for all that are run.

`@pytest.mark.fuzz(60)` stands for 60 inputs in an ordinary run. Where FUZZ_EXAMPLES is set, so many inputs in all are
shared out among the tests that were chosen, in the same proportions, and drawn anew each time.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

VARIABLE = "FUZZ_EXAMPLES"


def usual_of(item: pytest.Item) -> int:
    """The inputs that a test tries in an ordinary run."""
    mark = item.get_closest_marker("fuzz")
    return int(mark.args[0]) if mark else 0


def share_of(usual: int, all_usual: int, wanted: str | None) -> int:
    """The inputs of a test that usually tries `usual`, where all chosen ones together usually try `all_usual`."""
    return usual if wanted is None else max(1, round(int(wanted) * usual / all_usual))


class Fuzz:
    """Calls a body with inputs drawn from strategies, as often as this run says; `inputs` is that number."""

    def __init__(self, inputs: int) -> None:
        self.inputs = inputs
        self.tried = 0

    def __call__(self, body: Callable[..., None], **strategies: Any) -> None:
        """Try `body(**drawn)`. What it raises ends the test, with the input that it was given."""

        def one(**drawn: Any) -> None:
            self.tried += 1
            body(**drawn)

        # Not shrunk: an input is mostly a seed, and no smaller one says more.
        settings(
            max_examples=self.inputs,
            deadline=None,
            database=None,
            derandomize=VARIABLE not in os.environ,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        )(given(**strategies)(one))()
