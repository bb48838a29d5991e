"""Dropout in all places of a model: modules, and probabilities that modules keep as numbers."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from ..compare import Array, compare
from ..model.calls import forget_passes
from .reference import float64_outputs

if TYPE_CHECKING:
    import torch

_DROPS, _NOISE = ("drop",), ("drop", "jitter")
"""Parts of the names of attributes that hold a probability of dropout, and of all that disturb training."""
_LARGE = 0.5
_SEEDS = (0, 1, 2, 3)
"""Dropout of whole layers drops none of a few with some seeds."""


def _places(model: torch.nn.Module, words: tuple[str, ...] = _DROPS) -> Iterator[tuple[torch.nn.Module, str, str]]:
    """Yield each module that holds a probability, the attribute, and a name of its kind: that of the attribute, or of
    the module in its parent."""
    import torch

    for path, module in model.named_modules():
        is_dropout = isinstance(module, torch.nn.modules.dropout._DropoutNd)
        for name, value in list(vars(module).items()):
            is_noise = any(word in name for word in words) or (is_dropout and name == "p")
            if isinstance(value, float) and is_noise:
                parts = [part for part in path.split(".") if not part.isdigit()]
                owner = type(model.get_submodule(path.rpartition(".")[0])).__name__
                yield module, name, f"{owner}.{parts[-1]}" if name == "p" else f"{type(module).__name__}.{name}"


@contextmanager
def dropout(model: torch.nn.Module, probability: float, only: Collection[str] | None = None) -> Iterator[None]:
    """Set the probability in all places, or in those of the kinds `only`; 0 switches off other noise too."""
    words = _DROPS if probability else _NOISE
    places = [
        (module, name, getattr(module, name))
        for module, name, kind in _places(model, words)
        if only is None or kind in only
    ]
    for module, name, _ in places:
        setattr(module, name, probability)
    try:
        yield
    finally:
        for module, name, before in places:
            setattr(module, name, before)


@contextmanager
def buffers_kept(model: torch.nn.Module) -> Iterator[None]:
    """Restore all buffers afterwards: batch normalization changes its statistics in training mode."""
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        yield
    finally:
        for name, buffer in model.named_buffers():
            if name in before and buffer.shape == before[name].shape:
                buffer.copy_(before[name])


@contextmanager
def seeded(seed: int = 0) -> Iterator[None]:
    """Use one seed of torch, NumPy and Python inside, and afterwards the states of before of the CPU's generators."""
    import torch

    before = np.random.get_state(), random.getstate()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            np.random.seed(seed)
            random.seed(seed)
            yield
    finally:
        np.random.set_state(before[0])
        random.setstate(before[1])


def unused_dropout(model: torch.nn.Module, inputs: Mapping[str, Array]) -> list[str]:
    """Return the kinds of dropout of a float64 model that change nothing in training mode."""

    def trained(seed: int, *kinds: str) -> dict[str, Array]:
        with buffers_kept(model), dropout(model, 0.0), dropout(model, _LARGE, only=kinds), seeded(seed):
            model.train()
            try:
                return float64_outputs(model, inputs)
            finally:
                forget_passes(model)

    unused = list(dict.fromkeys(kind for *_, kind in _places(model)))
    for seed in _SEEDS:
        if unused:
            without = trained(seed)
            unused = [kind for kind in unused if not compare(trained(seed, kind), without).max_rel_error > 0]
    return unused
