"""Apply a changed condition to the model under test; the reference never changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..applied_fix import current_changes
from ..backends.base import Execution, Generation, Runnable
from .measurement import NotApplicable

if TYPE_CHECKING:
    import torch

    from ..backends.base import Array, BaseBackend, Inputs, ModelInput


def with_attention(model: torch.nn.Module, name: str) -> torch.nn.Module:
    """Return `model`, changed in place to another implementation of attention, or unchanged if `name` is empty.

    Raises `NotApplicable` if its library offers no other, or if nothing would change.
    """
    if not name:
        return model
    choose: Any = getattr(model, "set_attn_implementation", None)
    if choose is None:
        raise NotApplicable("its library can't select an attention implementation")
    before = _implementations(model)
    try:
        choose(name)
    except (ValueError, ImportError) as error:
        raise NotApplicable(f"it doesn't support attention {name}: {error}") from error
    if _implementations(model) == before:
        raise NotApplicable(f"its attention stays {', '.join(sorted(set(before))) or 'its own'}")
    return model


def _implementations(model: torch.nn.Module) -> list[str]:
    configs = [getattr(module, "config", None) for module in model.modules()]
    return [str(found) for one in configs if (found := getattr(one, "_attn_implementation", None))]


def load(backend: BaseBackend, model_input: ModelInput, inputs: Inputs, precision: str) -> Runnable:
    """Return `backend.load(...)`, or a runnable that computes one row at a time if the batch is changed."""
    if not current_changes().batch:
        return backend.load(model_input, inputs, precision)
    return RowByRow(backend.load(model_input, next(rows_of(inputs)), precision))


def rows_of(inputs: Inputs) -> Iterator[dict[str, Array]]:
    """Yield each row of a batch as a batch of one. Raises `NotApplicable` if the inputs have no common first axis."""
    sizes = {int(array.shape[0]) if array.ndim else 0 for array in inputs.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise NotApplicable("its inputs have no common batch axis, so the batch can't be split")
    for row in range(sizes.pop()):
        yield {name: array[row : row + 1] for name, array in inputs.items()}


class RowByRow(Runnable):
    """A runnable that computes one row at a time and joins the outputs."""

    def __init__(self, inner: Runnable) -> None:
        self.inner = inner
        self.can = inner.can - {"backward"}  # gradients of a batch aren't those of its rows
        self.gives_all, self.on_host = inner.gives_all, inner.on_host
        self._take_facts()

    def _take_facts(self) -> None:
        """Copy facts that a runnable of a compiling target learns during each pass."""
        self.conditions, self.actual_dtype = self.inner.conditions, self.inner.actual_dtype

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        found = [self.inner(**row) for row in rows_of(inputs)]
        self._take_facts()
        return {name: np.concatenate([one[name] for one in found]) for name in found[0]}

    def generate(self, inputs: Inputs, *, steps: int) -> Generation:
        found = [self.inner.generate(row, steps=steps) for row in rows_of(inputs)]
        return Generation(
            tokens=np.concatenate([one.tokens for one in found]),
            logits=np.concatenate([one.logits for one in found]),
            start=np.concatenate([one.start for one in found]),
            used_cache=all(one.used_cache for one in found),
        )

    def execution(self) -> Execution:
        return self.inner.execution()

    def prepare(self, inputs: Inputs) -> None:
        for row in rows_of(inputs):
            self.inner.prepare(row)

    def watched(self, inputs: Inputs) -> tuple[dict[str, Array], Mapping[str, int]]:
        found = [self.inner.watched(row) for row in rows_of(inputs)]
        self._take_facts()
        left: dict[str, int] = {}
        for _, of_row in found:
            for name, count in of_row.items():
                left[name] = left.get(name, 0) + count
        return {name: np.concatenate([one[name] for one, _ in found]) for name in found[0][0]}, left

    def save_and_reload(self, folder: Path) -> Runnable:
        return RowByRow(self.inner.save_and_reload(folder))

    def close(self) -> None:
        self.inner.close()
