"""The checks of a suite that train the model: dropout, gradients of a loss, and layers that are computed again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends._torch import TorchRunnable, gradients_of, loss_gradients
from ..compare import Array, compare_gradients, not_finite
from ..evidence.record import Stage
from ..model.calls import forget_passes, forward, to_tensors, without_cache
from ..model.outputs import nested
from . import reference
from .capability_checks import require_memory
from .dropout import buffers_kept, dropout, seeded, unused_dropout
from .losses import labels_for, torch_cross_entropy
from .measurement import NotApplicable, comparison_of
from .model_relations import ModelRelations

if TYPE_CHECKING:
    import torch

_DROPPED = 0.5
"""The probability of dropout in a model whose outputs must not change in evaluation mode."""


_MASKING = ("mask_time_prob", "mask_feature_prob")
"""Settings of a configuration that mask parts of a spectrogram in training."""


class TrainingChecks(ModelRelations):
    """The part of `ModelTest` that uses training mode and gradients. What no target can change (dropout, and what
    training mode computes without it) is computed in float64 on the CPU."""

    def _torch_runnable(self) -> TorchRunnable:
        runnable = self.runnable
        if not isinstance(runnable, TorchRunnable):
            raise NotApplicable(f"{self.actual_target} runs a graph, which has one call")
        return runnable

    def _on_device(self, array: Array) -> torch.Tensor:
        runnable = self._torch_runnable()
        return to_tensors({"": array}, runnable.device, runnable.dtype)[""]

    def dropout_error(self, inputs: Mapping[str, Array]) -> float:
        """Return how far dropout moves the outputs of the evaluation mode in float64: 0."""
        self.measured.stage = Stage.RUN
        with dropout(self.reference_model, _DROPPED):
            got = reference.float64_outputs(self.reference_model, inputs)
        want = self.reference(inputs)
        return self.measured.keep(self._compared(got, want.arrays, want.masks))

    def unused_dropout(self, inputs: Mapping[str, Array]) -> list[str]:
        """Return the kinds of dropout, by their names in the modules, that change nothing in training mode."""
        self.measured.stage = Stage.RUN
        return unused_dropout(self.reference_model, inputs)

    def training_error(self, inputs: Mapping[str, Array]) -> float:
        """Return how far the outputs of the training mode are from those of the evaluation mode, in float64, without
        dropout and with the stored statistics of batch normalization."""
        import torch

        self.measured.stage = Stage.RUN
        model = self.reference_model
        with _training(model):
            for module in model.modules():
                module.training = not isinstance(module, torch.nn.modules.batchnorm._BatchNorm)
            got = reference.float64_outputs(model, inputs)
        want = self.reference(inputs)
        return self.measured.keep(self._compared(got, want.arrays, want.masks))

    def loss_gradient_error(self, inputs: Mapping[str, Array], kind: str) -> float:
        """Return the error of the gradients of the loss, in training mode without dropout, against those of the cross
        entropy of float64's logits (`kind` as in `loss_error`)."""
        import torch

        runnable = self._torch_runnable()
        model, exact = runnable.model, self.reference_model
        require_memory(reference.bytes_for_gradients(exact), "comparing the gradients")
        labels = labels_for(inputs, self.reference(inputs).arrays["logits"], kind)

        def loss_of(tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
            given = {**nested(tensors), "labels": self._on_device(labels), **without_cache(model)}
            found: torch.Tensor = model(**given)["loss"]
            return found

        with self._at(Stage.RUN), _training(model):
            tensors = to_tensors(inputs, runnable.device, runnable.dtype)
            got = gradients_of(model, lambda: loss_of(tensors), training=True)
        with _training(exact), reference.default_float64():
            wide = to_tensors(inputs, "cpu", torch.float64)
            want = gradients_of(
                exact, lambda: torch_cross_entropy(forward(exact, wide)["logits"], labels, kind), training=True
            )
        self.measured.stage = Stage.COMPARE
        return self.measured.keep(compare_gradients(got, want))

    def checkpointing_error(self, inputs: Mapping[str, Array]) -> float:
        """Return the error of the gradients if the layers are computed again in the backward pass; infinity if none
        is, or if a gradient isn't finite."""
        runnable = self._torch_runnable()
        model: Any = runnable.model
        tensors = to_tensors(inputs, runnable.device, runnable.dtype)

        def gradients() -> tuple[dict[str, Array], int]:
            with seeded(), _counted_calls(model) as calls:
                return loss_gradients(model, tensors, self.masked_by, training=True), len(calls)

        with self._at(Stage.RUN), buffers_kept(model), dropout(model, 0.0):
            want, plain_calls = gradients()
            model.gradient_checkpointing_enable()
            try:
                got, calls = gradients()
            finally:
                model.gradient_checkpointing_disable()
        self.measured.stage = Stage.COMPARE
        if calls <= plain_calls:
            return self.measured.keep(comparison_of(math.inf, 1.0, "gradients (no layer was computed again)"))
        if not all(np.isfinite(one).all() for one in want.values()):
            return self.measured.keep(not_finite("gradients"))
        return self.measured.keep(compare_gradients(got, want))


@contextmanager
def _training(model: torch.nn.Module) -> Iterator[None]:
    """Let a model be used in training mode without dropout and masked spectrograms, and leave it as it was."""
    configs: list[Any] = [getattr(module, "config", None) for module in model.modules()]
    masking = [(one, name, getattr(one, name)) for one in configs for name in _MASKING if hasattr(one, name)]
    try:
        for one, name, _ in masking:
            setattr(one, name, 0.0)
        with buffers_kept(model), dropout(model, 0.0), seeded():
            yield
    finally:
        for one, name, before in masking:
            setattr(one, name, before)
        forget_passes(model)


@contextmanager
def _counted_calls(model: torch.nn.Module) -> Iterator[list[None]]:
    """Collect an entry for each call of a module inside."""
    calls: list[None] = []

    def note(*_: Any) -> None:
        calls.append(None)

    handles = [module.register_forward_pre_hook(note) for module in model.modules()]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()
