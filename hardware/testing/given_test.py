"""`GivenTest`, the base of suites of users' own models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ..backends.base import Runnable
from ..compare import Array, Comparison
from .graph_outputs import NO_PARTS, Parts, masked_alike, with_parts
from .measurement import Ambiguous, Outputs
from .model_test import ModelTest
from .tolerances import file_rule, tolerance_for


class GivenTest(ModelTest):
    """A `ModelTest` of a user's own model with the same calls.

    `scales` are the spreads over inputs of outputs and of the `parts` that have a much smaller one. `float32_costs`
    are the errors that float32 alone costs, of outputs for which they are large. `inputs_from` says where inputs come
    from; no input moves the outputs `unmoved`. `stated` are further facts.
    """

    def __init__(
        self,
        *arguments: Any,
        scales: Mapping[str, float] = MappingProxyType({}),
        parts: Parts = NO_PARTS,
        float32_costs: Mapping[str, float] = MappingProxyType({}),
        inputs_from: str = "",
        unmoved: Sequence[str] = (),
        not_compared: Sequence[str] = (),
        stated: Mapping[str, str] = MappingProxyType({}),
        **named: Any,
    ) -> None:
        super().__init__(*arguments, **named)
        self._scales, self.parts = dict(scales), parts
        self._costs = dict(float32_costs) if self.cell.precision == "float32" else {}
        most = file_rule().most / file_rule().factor
        self._too_sensitive = {name for name, cost in self._costs.items() if cost > most}
        self._stated = {
            "inputs": inputs_from,
            "unmoved": ", ".join(unmoved),
            "not_compared": ", ".join(not_compared),
            "sensitive": ", ".join(f"{name} by {cost:.1e}" for name, cost in self._costs.items()),
            "not_judged": ", ".join(sorted(self._too_sensitive)),
            **stated,
        }

    @property
    def _are_all_sensitive(self) -> bool:
        return self._too_sensitive >= self._scales.keys() - self.parts.keys()

    @property
    def _judged_scales(self) -> dict[str, float]:
        """The scale of each output and part. That of an output that float32 alone changes by more than the limit
        allows is as many times as large as its own limit is."""
        rule, limit = file_rule(), tolerance_for(self.actual_target, self.cell.precision).limit
        widest = rule.most if self._are_all_sensitive else math.inf
        wider = {name: max(1.0, min(rule.factor * cost, widest) / limit) for name, cost in self._costs.items()}
        return {name: scale * wider.get(name, 1.0) for name, scale in self._scales.items()}

    def _compare(self, got: Mapping[str, Array], want: Outputs) -> Comparison:
        """Return the comparison of what isn't masked, by outputs and their parts; empty outputs are equal."""
        filled, masked = self._judged_arrays(got, want)
        if not masked and want.arrays:
            return Comparison(max_rel_error=0.0, max_abs_error=0.0, worst=next(iter(want.arrays)))
        return super()._compare(filled, replace(want, arrays=masked))

    def _judged_arrays(self, got: Mapping[str, Array], want: Outputs) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return what is compared of both: outputs and their parts, without those that are empty in both."""
        filled, masked = (with_parts(one, self.parts) for one in masked_alike(got, want.arrays))
        both = masked.keys() & filled.keys()
        empty = {name for name in both if not masked[name].size and filled[name].shape == masked[name].shape}
        return filled, {name: one for name, one in masked.items() if name not in empty}

    def _required(self, want: Outputs) -> tuple[str, ...]:
        return tuple(name for name in super()._required(want) if name in want.arrays)

    def error(self, got: Outputs, want: Outputs) -> float:
        """Return the error as for a model. Raises `Ambiguous` if it is beyond the limit and rounding may be why: the
        model amplifies it on these inputs, or rounding in half precision was allowed for whole outputs and a part of
        them is beyond the limit."""
        found = self._judged(super().error(got, want))
        if self.parts and found <= self.tolerance:
            natural = got.furthest(lambda arrays: self._compare(arrays, want))[0]
            if natural.worst in self.parts and natural.max_rel_error > self.tolerance:
                raise Ambiguous(f"{natural}: rounding in {self.cell.precision} may be why")
        return found

    def _judged(self, found: float) -> float:
        comparison = self.measured.comparison
        cost = 0.0 if comparison is None else self._costs.get(comparison.worst, 0.0)
        explained = self.tolerance * file_rule().factor * cost / file_rule().most
        if self._are_all_sensitive and self.tolerance < found <= explained:
            raise Ambiguous(
                f"{comparison}: too sensitive to judge on these inputs, because float32 alone changes the outputs by "
                f"{cost:.1e} of their spread"
            )
        return found

    def _conditions(self, loaded: Runnable | None) -> dict[str, str]:
        return super()._conditions(loaded) | {name: text for name, text in self._stated.items() if text}
