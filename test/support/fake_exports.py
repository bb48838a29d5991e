"""Exports that are never read from a file: they multiply their input, and decode one token over and over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hardware.backends.base import Generation

INPUTS = {"x": np.linspace(-1, 1, 32, dtype=np.float32).reshape(2, 16)}


class Runs:
    """An opened export that multiplies by `factor`, refuses inputs that `fits` doesn't allow, and decodes a token."""

    def __init__(self, factor: float, fits: Callable[[Any], bool] = lambda x: True, decodes: int = 2) -> None:
        self.factor, self.fits, self.decodes = factor, fits, decodes

    def __call__(self, inputs: Any) -> Any:
        if not self.fits(inputs["x"]):
            raise RuntimeError("shapes are frozen")
        return {"out": self.factor * inputs["x"]}

    def generate(self, inputs: Any, *, steps: int) -> Generation:
        if not self.decodes:
            raise RuntimeError("no cache")
        tokens = np.full((2, steps), self.decodes)
        return Generation(tokens=tokens, logits=tokens[..., None] * np.arange(4.0), start=tokens[:, :0])
