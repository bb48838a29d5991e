"""Passes over a sample that an optimizer measures: a forward pass, and a training step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .batch_norms import outputs_of

if TYPE_CHECKING:
    import torch

    from .strategies import StrategySetting


class ForwardPass:
    """Inference: a call of the module, and its outputs."""

    def __init__(self, setting: StrategySetting) -> None:
        self._setting = setting
        self._wait = _synchronizer(setting.device)

    def outputs(self) -> Any:
        """Return the outputs that may move by no more than a step's limit, as arrays by name."""
        return outputs_of(self._setting.model, self._setting.sample)

    def call(self) -> None:
        """Run the pass that is timed."""
        import torch

        with torch.no_grad():
            self._setting.model(**self._setting.sample)
        self._wait()

    def kept_bytes(self) -> int | None:
        """Return the bytes that a forward pass keeps for the backward pass, or None if there is none."""
        return None


class TrainingStep(ForwardPass):
    """Training: a forward and a backward pass that leave gradients, statistics and random numbers unchanged."""

    def outputs(self) -> Any:
        """Return, for the gradient of each parameter, its norm and its sum weighted by cosines."""
        import torch

        with _undisturbed(self._setting):
            self._loss().backward()
            found = []
            for parameter in self._setting.model.parameters():
                if parameter.grad is not None:
                    gradient = parameter.grad.double().flatten()
                    found += [gradient.norm(), (gradient * _cosines(gradient)).sum()]
            return {"gradients": torch.stack(found).cpu().numpy()}

    def call(self) -> None:
        with _undisturbed(self._setting):
            self._loss().backward()
            self._wait()

    def kept_bytes(self) -> int | None:
        """Return the bytes of tensors that autograd keeps for the backward pass, except parameters and buffers."""
        import torch

        model = self._setting.model
        own = {one.untyped_storage().data_ptr() for one in (*model.parameters(), *model.buffers())}
        kept: dict[int, int] = {}

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with (
            _undisturbed(self._setting),
            torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        ):
            loss = self._loss()  # while it lives, so does what is kept, and no address is used twice
        del loss
        return sum(kept.values())

    def _loss(self) -> torch.Tensor:
        """Return the sum of all floating-point outputs, weighted by cosines so that no two elements cancel out."""
        from ..model.outputs import floating_outputs

        outputs = floating_outputs(self._setting.model(**self._setting.sample))
        weighed = [(one.float() * _cosines(one)).sum() for one in outputs.values() if one.grad_fn is not None]
        if not weighed:
            raise ValueError("no output depends on a trainable parameter")
        return sum(weighed[1:], weighed[0])


def _cosines(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    places = torch.arange(tensor.numel(), dtype=torch.float32, device=tensor.device)
    return places.mul(0.7).cos().reshape(tensor.shape)


@contextlib.contextmanager
def _undisturbed(setting: StrategySetting) -> Iterator[None]:
    """Use the same random numbers each time, and restore gradients, buffers and generators."""
    import torch

    model, kind = setting.model, setting.device.type
    gradients = [(one, one.grad) for one in model.parameters()]
    buffers = [(one, one.detach().clone()) for one in model.buffers()]
    model.zero_grad(set_to_none=True)
    devices = [] if kind == "cpu" else [setting.device.index or 0]
    with torch.random.fork_rng(devices=devices, device_type="cuda" if kind == "cpu" else kind):
        torch.manual_seed(0)
        try:
            yield
        finally:
            for parameter, gradient in gradients:
                parameter.grad = gradient
            with torch.no_grad():
                for buffer, value in buffers:
                    buffer.copy_(value)


def _synchronizer(device: torch.device) -> Callable[[], None]:
    import torch

    if device.type == "cpu":
        return lambda: None
    synchronize: Callable[[], None] = getattr(torch, device.type).synchronize
    return synchronize
