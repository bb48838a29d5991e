"""A network of two layers, small enough to be loaded in many ways, with one operator that a runtime may lack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hardware.backends.base import ModelInput

INPUTS = {"values": np.random.default_rng(0).normal(size=(2, 12)).astype(np.float32)}


def small_network(
    name: str = "small", *, activation: str = "tanh", special: Callable[[Any], Any] | None = None
) -> ModelInput:
    """The network with an activation of torch, and `special` after it."""
    import torch

    activate = getattr(torch, activation, None) or getattr(torch.nn.functional, activation)

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(12, 16), torch.nn.Linear(16, 4)

        def forward(self, values: Any) -> Any:
            hidden = activate(self.first(values))
            return {"output": self.second(special(hidden) if special else hidden)}

    torch.manual_seed(0)
    return ModelInput(model=Network().eval(), task="other", identity=f"{name} {bool(special)}")


def wanted(subject: ModelInput, inputs: dict[str, Any] = INPUTS) -> Any:
    """What torch computes of it here."""
    import torch

    with torch.no_grad():
        return subject.model(torch.as_tensor(inputs["values"]))["output"].numpy()


def error_of(got: Any, want: Any) -> float:
    """The largest difference, in standard deviations of what was wanted."""
    return float(np.abs(got - want).max() / want.std())
