"""Fixtures for tests of optimizers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Says by what each strategy that is in force in the module multiplies the time of a call; without, it is 1 s."""

    from hardware.optimization import CPUOptimizer, attempts

    def set_to(**factors: float) -> None:
        ways = {one: factors[one.name] for one in map(_made, CPUOptimizer.STRATEGIES) if one.name in factors}

        def told(call: Any, calls: int, clock: Any) -> float:
            model = call.__self__._setting.model
            return math.prod(factor for one, factor in ways.items() if one.is_applied(model))

        monkeypatch.setattr(attempts, "_seconds", told)

    return set_to


def _made(strategy: type[Any]) -> Any:
    return strategy()


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Leaves an optimizer these strategies."""

    from hardware.optimization import CPUOptimizer

    def keep(*strategies: type[Any]) -> None:
        monkeypatch.setattr(CPUOptimizer, "STRATEGIES", strategies)

    return keep


@pytest.fixture
def alone() -> Iterator[None]:
    """No compiled code of another test, and one thread: two wait for one another on a machine with other work."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    torch._dynamo.reset()
