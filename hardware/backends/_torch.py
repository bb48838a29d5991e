"""Base of all targets of PyTorch: placement, forward pass, decoding, gradients and their proof."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, cast

from ..applied_fix import current_changes
from ..cell import GRAPH_TASK
from ..command_names import as_runnable
from ..errors import BackendUnavailable
from ..file_formats import format_name
from ..model.calls import forget_passes, forward, in_dtype, to_arrays, to_tensors, torch_dtype
from ..model.greedy_decoding import greedy
from ..output_masks import masks_of
from ._torch_checks import loss_weights, saved_and_loaded, saved_and_rebuilt
from ._trace import host_calls_elsewhere, host_calls_inside, operator_trace
from .base import STEPS, BaseBackend, DeviceInfo, Execution, FileInput, Generation, ModelInput, Runnable, coarsest

if TYPE_CHECKING:
    import torch

    from ..optimization.optimization_steps import OptimizationLevel
    from .base import Array, Inputs

log = logging.getLogger(__name__)


def loss_gradients(
    model: torch.nn.Module,
    tensors: Mapping[str, torch.Tensor],
    masked_by: Mapping[str, str] = MappingProxyType({}),
    *,
    training: bool = False,
) -> dict[str, Array]:
    """Return the gradients of the loss by parameter name; parameters that the pass doesn't use are left out.

    `masked_by` names the mask of each output, if it has one. `training` selects the mode, for a model that has
    gradients in no other.
    """
    return gradients_of(model, lambda: _loss(model, tensors, masked_by), training=training)


def gradients_of(model: torch.nn.Module, loss: Callable[[], torch.Tensor], *, training: bool) -> dict[str, Array]:
    """Return the gradients of what `loss` computes, as `loss_gradients` does."""
    import torch

    forget_passes(model)
    model.train(training)
    model.zero_grad(set_to_none=True)
    total = loss()
    if isinstance(total, torch.Tensor):  # else no output has a gradient
        total.backward()
    found = {
        name: torch.view_as_real(p.grad) if p.grad.is_complex() else p.grad
        for name, p in model.named_parameters()
        if p.grad is not None
    }
    model.zero_grad(set_to_none=True)
    forget_passes(model)
    return to_arrays(found)


def _loss(model: torch.nn.Module, tensors: Mapping[str, torch.Tensor], masked_by: Mapping[str, str]) -> torch.Tensor:
    import torch

    numbers = {name: tensor.cpu().numpy() for name, tensor in tensors.items() if not tensor.is_floating_point()}
    masks = masks_of(masked_by, numbers)
    total: Any = 0.0
    for name, output in sorted(forward(model, tensors).items()):
        if output.grad_fn is None:
            continue
        weights = torch.as_tensor(loss_weights(tuple(output.shape), masks.get(name)))
        total = total + (output * weights.to(device=output.device, dtype=output.dtype)).sum()
    return cast("torch.Tensor", total)


def listed(*parts: str) -> str:
    """Return the non-empty parts, separated by semicolons."""
    return "; ".join(filter(None, parts))


def what_raises(what: str, use: Callable[[], object]) -> str:
    """Return an empty string, or `what` with the class of the error that `use` raises."""
    try:
        use()
    except Exception as error:
        return f"{what}, raising {type(error).__name__}"
    return ""


class TorchRunnable(Runnable):
    """A module on a torch device."""

    can = frozenset({"generate", "backward", "save", "calls"})
    gives_all = True

    def __init__(self, backend: TorchBackend, model_input: ModelInput, example: Inputs, precision: str) -> None:
        self.backend = backend
        self.model_input = model_input
        self.example = dict(example)
        self.precision = precision
        self.dtype = torch_dtype(precision)
        self.device = backend.torch_device()
        self.on_host = self.device.type == "cpu"
        if self.device.type != backend.DEVICE_TYPE:
            raise BackendUnavailable(f"{backend.target} can't be used", why=f"its device is {self.device}")
        self.model = in_dtype(model_input.model.to(device=self.device), self.dtype).eval()
        self.actual_dtype = precision if precision == "tf32" else str(self.dtype).removeprefix("torch.")
        self.conditions = {
            "optimisation": "O0",
            "attention": str(getattr(getattr(self.model, "config", None), "_attn_implementation", "none")),
        }

    def _tensors(self, inputs: Inputs) -> dict[str, torch.Tensor]:
        return to_tensors(inputs, self.device, self.dtype)

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        return to_arrays(self._forward(self._tensors(inputs)))

    def generate(self, inputs: Inputs, *, steps: int) -> Generation:
        return greedy(self.model, self._tensors(inputs), steps=steps, use_cache=not current_changes().cache)

    def gradients(self, inputs: Inputs) -> dict[str, Array]:
        return self._gradients(self._tensors(inputs))

    def save_and_reload(self, folder: Path) -> Runnable:
        if hasattr(self.model, "resaved"):  # of a file
            model_input = replace(self.model_input, model=self.model.resaved(folder))
            return type(self)(self.backend, model_input, self.example, self.precision)
        if not hasattr(self.model, "save_pretrained"):
            again = saved_and_rebuilt(self.model, self.model_input, folder)
            return type(self)(self.backend, replace(self.model_input, model=again), self.example, self.precision)
        again = saved_and_loaded(self.model, folder, self.dtype)
        model_input = replace(self.model_input, model=again)
        return type(self)(self.backend, model_input, self.example, self.precision)

    def execution(self) -> Execution:
        trace = operator_trace(self.device.type)
        tensors = self._tensors(self.example)
        if self.device.type == "cpu":
            with trace:
                self._forward(tensors)
            return self._proof(trace)
        trace.offloaded.update(host_calls_elsewhere(lambda: self._forward(tensors), trace))
        return self._beyond_forward(self._proof(trace), tensors)

    def watched(self, inputs: Inputs) -> tuple[dict[str, Array], Mapping[str, int]]:
        trace = operator_trace(self.device.type)
        tensors = self._tensors(inputs)
        found: dict[str, torch.Tensor] = {}
        elsewhere = host_calls_elsewhere(lambda: found.update(self._forward(tensors)), trace)
        left: Counter[str] = trace.offloaded + elsewhere
        return to_arrays(found), left | host_calls_inside(lambda: self._forward(tensors), self.device.type)

    def _beyond_forward(self, proof: Execution, tensors: Mapping[str, torch.Tensor]) -> Execution:
        """Return the proof extended by calls inside kernels, decoding and gradients."""
        offloaded = Counter(proof.offloaded)
        trace = operator_trace(self.device.type)

        def everything() -> None:
            self._forward(tensors)
            self._decode_and_learn(tensors)

        with trace:
            unseen = self._decode_and_learn(tensors)
        offloaded.update(trace.on_host)
        offloaded |= host_calls_inside(everything, self.device.type)
        native = {name: count for name, count in proof.native.items() if name not in offloaded}
        return replace(proof, native=native, offloaded=dict(offloaded), unseen=listed(proof.unseen, unseen))

    def _forward(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        import torch

        with torch.no_grad():
            return forward(self.model, tensors)

    def _decode_and_learn(self, tensors: Mapping[str, torch.Tensor]) -> str:
        """Decode with a cache, if the model does that, and run a backward pass. Return which of them raised; their
        own checks report why. A file does neither."""
        if self.model_input.task == GRAPH_TASK:
            return ""
        unseen = ""
        if self.model_input.generates != "none":
            cached = not current_changes().cache
            unseen = what_raises("decoding", lambda: greedy(self.model, tensors, steps=STEPS, use_cache=cached))
        return listed(unseen, what_raises("gradients", lambda: self._gradients(tensors)))

    def _gradients(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, Array]:
        return loss_gradients(self.model, tensors, self.model_input.masked_by, training=self.model_input.trains_only)

    def _proof(self, trace: Any) -> Execution:
        return Execution(
            native=dict(trace.native),
            offloaded=dict(trace.offloaded),
            dtype=coarsest(trace.dtypes) or self.actual_dtype,
            device=str(self.device),
            unseen=self.backend.UNSEEN,
            host_allowed=self.backend.HOST_ALLOWED,
        )

    def close(self) -> None:
        del self.model
        self.backend.empty_cache()


class TorchBackend(BaseBackend):
    """Base of the targets that are a device type of torch."""

    ROUTE = "eager"
    EXPORTS: ClassVar[bool] = False
    READS: ClassVar[tuple[str, ...]] = ("torchscript", "exported")
    CAN = TorchRunnable.can
    PRECISIONS: ClassVar[tuple[str, ...]] = ("float32", "bfloat16", "float16")
    UNSEEN: ClassVar[str] = "host computation inside a kernel that bypasses torch's dispatcher"
    RUNNABLE: ClassVar[type[TorchRunnable]] = TorchRunnable

    _taken = False
    """Whether the device was used, so that there may be memory to release."""

    def torch_device(self) -> torch.device:
        """Return the torch device of the target's index (default 0)."""
        import torch

        self._register()
        self._taken = True
        return torch.device(self.DEVICE_TYPE, self.device_id)

    def _register(self) -> None:
        """Register the device with torch if needed; repeated calls are harmless. Raises `BackendUnavailable`."""

    @property
    def device(self) -> torch.device:
        """The torch device in use."""
        return self.torch_device()

    @property
    def device_count(self) -> int:
        import torch

        return 0 if self._device_missing(torch) else self._device_count(torch)

    def to_device(self, value: Any) -> Any:
        import torch
        from torch.utils._pytree import tree_map

        device = self.torch_device()
        if isinstance(value, torch.nn.Module):
            return value.to(device)
        return tree_map(lambda one: one.to(device) if isinstance(one, torch.Tensor) else one, value)

    def synchronize(self) -> None:
        self._of_device("synchronize")

    def _of_device(self, function: str) -> None:
        """Call a function of torch's module for this device type, if it has the function."""
        import torch

        getattr(getattr(torch, self.DEVICE_TYPE), function, lambda: None)()

    def prepare_model(
        self, model: Any, optimization_level: OptimizationLevel | str | None = "O2", sample_input: Any = None
    ) -> Any:
        return self._optimize(model, optimization_level, sample_input)

    def optimize_for_inference(self, model: Any, sample_input: Any = None, dtype: Any = None) -> Any:
        return self._optimize(model, "O2", sample_input, dtype=dtype)

    def optimize_for_training(self, model: Any, optimizer: Any = None, dtype: Any = None) -> Any:
        import torch

        model = self._optimize(model, "O2", None, training=True, dtype=dtype)
        if optimizer is None:
            return model
        for state in optimizer.state.values():  # of an optimizer that has made steps elsewhere
            moved = {key: self.to_device(one) for key, one in state.items() if isinstance(one, torch.Tensor)}
            state.update({key: one for key, one in moved.items() if one.dim()})
        return model, optimizer

    def _optimize(self, model: Any, level: OptimizationLevel | str | None, sample_input: Any, **options: Any) -> Any:
        if reason := self.unavailable():
            raise BackendUnavailable(f"{self.target} can't be used", why=reason)
        from ..optimization.optimizers import OPTIMIZERS

        if self.BACKEND_NAME not in OPTIMIZERS:
            placed = f"{self.target} has no optimizer: the model is only moved to the device"
            return self._left_alone(self.to_device(model).train(options.get("training", False)), level, placed)
        optimizer = OPTIMIZERS[self.BACKEND_NAME](self.torch_device())
        model, self.optimized = optimizer.optimize(model, level, sample_input, **options)
        for warning in self.optimized.warnings:
            log.info("%s: %s", self.target, warning)
        return model

    def empty_cache(self) -> None:
        if self._taken:
            self._of_device("empty_cache")

    def _check_availability(self) -> str:
        try:
            import torch
        except ImportError:
            return as_runnable("torch isn't installed (pip install -r requirements.txt)")
        reason = self._device_missing(torch)
        if reason:
            return reason
        count = self._device_count(torch)
        index = self.target.index or 0
        return "" if index < count else f"{self.target} not found: torch sees {count} device(s)"

    def _device_missing(self, torch: Any) -> str:
        """Return the reason why no device of this type can be used by this torch, or an empty string. For a
        registered device that is why it can't be registered."""
        try:
            self._register()
        except BackendUnavailable as error:
            return error.why
        return ""

    def _device_count(self, torch: Any) -> int:
        return int(getattr(torch, self.DEVICE_TYPE).device_count())

    def _get_device_info(self, device_id: int) -> DeviceInfo:
        import torch

        device = torch.device(self.DEVICE_TYPE, device_id)
        found = getattr(torch, self.DEVICE_TYPE).get_device_properties(device)
        facts = self._own_facts(found, device_id)
        return self.device_info(str(device), found.name, device_id=device_id, memory=found.total_memory, **facts)

    def _own_facts(self, found: Any, device_id: int) -> dict[str, Any]:
        """Return further arguments of `device_info`, from torch's properties of the device."""
        return {}

    def _topology(self, device_id: int) -> str:
        """Return which other devices this one reads directly (`torch.cuda.can_device_access_peer`)."""
        import torch

        others = [number for number in range(torch.cuda.device_count()) if number != device_id]
        if not others:
            return "the only device"
        direct = [str(one) for one in others if torch.cuda.can_device_access_peer(device_id, one)]
        return f"reads {', '.join(direct)} directly" if direct else "reads no other device directly (no peer access)"

    def known_answer(self) -> tuple[float, float, float]:
        import torch

        from ..known_answer import question

        left, right = (torch.as_tensor(array).to(self.torch_device()) for array in question())
        with torch.no_grad():
            answer = torch.tanh(left @ right).sum(dim=0)[:3]
        first, second, third = (float(value) for value in answer.cpu())
        return first, second, third

    def load(self, model_input: ModelInput, example_inputs: Inputs, precision: str) -> Runnable:
        self.require(precision)
        return self.RUNNABLE(self, model_input, example_inputs, precision)

    def load_file(self, file_input: FileInput, example_inputs: Inputs, precision: str) -> Runnable:
        if format_name(file_input.file) not in self.READS:
            return super().load_file(file_input, example_inputs, precision)
        self.require(precision)
        from ..model.torch_program import open_program

        program = ModelInput(model=open_program(file_input.file), task=GRAPH_TASK, identity=file_input.identity)
        return self.RUNNABLE(self, program, example_inputs, precision)
