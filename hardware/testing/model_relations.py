"""The relations that a model has whatever its weights are: rows of a batch, attention and causality."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends._torch import TorchRunnable
from ..compare import Array, Comparison, compare
from ..evidence.record import Stage
from ..output_masks import masks_of
from .capability_checks import CapabilityChecks
from .changed_model import with_attention
from .measurement import NotApplicable, Outputs
from .module_states import observed_pass
from .row_of_batch import row_alone, share_of_row

if TYPE_CHECKING:
    import torch

_SAME = 1e-9
"""A difference of float64 results, relative to their scale, that rounding explains."""


class ModelRelations(CapabilityChecks):
    """The part of `ModelTest` that needs no recorded numbers. Rows run on the target; what no target can change
    (attention, causality) is computed in float64 on the CPU."""

    required: tuple[str, ...]

    if TYPE_CHECKING:

        @property
        def exact_tolerance(self) -> float: ...

        def run(self, inputs: Mapping[str, Array]) -> Outputs: ...

        def error(self, got: Outputs, want: Outputs) -> float: ...

    def alone_error(
        self,
        inputs: Mapping[str, Array],
        row: int,
        *,
        batch: int,
        unpadded: Mapping[str, str],
        without: Collection[str] = (),
        shared: Collection[str] = (),
    ) -> float:
        """Return the error of one row alone against its part of the whole batch in float64 (see `row_alone`).

        Targets that run an exported graph get all of its inputs: `without` counts only where the module itself runs.
        Raises `NotApplicable` if such a graph has no output of rows, but only a loss.
        """
        kept = without if self.runs_module else ()
        alone = row_alone(inputs, row, batch, unpadded=unpadded, without=kept, shared=shared)
        whole = self.reference(inputs)
        want = share_of_row(whole.arrays, whole.masks, row, batch, self.reference(alone).arrays)
        if not self.runs_module and not set(self.required) <= set(want):
            raise NotApplicable("the graph has an output that isn't of rows")
        masks = {name: one for name, one in masks_of(self.masked_by, alone).items() if name in want}
        return self.error(self.run(alone), Outputs(arrays=want, masks=masks, inputs=alone, scales=whole.own_scales))

    @property
    def runs_module(self) -> bool:
        """Whether the target runs the module itself, which has defaults, and not an exported graph."""
        return isinstance(self.runnable, TorchRunnable)

    # In float64

    def attention_error(self, inputs: Mapping[str, Array], *, without: Collection[str] = ()) -> float:
        """Return how far the default attention is from the plain one (eager) in float64, without some inputs; the
        worst output is named with the first module whose result differs."""
        self.measured.stage = Stage.RUN
        inputs = {name: one for name, one in inputs.items() if name not in without}
        model = self.reference_model
        default, of_default = observed_pass(model, inputs)
        with eager_attention(model):
            eager, of_eager = observed_pass(model, inputs)
        both = {name: one for name, one in eager.items() if name in default}
        found = self._compared(default, both, masks_of(self.masked_by, inputs))
        if not found.max_rel_error <= self.exact_tolerance:
            first = next((name for name in of_default if _differs(of_default[name], of_eager.get(name))), "")
            found = replace(found, worst=f"{found.worst}, first in {first}" if first else found.worst)
        return self.measured.keep(found)

    def causality_error(self, inputs: Mapping[str, Array], tokens: str, *, limit: int) -> float:
        """Return how far the outputs of the first half of the text move in float64 if `tokens` of the second half are
        replaced by others. Tokens from `limit` on aren't replaced: they stand for an image or a sound. An output may
        have more positions than the text: they come before it."""
        self.measured.stage = Stage.RUN
        text = inputs[tokens]
        start = text.shape[1] // 2
        later = (np.arange(text.shape[1]) >= start) & (text < limit)
        changed = np.where(later, (text + limit // 2) % limit, text)
        before, after = self.reference(inputs), self.reference({**inputs, tokens: changed})
        width = inputs[tokens].shape[1]
        got: dict[str, Array] = {}
        want: dict[str, Array] = {}
        masks: dict[str, Array] = {}
        for name in self.required:
            array = before.arrays[name]
            if array.ndim > 1 and array.shape[1] >= width:
                earlier = slice(0, array.shape[1] - width + start)
                got[name], want[name] = after.arrays[name][:, earlier], array[:, earlier]
                if name in before.masks:
                    masks[name] = before.masks[name][:, earlier]
        return self.measured.keep(self._compared(got, want, masks))

    def _compared(
        self,
        got: Mapping[str, Array],
        want: Mapping[str, Array],
        masks: Mapping[str, Array] | None = None,
        scales: Mapping[str, float] | None = None,
    ) -> Comparison:
        self.measured.stage = Stage.COMPARE
        return compare(got, want, masks=masks, required=tuple(want), scales=scales)


def has_other_attention(model: torch.nn.Module) -> bool:
    """Return whether a model computes attention by another implementation than the plain one."""
    configs = (getattr(module, "config", None) for module in model.modules())
    return any(getattr(one, "_attn_implementation", None) not in (None, "eager") for one in configs)


@contextmanager
def eager_attention(model: Any) -> Iterator[None]:
    """Compute the attention of all parts of a model by its plain implementation, if it has another."""
    if not has_other_attention(model):
        yield
        return
    before = {id(one): (one, vars(one).copy()) for module in model.modules() for one in _configs_of(module)}
    try:
        with_attention(model, "eager")
        yield
    finally:
        for one, attributes in before.values():
            vars(one).update(attributes)


def _configs_of(holder: Any) -> Iterator[Any]:
    """Yield the configuration of a module, and those of its parts."""
    config = getattr(holder, "config", None)
    waiting = [config] if hasattr(config, "_attn_implementation") else []
    while waiting:
        one = waiting.pop()
        yield one
        waiting += [part for part in vars(one).values() if hasattr(part, "_attn_implementation")]


def _differs(got: Array, want: Array | None) -> bool:
    return want is None or got.shape != want.shape or not compare({"": got}, {"": want}).max_rel_error < _SAME
