"""Which weights and inputs of a user's module its outputs show, with its own weights and with seeded ones."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hwcompat.hardware.compare import Array, ReferenceNotFinite, compare
from hwcompat.hardware.testing.reference import as_reference, float64_outputs
from hwcompat.hardware.testing.seeded_weights import fill

from . import measurements

if TYPE_CHECKING:
    import torch

_LAYERS = 200
"""Layers that are tried, evenly spread."""
_GAINS = (1.0, 1.5, 0.7)
_SHARE = 0.1


def undetected_weights(
    model: torch.nn.Module, sets: Sequence[Mapping[str, Array]], scales: Mapping[str, float]
) -> tuple[list[str], int]:
    """Return the layers of which a change of all weights by 10 % moves no output by `SUBTLE` on any of the sets of
    inputs, and how many were tried. The weights are as before afterwards."""
    wanted = [measurements.results_of(model, inputs) for inputs in sets]
    layers = [
        (name, own)
        for name, module in model.named_modules()
        if (own := [one for one in module.parameters(recurse=False) if one.is_floating_point() or one.is_complex()])
    ]
    tried = layers[:: -(-len(layers) // _LAYERS) or 1]
    missed = []
    for name, own in tried:
        with _changed(own):
            pairs = zip(sets, wanted, strict=True)
            if not any(_moves(model, inputs, want, scales) for inputs, want in pairs):
                missed.append(name.removeprefix("module.") or "its own")
    return missed, len(tried)


def _moves(
    model: torch.nn.Module, inputs: Mapping[str, Array], want: Mapping[str, Array], scales: Mapping[str, float]
) -> bool:
    try:
        return (
            compare(measurements.results_of(model, inputs), want, scales=scales).max_rel_error >= measurements.SUBTLE
        )
    except ReferenceNotFinite:  # an output is empty: nothing shows
        return False
    except Exception:  # the user's own code may refuse such weights: it does notice them
        return True


@contextlib.contextmanager
def _changed(parameters: list[torch.nn.Parameter]) -> Iterator[None]:
    """Change each weight by 10 % of it, in a random direction."""
    import torch

    before = [one.detach().clone() for one in parameters]
    random = np.random.default_rng(0)
    try:
        with torch.no_grad():
            for one in parameters:
                signs = torch.as_tensor(random.choice((-1.0, 1.0), tuple(one.shape)))
                one.mul_(1 + _SHARE * signs.to(one.dtype))
        yield
    finally:
        with torch.no_grad():
            for one, kept in zip(parameters, before, strict=True):
                one.copy_(kept)


def detecting_gain(
    build: Callable[[], torch.nn.Module], sets: Sequence[Mapping[str, Array]], undetected: int
) -> tuple[float, list[str]]:
    """Return a gain of seeded weights with which changes of more layers are detected than `undetected` leaves, and
    the layers that stay undetected; 0 if there is none."""
    best: tuple[float, list[str]] = (0.0, [""] * undetected)
    for gain in _GAINS:
        model = fill(build(), gain=gain)
        try:
            exact = float64_outputs(as_reference(fill(build(), gain=gain)), sets[0])
            error = compare(measurements.results_of(model, sets[0]), exact).max_rel_error
            missed, _ = undetected_weights(model, sets, {})
        except Exception:  # not finite, or refused by the user's own code
            continue
        if error <= measurements.STEADY and len(missed) < len(best[1]):
            best = gain, missed
    return best


def unread_inputs(
    run: Callable[[Mapping[str, Array]], Mapping[str, Array]],
    inputs: Mapping[str, Array],
    other: Mapping[str, Array],
    reference: Mapping[str, Array],
) -> list[str]:
    """Return the inputs that change no output when each alone is replaced by `other`, or by its opposite."""
    unread = []
    for name, one in inputs.items():
        others = (other[name], np.zeros_like(one), np.ones_like(one), one[::-1] if one.ndim else one)
        different = list(itertools.islice((new for new in others if not np.array_equal(new, one)), 2))
        if different and all(_leaves(run, {**inputs, name: new}, reference) for new in different):
            unread.append(name)
    return unread


def _leaves(
    run: Callable[[Mapping[str, Array]], Mapping[str, Array]],
    inputs: Mapping[str, Array],
    reference: Mapping[str, Array],
) -> bool:
    try:
        found = run(inputs)
    except Exception:  # the user's own code does read it
        return False
    return all(name in found and np.array_equal(found[name], one) for name, one in reference.items())
