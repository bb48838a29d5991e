"""What is left of an error beyond what the precision's own rounding explains.

A right result in bfloat16 may be farther from float64 than the tolerance for two reasons. A choice by the largest
score, such as a router's, may differ if two scores are closer than rounding; all later values then differ. And some
models amplify a rounding error in every layer. Both are computed here without the target: float64 with the target's
choices, if rounding may have made those that count, and the same pass with every operator exact and rounded once. The
error beyond both has to be within the tolerance, and the cell is at most `medium`, with the reason.

In float32 only the second counts. Kernels add in other orders, which costs more than one rounding of each result:
`sums` times as much (tolerances.toml) is allowed, where this is more than the tolerance.

A router also chooses for padding. For a position that may attend to nothing, a fused attention kernel returns other
values than a plain one, so that these choices are arbitrary. They don't count: nothing that is compared depends on
them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..backends._torch import loss_gradients
from ..backends.base import STEPS, Generation
from ..compare import Array, Comparison, compare, compare_gradients, is_whole
from ..model.calls import forward, in_dtype, to_arrays, to_tensors, torch_dtype
from ..model.greedy_decoding import greedy
from .measurement import Outputs
from .reference import (
    as_reference,
    float64_generation,
    float64_gradients,
    float64_outputs,
    with_eager_experts,
)
from .rounded_operators import exact_operators, rounded_products, rounded_results
from .router_choices import RouterChoice, beyond_rounding, choices_of_whole_passes, hold_choices
from .tolerances import rounding

if TYPE_CHECKING:
    import torch

TF32 = "tf32"
COARSE = frozenset({"bfloat16", "float16", TF32})
"""Precisions that round so much that a right result may be beyond the tolerance."""
SETTLED = COARSE | {"float32"}
"""Precisions in which an error may be rounding."""

CHOICES, ROUNDING = "choices", "rounding"
"""Conditions of a run, in `levels.toml`."""

_Arrays = Mapping[str, Array]
_UNCHANGED = 1e-9
"""The allowed change of float64's own result, relative to the scale, if choices that don't count differ."""

_LOGITS = "logits"


@dataclass(frozen=True, kw_only=True)
class Explained:
    """A pass without the target that makes the target's choices: `exact` in float64, and twice with exact operators
    whose results are rounded once, of the model in the precision (`narrow`) and in float64 (`wide`). `changed` is
    True if the choices aren't those of float64."""

    exact: Mapping[str, Array]
    narrow: Mapping[str, Array]
    wide: Mapping[str, Array]
    changed: bool

    def radius(self, compared: Callable[[Mapping[str, Array], Mapping[str, Array]], Comparison]) -> float:
        """Return how far rounding moves the result. A branch of the model's code for half precision isn't part of the
        float64 pass, so that a fault in it doesn't excuse itself."""
        narrow, wide = (compared(one, self.exact).max_rel_error for one in (self.narrow, self.wide))
        return min(narrow, rounding().spread * wide)


@dataclass(frozen=True, kw_only=True)
class HalfPrecisionResult:
    """The error beyond rounding, the allowed rounding relative to the result's scale, and whether choices weren't
    float64's."""

    comparison: Comparison
    rounding: float
    changed: bool


