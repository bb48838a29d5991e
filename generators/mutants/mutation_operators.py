"""Mutation operators by name, and `mutate`, which breaks a model in place at a site drawn by a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hwcompat.hardware.errors import UsageError, did_you_mean, echo

from . import breaks, flow
from .model_anatomy import ModelAnatomy

if TYPE_CHECKING:
    import torch

SIDE = "under test"
"""The only side that is broken: the model passed to the backend. The float64 reference is built separately."""

CONTROL = "nothing"
"""Uses the same machinery and changes nothing: a failure with it is a fault of the harness."""


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One kind of break. `apply` changes the model in place and returns the place, or raises `ValueError`."""

    name: str
    describe: str
    apply: Callable[[torch.nn.Module, random.Random, ModelAnatomy], str]


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One break: the `operator` with its `seed`, its place (`site`), the `side`, and a description."""

    operator: str
    seed: int
    site: str
    side: str
    describe: str

    @property
    def name(self) -> str:
        """`<operator>@<seed>`."""
        return f"{self.operator}@{self.seed}"


_ALL = (
    Operator(
        name="attention_scale",
        describe="attention scores multiplied by 1.1 (state space: C; convolutions: half of the channels)",
        apply=breaks.scale_attention_scores,
    ),
    Operator(
        name="swapped_query_key",
        describe="query and key weights swapped "
        "(latent attention: key and value; state space: C and B; convolutions: halves of the channels)",
        apply=breaks.swap_query_and_key,
    ),
    Operator(
        name="dropped_mask",
        describe="mask input replaced by ones "
        "(without mask input: causal or window mask dropped; without a mask: a patch or frame set to zero)",
        apply=flow.drop_mask,
    ),
    Operator(
        name="stale_cache",
        describe="newest cache entry replaced by the previous one (without a cache: first output of a layer reused)",
        apply=flow.make_cache_stale,
    ),
    Operator(
        name="transposed_head",
        describe="heads and head features swapped before the output projection "
        "(state space and convolutions: groups of channels)",
        apply=breaks.transpose_heads,
    ),
    Operator(
        name="position_off_by_one",
        describe="learned, rotary, computed or convolved positions or linear biases shifted by one "
        "(without positions: a convolution's kernel)",
        apply=breaks.shift_positions,
    ),
    Operator(name="nan_row", describe="last row of the main output set to NaN", apply=breaks.put_nan),
    Operator(name="half_batch", describe="second half of the batch replaced by the first", apply=breaks.repeat_half),
    Operator(name="wrong_precision", describe="outputs rounded to bfloat16 and back", apply=breaks.round_to_bfloat16),
    Operator(name="frozen_output", describe="first outputs returned again for the same shapes", apply=breaks.freeze),
)

OPERATORS: Mapping[str, Operator] = {operator.name: operator for operator in _ALL}
"""The ten, in the order of the table."""

_KNOWN = {**OPERATORS, CONTROL: Operator(name=CONTROL, describe="changes nothing", apply=lambda *_: "no site")}


def parse_mutant(text: str) -> tuple[str, int]:
    """Return operator and seed of `<operator>@<seed>`. Raises `UsageError`."""
    name, separator, digits = text.partition("@")
    if name not in _KNOWN:
        raise UsageError(
            f"{echo(name)} isn't a mutation operator",
            why=f"known: {', '.join(OPERATORS)}",
            fix=did_you_mean(name, _KNOWN),
        )
    if not separator or not (digits.isascii() and digits.isdigit()):
        raise UsageError(f"{echo(text)} isn't a mutant", why="the format is <operator>@<seed>", fix=f"Try {name}@0.")
    return name, int(digits)


def mutate(model: torch.nn.Module, operator: str, seed: int, anatomy: ModelAnatomy) -> Mutant:
    """Break `model` in place; the same seed breaks the same place. `anatomy` is that of the unbroken model.

    Raises `ValueError` if the model has no site for the operator.
    """
    chosen = _KNOWN[operator]
    site = chosen.apply(model, random.Random(f"{operator}@{seed}"), anatomy)
    return Mutant(operator=operator, seed=seed, site=site, side=SIDE, describe=chosen.describe)
