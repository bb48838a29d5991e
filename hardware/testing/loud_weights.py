"""Weights that make faults audible.

A library's own initialisation hides faults: in a default tiny BERT, doubling the attention scale moves the
output by less than bfloat16's noise. `fill` sets every parameter from its qualified name alone, so that the
same model has the same numbers on every machine, and loud enough that a wrong operator shows.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

GAINS = (1.5, 1.0, 0.7, 0.5)
"""The gains that a recipe may choose from, loudest first."""

_JITTER = 0.3


def _generator(seed: str, name: str) -> np.random.Generator:
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "big")))


def _fan_in(name: str, shape: tuple[int, ...]) -> int:
    """Inputs that one output adds up: the row of an embedding, else everything but the first axis."""
    return shape[-1] if "embed" in name else math.prod(shape[1:])


def _is_scale(name: str) -> bool:
    lowered = name.lower()
    return ("norm" in lowered or "ln_" in lowered) and lowered.endswith("weight")


def fill(model: torch.nn.Module, *, gain: float = 1.0, seed: str = "0") -> torch.nn.Module:
    """Set every parameter of `model` in place by its qualified name, and return it in evaluation mode.

    Matrices are N(0, gain / sqrt(fan_in)); vectors are jittered around 0, normalisation weights around 1.
    Tied parameters are set once, under the first of their names. Numbers come from NumPy's Philox generator
    in float64 and are rounded to the parameter's dtype.
    """
    import torch

    done: set[int] = set()
    with torch.no_grad():
        for name, parameter in model.named_parameters(remove_duplicate=False):
            if id(parameter) in done:
                continue
            done.add(id(parameter))
            noise = _generator(seed, name).standard_normal(tuple(parameter.shape))
            if parameter.ndim >= 2:
                value = noise * (gain / math.sqrt(max(1, _fan_in(name, tuple(parameter.shape)))))
            else:
                value = (1.0 if _is_scale(name) else 0.0) + _JITTER * noise
            parameter.copy_(torch.as_tensor(np.asarray(value)).to(parameter.dtype))
    return model.eval()