@dataclass(kw_only=True)
class HalfPrecision:
    """Passes of one model in one precision of `SETTLED`, on the CPU.

    `exact` returns the model in float64, `build` a new one in float32, `natural` float64's outputs for inputs with
    its own choices; `limit` is the tolerance.
    """

    precision: str
    limit: float
    exact: Callable[[], torch.nn.Module]
    build: Callable[[], torch.nn.Module]
    natural: Callable[[Mapping[str, Array]], Mapping[str, Array]]
    _generation: Explained | None = None
    _rounding: float = 0.0
    _changed: bool = False

    # Passes without the target

    def _explain(
        self,
        choices: Sequence[RouterChoice],
        exact: Callable[[Any], _Arrays],
        narrow: Callable[[Any], _Arrays],
        compared: Callable[[_Arrays, _Arrays], Comparison],
    ) -> Explained | None:
        """Return the passes, or None if rounding doesn't explain the choices or such a pass can't be made. `exact`
        runs a model in float64, `narrow` one in the precision; `compared` compares the results that count.

        Choices without an effect on these results need no explanation.
        """
        dtype = torch_dtype(self.precision)
        try:
            with hold_choices(choices) as held:
                first = exact(self.exact())
            model = with_eager_experts(in_dtype(self.build(), dtype)).eval()
            in_tf32 = self.precision == TF32
            with hold_choices(choices) as near, rounded_products() if in_tf32 else exact_operators():
                second = narrow(model)
            with hold_choices(choices) as nearer, rounded_products() if in_tf32 else rounded_results(dtype):
                third = exact(as_reference(model))
            beyond = beyond_rounding(held, (near, nearer))
            if any(one.any() for one in beyond):
                with hold_choices(choices, but=beyond):
                    other = exact(self.exact())
                if not compared(other, first).max_rel_error <= _UNCHANGED:
                    return None
        except Exception:  # nothing is explained: keep the target's error
            return None
        changed = any(((gaps > 0) & ~one).any() for gaps, one in zip(held.gaps, beyond, strict=True))
        return Explained(exact=first, narrow=second, wide=third, changed=changed)

    def _tensors(self, inputs: Mapping[str, Array]) -> dict[str, torch.Tensor]:
        return to_tensors(inputs, "cpu", torch_dtype(self.precision))

    def _outputs(self, got: Outputs) -> Explained | None:
        """Return the passes for the forward pass with the outputs `got`."""
        import torch

        def rounded(model: torch.nn.Module) -> dict[str, Array]:
            with torch.no_grad():
                return to_arrays(forward(model, self._tensors(got.inputs)))

        return self._explain(
            got.choices,
            lambda model: float64_outputs(model, got.inputs),
            rounded,
            lambda other, first: compare(other, first, masks=got.masks),
        )

    def explains_generation(
        self, inputs: Mapping[str, Array], choices: Sequence[RouterChoice], generated: Generation
    ) -> bool:
        """Decode the target's tokens without a cache. Return whether rounding explains them."""
        rows = len(generated.tokens)
        given = choices_of_whole_passes(choices, rows, STEPS) if generated.used_cache else choices
        if given is None:
            return False

        def arrays(one: Generation) -> dict[str, Array]:
            return {_LOGITS: one.logits}

        self._generation = self._explain(
            given,
            lambda model: arrays(float64_generation(model, inputs, steps=STEPS)),
            lambda model: arrays(greedy(model, self._tensors(inputs), steps=STEPS, use_cache=False)),
            compare,
        )
        return self._generation is not None

    # The error beyond rounding

    def settle_outputs(self, got: Outputs, want: Outputs, required: Sequence[str]) -> HalfPrecisionResult | None:
        """Compare outputs with those of float64, moved by what the target's choices change."""
        explained = self._outputs(got) if all(name in got.arrays for name in required) else None
        if explained is None:
            return None
        natural = self.natural(got.inputs) if explained.changed else explained.exact
        pairs = {}
        for name in (name for name in want.arrays if name in got.arrays):
            exact, wanted = explained.exact[name], want.arrays[name]
            if explained.changed and exact.shape == wanted.shape:
                wanted = exact if is_whole(wanted) else wanted + (exact - natural[name])
            pairs[name] = got.arrays[name], wanted
        return self._settle_arrays([explained], pairs, want.masks, want.scales)

    def settle_recorded(
        self, got: Outputs, output: str, recorded: Mapping[tuple[int, ...], float], scale: float
    ) -> HalfPrecisionResult | None:
        """Compare single elements of an output with those of the recipe, moved likewise."""
        explained = self._outputs(got)
        if explained is None:
            return None
        moved = got.arrays[output] - (explained.exact[output] - self.natural(got.inputs)[output])
        absolute = max(abs(float(moved[position]) - value) for position, value in recorded.items())
        radius = explained.radius(_of_one(output, got.masks))
        return self._settle([explained], {output: (absolute / scale, absolute, radius)})

    def settle_gradients(
        self,
        got: Mapping[str, Array],
        inputs: Mapping[str, Array],
        choices: Sequence[RouterChoice],
        masked_by: Mapping[str, str],
        *,
        training: bool,
    ) -> HalfPrecisionResult | None:
        """Compare all gradients as one vector."""
        explained = self._explain(
            choices,
            lambda model: float64_gradients(model, inputs, masked_by, training=training),
            lambda model: loss_gradients(model, self._tensors(inputs), masked_by, training=training),
            compare_gradients,
        )
        if explained is None:
            return None
        one = compare_gradients(got, explained.exact)
        radius = explained.radius(compare_gradients)
        return self._settle([explained], {one.worst: (one.max_rel_error, one.max_abs_error, radius)})

    def settle_generation(self, got: Generation) -> HalfPrecisionResult | None:
        """Compare the logits of all steps with float64's for the same tokens."""
        explained = self._generation
        if explained is None:
            return None
        return self._settle_arrays([explained], {_LOGITS: (got.logits, explained.exact[_LOGITS])}, {})

    def _settle_arrays(
        self,
        passes: Sequence[Explained],
        pairs: Mapping[str, tuple[Array, Array]],
        masks: Mapping[str, Array],
        scales: Mapping[str, float] = MappingProxyType({}),
    ) -> HalfPrecisionResult | None:
        found = {}
        for name, (got, want) in pairs.items():
            one = compare({name: got}, {name: want}, masks=masks, scales=scales)
            radius = passes[0].radius(_of_one(name, masks, scales))
            found[name] = one.max_rel_error, one.max_abs_error, radius
        return self._settle(passes, found)

    def _settle(
        self, passes: Sequence[Explained], errors: Mapping[str, tuple[float, float, float]]
    ) -> HalfPrecisionResult | None:
        """Return the largest of `errors`, or its part beyond rounding if it isn't within the tolerance; None if
        rounding hides a fault.

        For each output: the error relative to its scale and absolute, and how far rounding moves it.
        """
        used = {
            name: self._allowed(radius) if error > self.limit else 0.0 for name, (error, _, radius) in errors.items()
        }
        if not max(used.values()) <= rounding().most * self.limit:
            return None
        beyond = {name: max(0.0, error - used[name]) for name, (error, *_) in errors.items()}
        worst = max(beyond, key=lambda name: beyond[name])
        relative, absolute, _ = errors[worst]
        share = beyond[worst] / relative if 0 < relative < math.inf else 1.0
        return HalfPrecisionResult(
            comparison=Comparison(max_rel_error=beyond[worst], max_abs_error=absolute * share, worst=worst),
            rounding=max(used.values()),
            changed=any(one.changed for one in passes),
        )

    def _allowed(self, radius: float) -> float:
        """Return what is allowed beyond the limit for results that rounding moves by `radius`."""
        if self.precision not in COARSE:
            return max(0.0, rounding().sums * radius - self.limit)
        return radius if radius >= rounding().least * self.limit else 0.0

    # Conditions of a check

    def adopt(self, settled: HalfPrecisionResult) -> None:
        """Add what was allowed for to the conditions."""
        self._rounding = max(self._rounding, settled.rounding)
        self._changed |= settled.changed

    def adopt_generation(self) -> None:
        """Add to the conditions that tokens aren't float64's."""
        if self._generation is not None:
            self._changed |= self._generation.changed

    def take_conditions(self) -> dict[str, str]:
        """Return the conditions of the check that just ended, and clear them."""
        found = {}
        if self._changed:
            found[CHOICES] = (
                f"scores differ by less than {self.precision} rounding, and the target chose another expert or token "
                "than float64; everything else was compared with the same choices"
            )
        if self._rounding:
            found[ROUNDING] = self._rounding_said()
        self._rounding, self._changed = 0.0, False
        return found

    def _rounding_said(self) -> str:
        if self.precision not in COARSE:
            allowed = math.ceil((self.limit + self._rounding) * 1e6) / 1e6
            return (
                f"results are sensitive to {self.precision} rounding: up to {allowed:.2g} of the "
                f"scale was allowed, {rounding().sums:g} times what exact operators cost"
            )
        times = math.ceil(self._rounding / self.limit)
        return (
            f"{self.precision} rounding alone changes a result by up to {times * self.limit:g} of its scale, even "
            "with exact operators; errors beyond that were compared"
        )


def _of_one(
    name: str, masks: Mapping[str, Array], scales: Mapping[str, float] = MappingProxyType({})
) -> Callable[[Mapping[str, Array], Mapping[str, Array]], Comparison]:
    return lambda got, want: compare({name: got[name]}, {name: want[name]}, masks=masks, scales=scales)
