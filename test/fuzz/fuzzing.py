"""How many inputs each test of this folder tries: one number, FUZZ_EXAMPLES, says it for all that are run.

`@pytest.mark.fuzz(60)` stands for 60 inputs in an ordinary run, the same ones each time, and for a quarter of them in
a run without nightly tests. Where FUZZ_EXAMPLES is set, so many inputs in all are shared out among the tests that
were chosen, in the same proportions, and drawn anew.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile import Hostile

VARIABLE = "FUZZ_EXAMPLES"
_QUICK = 4


def usual_of(item: pytest.Item) -> int:
    """The inputs that a test tries in an ordinary run."""
    mark = item.get_closest_marker("fuzz")
    is_quick = "not nightly" in item.config.getoption("markexpr")
    return -(-int(mark.args[0]) // (_QUICK if is_quick else 1)) if mark else 0


def share_of(usual: int, all_usual: int, wanted: str | None) -> int:
    """The inputs of a test that usually tries `usual`, where all chosen ones together usually try `all_usual`."""
    return usual if wanted is None else max(1, round(int(wanted) * usual / all_usual))


class Fuzz:
    """Gives a test its inputs, as often as this run says; `inputs` is that number. A failed test prints its seed."""

    def __init__(self, inputs: int, test: str, sentinel: Path | str) -> None:
        self.inputs = inputs
        self.tried = 0
        self.seed = ""
        self._test = f"{test} {secrets.token_hex(8)}" if VARIABLE in os.environ else test
        self._sentinel = sentinel

    def __iter__(self) -> Iterator[Hostile]:
        for number in range(1, self.inputs + 1):
            self.tried = number
            self.seed = f"{self._test} {self.tried}"
            yield Hostile(self.seed, self._sentinel)
