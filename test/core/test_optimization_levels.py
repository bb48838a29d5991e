"""Names of optimization levels, and whether a change pays on a machine on which other things run."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from hardware.errors import UsageError
from hardware.optimization import OptimizationLevel
from hardware.optimization.call_timing import Timing, compared
from hardware.optimization.optimization_steps import ModuleChange


def test_levels_have_names_in_any_case_and_an_unknown_one_is_an_error() -> None:
    levels = {
        **{"O0": "O0", "none": "O0", "NONE": "O0", "o1": "O1", "Conservative": "O1", " balanced ": "O2"},
        **{"default": "O2", "o3": "O3", "AGGRESSIVE": "O3", "2": "O2"},
    }
    assert {text: OptimizationLevel.from_string(text).value for text in levels} == levels
    for text in ("", "O4", "agressive", "-1"):
        with pytest.raises(UsageError, match="unknown optimisation level"):
            OptimizationLevel.from_string(text)


class Machine:
    """A clock that only calls move: by `seconds`, which is told whether the change is in force."""

    def __init__(self, seconds: Callable[[bool], float]) -> None:
        self.seconds, self.now, self.on = seconds, 0.0, True
        self.change = ModuleChange(on=lambda: self._switch(True), off=lambda: self._switch(False))

    def _switch(self, on: bool) -> None:
        self.on = on

    def _call(self) -> None:
        self.now += self.seconds(self.on)

    def timing(self) -> Timing:
        found = compared(self.change, self._call, lambda: self.now)
        assert self.on, "the change is left in force"
        return found


def noisy(seed: int, factor: float, spread: float, busy: float = 0.0) -> Machine:
    """A call takes 1 s, `factor` s with the change, with noise; and threefold in the share `busy` of calls."""
    drawn = random.Random(seed)

    def seconds(on: bool) -> float:
        slow = 3.0 if drawn.random() < busy else 1.0
        return slow * (factor if on else 1.0) * math.exp(drawn.gauss(0, spread))

    return Machine(seconds)


def test_the_median_of_rounds_decides_and_few_faster_rounds_are_not_enough() -> None:
    found = Machine(lambda on: 0.5 if on else 1.0).timing()
    assert (found.before, found.after, found.ratio, found.pays) == (1.0, 0.5, 0.5, True)
    assert len(found.ratios) == 15
    assert not Machine(lambda on: 0.98 if on else 1.0).timing().pays, "3 % are needed"
    slower = Machine(lambda on: 1.1 if on else 1.0).timing()
    assert not slower.pays
    assert len(slower.ratios) == 4, "it ends when the change can't pay any more"
    assert not Timing(before=1.0, after=0.5, ratios=(*[0.5] * 11, *[1.0] * 4)).pays
    assert Timing(before=1.0, after=0.5, ratios=(*[0.5] * 12, *[1.0] * 3)).pays


@pytest.mark.parametrize(("factor", "most"), [(1.05, 0), (1.0, 1)])
def test_noise_keeps_no_change_that_is_no_faster(factor: float, most: int) -> None:
    """A step is measured, and then the whole."""
    machines = [noisy(seed, factor, 0.2, busy=0.1) for seed in range(300)]
    assert sum(one.timing().pays and one.timing().pays for one in machines) <= most


def test_a_faster_change_is_kept_through_noise() -> None:
    assert sum(noisy(seed, 0.6, 0.1).timing().pays for seed in range(100)) > 95
