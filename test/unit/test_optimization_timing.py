"""Whether a change pays, on a machine on which other things run."""

from __future__ import annotations

import math
import random
import time
from typing import Any

import pytest
import torch
from optimised_models import CPU

from hardware.optimization import call_timing
from hardware.optimization.optimization_steps import ModuleChange

pytestmark = [
    pytest.mark.usefixtures("alone"),
    # torch.compile itself imports what torch has deprecated.
    pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning"),
]


@pytest.mark.parametrize(("slower", "most"), [(1.05, 0), (1.0, 1)])
def test_noise_keeps_nothing_that_is_no_faster(monkeypatch, slower, most):
    """Times that scatter by a fifth, and are threefold once in ten: a step is measured, and then the whole."""
    kept = 0
    for seed in range(300):
        drawn, on = random.Random(seed), [True]
        change = ModuleChange(on=lambda on=on: on.__setitem__(0, True), off=lambda on=on: on.__setitem__(0, False))

        def told(call: Any, calls: int, clock: Any, drawn: Any = drawn, on: Any = on) -> float:
            busy = 3.0 if drawn.random() < 0.1 else 1.0
            return busy * (slower if on[0] else 1.0) * math.exp(drawn.gauss(0, 0.2))

        monkeypatch.setattr(call_timing, "_seconds", told)
        kept += call_timing.compared(change, lambda: None).pays and call_timing.compared(change, lambda: None).pays
    assert kept <= most, f"{kept} of 300"


def test_what_is_faster_is_kept_through_noise(monkeypatch):
    kept = 0
    for seed in range(100):
        drawn, on = random.Random(seed), [True]
        change = ModuleChange(on=lambda on=on: on.__setitem__(0, True), off=lambda on=on: on.__setitem__(0, False))
        monkeypatch.setattr(
            call_timing,
            "_seconds",
            lambda call, calls, clock, drawn=drawn, on=on: (0.6 if on[0] else 1.0) * math.exp(drawn.gauss(0, 0.1)),
        )
        kept += call_timing.compared(change, lambda: None).pays
    assert kept > 95


def test_on_one_thread_of_the_host_other_processes_add_nothing_to_a_time():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert call_timing.clock_of(CPU) is time.process_time
        assert call_timing.clock_of(torch.device("cuda")) is time.perf_counter
        torch.set_num_threads(2)
        assert call_timing.clock_of(CPU) is time.perf_counter
    finally:
        torch.set_num_threads(before)
