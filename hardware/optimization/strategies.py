"""Optimizations that are applied to a module in place and can be reverted.

A strategy reports why it doesn't fit (`obstacle`), applies itself (`apply`, which returns a `ModuleChange`), and
detects whether it is in force (`is_applied`). Strategies in 8 bits are in `eight_bits.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from .batch_norms import foldable_pairs, folded
from .optimization_steps import ModuleChange, OptimizationLevel

if TYPE_CHECKING:
    import torch

FLOAT32_LIMIT = 1e-4
"""Allowed error of an output, relative to its scale, if sums in float32 are reordered: five times the tolerance of
suites, since it adds to that."""
HALF_LIMIT = 8e-2
"""Tolerance of bfloat16 in suites."""


@dataclass(frozen=True, kw_only=True)
class StrategySetting:
    """The module on its device, and a sample of its inputs by name, if there is one."""

    model: torch.nn.Module
    device: torch.device
    sample: Mapping[str, torch.Tensor] = field(default_factory=dict)
    dtype: torch.dtype | None = None


class Strategy:
    """Base of the strategies. `limit` is the allowed error of the outputs, relative to their scale."""

    name: ClassVar[str]
    description: ClassVar[str]
    level: ClassVar[OptimizationLevel]
    limit: ClassVar[float] = FLOAT32_LIMIT
    training: ClassVar[bool] = False
    """Whether it is for training; else for inference."""
    speeds_up: ClassVar[bool] = True
    """Whether it is meant for speed, and taken back if it brings none; else it is meant to save memory."""
    compiled_only: ClassVar[bool] = False
    """Whether it is slow alone, and tried only together with compilation."""
    safe_unmeasured: ClassVar[bool] = False
    """Whether it is applied if there is no sample: it needs none, and its error is bounded by its precision."""
    instead_of: ClassVar[str] = ""
    """Name of a group of alternatives, of which one is enough; empty if there are none."""

    @property
    def applicable_levels(self) -> tuple[OptimizationLevel, ...]:
        """The level that introduces it, and those above."""
        return tuple(level for level in OptimizationLevel if level.rank >= self.level.rank)

    def obstacle(self, setting: StrategySetting) -> str:
        """Return the reason why it can't be applied here, or an empty string."""
        raise NotImplementedError

    def apply(self, setting: StrategySetting) -> ModuleChange:
        """Apply the strategy in place. Raise the library's error, and leave the module unchanged then.

        Switching the change off restores the state before; switching it on again makes nothing anew.
        """
        raise NotImplementedError

    def is_applied(self, model: torch.nn.Module) -> bool:
        """Return whether it is in force in the module."""
        raise NotImplementedError


def _half(device: torch.device) -> torch.dtype | None:
    """Return the half precision that a device computes in, preferably bfloat16, or None."""
    import torch

    if device.type == "cpu":
        return torch.bfloat16 if torch.ops.mkldnn._is_mkldnn_bf16_supported() else None
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    return {"xpu": torch.bfloat16, "mps": torch.float16}.get(device.type)


class MixedPrecision(Strategy):
    """Matrix products in half precision, everything else that is sensitive in float32."""

    name = "mixed_precision"
    description = "autocast: products and convolutions in half precision, if the hardware supports it"
    level = OptimizationLevel.O1
    limit = HALF_LIMIT
    safe_unmeasured = True

    def obstacle(self, setting: StrategySetting) -> str:
        if setting.dtype is not None and setting.dtype.itemsize > 2:
            return f"{str(setting.dtype).removeprefix('torch.')} was requested"
        if any(p.is_floating_point() and p.dtype.itemsize < 4 for p in setting.model.parameters()):
            return "its weights are already in half precision"
        return "" if _half(setting.device) else f"this {setting.device.type} doesn't compute in half precision"

    def apply(self, setting: StrategySetting) -> ModuleChange:
        import torch

        dtype = setting.dtype or _half(setting.device)
        model, before = setting.model, vars(setting.model).get("forward")
        mixed = torch.autocast(setting.device.type, dtype=dtype)(model.forward)
        mixed._hwcompat_autocast = dtype

        def on() -> None:
            model.forward = mixed

        def off() -> None:
            vars(model).pop("forward", None)
            if before is not None:
                model.forward = before

        on()
        return ModuleChange(on=on, off=off)

    def is_applied(self, model: torch.nn.Module) -> bool:
        return hasattr(vars(model).get("forward"), "_hwcompat_autocast")


class TrainingPrecision(MixedPrecision):
    """Mixed precision for a training step, in a half precision with float32's range."""

    training = True

    def obstacle(self, setting: StrategySetting) -> str:
        import torch

        if why := super().obstacle(setting):
            return why
        if (setting.dtype or _half(setting.device)) is torch.float16:
            return "small gradients become 0 in float16 unless the training loop scales the loss"
        return ""


class FusedAttention(Strategy):
    """Attention of transformers models in one kernel."""

    name = "fused_attention"
    description = "torch's scaled_dot_product_attention in models of transformers that compute attention in steps"
    level = OptimizationLevel.O1
    safe_unmeasured = True

    def obstacle(self, setting: StrategySetting) -> str:
        model = setting.model
        if not (getattr(model, "_supports_sdpa", False) and hasattr(model, "set_attn_implementation")):
            return "its class has no fused attention"
        return ""

    def apply(self, setting: StrategySetting) -> ModuleChange:
        model, before = setting.model, setting.model.config._attn_implementation

        def switch(to: str) -> None:
            model.set_attn_implementation(to)

        switch("sdpa")
        return ModuleChange(on=lambda: switch("sdpa"), off=lambda: switch(before))

    def is_applied(self, model: torch.nn.Module) -> bool:
        found = getattr(getattr(model, "config", None), "_attn_implementation", None)
        return found not in (None, "eager")


class ChannelsLast(Strategy):
    """Convolutions on memory with a pixel's channels side by side."""

    name = "channels_last"
    description = "channels-last memory format for models with 2-D convolutions"
    level = OptimizationLevel.O1
    safe_unmeasured = True

    def obstacle(self, setting: StrategySetting) -> str:
        import torch

        if not any(isinstance(module, torch.nn.Conv2d) for module in setting.model.modules()):
            return "it has no convolutions over images"
        return ""

    def apply(self, setting: StrategySetting) -> ModuleChange:
        import torch

        def images_last(module: Any, args: Any, kwargs: Any) -> Any:
            from torch.utils._pytree import tree_map

            def last(value: Any) -> Any:
                is_image = isinstance(value, torch.Tensor) and value.dim() == 4 and value.is_floating_point()
                return value.contiguous(memory_format=torch.channels_last) if is_image else value

            return tree_map(last, args), tree_map(last, kwargs)

        hooks: list[Any] = []

        def on() -> None:
            if not hooks:
                _convert_format(setting.model, torch.channels_last)
                hooks.append(setting.model.register_forward_pre_hook(images_last, with_kwargs=True))

        def off() -> None:
            while hooks:
                hooks.pop().remove()
                _convert_format(setting.model, torch.contiguous_format)

        on()
        return ModuleChange(on=on, off=off)

    def is_applied(self, model: torch.nn.Module) -> bool:
        import torch

        kernels = [
            m.weight for m in model.modules() if isinstance(m, torch.nn.Conv2d) and max(m.weight.shape[1:]) > 1
        ]
        return bool(kernels) and all(k.is_contiguous(memory_format=torch.channels_last) for k in kernels)


def _convert_format(model: torch.nn.Module, memory_format: torch.memory_format) -> None:
    """Convert tensors with four axes as `Module.to` does, which refuses if a weight is referenced elsewhere."""
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.dim() == 4 and tensor.is_floating_point():
            tensor.data = tensor.data.contiguous(memory_format=memory_format)


class FoldedBatchNorms(Strategy):
    """Batch normalizations with fixed statistics, folded into the convolution before them."""

    name = "folded_batch_norms"
    description = "batch normalizations folded into the convolutions before them"
    level = OptimizationLevel.O1

    def obstacle(self, setting: StrategySetting) -> str:
        import torch

        if not any(isinstance(module, torch.nn.BatchNorm2d) for module in setting.model.modules()):
            return "it has no batch normalizations"
        if not foldable_pairs(setting.model, setting.sample, self.limit):
            return "no convolution's output goes to a batch normalization alone"
        return ""

    def apply(self, setting: StrategySetting) -> ModuleChange:
        return folded(setting.model, foldable_pairs(setting.model, setting.sample, self.limit))

    def is_applied(self, model: torch.nn.Module) -> bool:
        return any(hasattr(module, "_hwcompat_folded") for module in model.modules())


class Compiled(Strategy):
    """torch.compile."""

    name = "torch_compile"
    description = "torch.compile with its default backend"
    level = OptimizationLevel.O2
    safe_unmeasured = True
    mode: ClassVar[str] = "default"

    def obstacle(self, setting: StrategySetting) -> str:
        import torch

        if setting.device.type not in ("cpu", "cuda", "xpu", "mps"):
            return f"torch.compile makes no kernels for {setting.device.type}"
        if not torch._dynamo.is_dynamo_supported():
            return "torch.compile doesn't support this Python"
        if setting.device.type == "cpu" and not _has_compiler():
            return "torch.compile needs a C++ compiler, which was not found"
        return ""

    def apply(self, setting: StrategySetting) -> ModuleChange:
        model = setting.model
        model.compile(mode=self.mode)
        compiled = model._compiled_call_impl
        if not setting.sample:  # it compiles in the user's first call
            compiled = model._compiled_call_impl = _or_uncompiled(model, compiled)

        def switch(call: Any) -> None:
            model._compiled_call_impl = call

        return ModuleChange(on=lambda: switch(compiled), off=lambda: switch(None))

    def is_applied(self, model: torch.nn.Module) -> bool:
        return model._compiled_call_impl is not None


class CompiledForLong(Compiled):
    """The same, with a longer search for kernels."""

    name = "torch_compile_max_autotune"
    description = "torch.compile with a search for the fastest kernels"
    level = OptimizationLevel.O3
    safe_unmeasured = False
    mode = "max-autotune-no-cudagraphs"


class GradientCheckpointing(Strategy):
    """Recompute activations in the backward pass instead of keeping them."""

    name = "gradient_checkpointing"
    description = "activations are recomputed in the backward pass: less memory, more time"
    level = OptimizationLevel.O2
    training = True
    speeds_up = False

    def obstacle(self, setting: StrategySetting) -> str:
        if not getattr(setting.model, "supports_gradient_checkpointing", False):
            return "its class doesn't support it"
        return ""

    def apply(self, setting: StrategySetting) -> ModuleChange:
        def on() -> None:
            setting.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

        on()
        return ModuleChange(on=on, off=setting.model.gradient_checkpointing_disable)

    def is_applied(self, model: torch.nn.Module) -> bool:
        return bool(getattr(model, "is_gradient_checkpointing", False))


def _or_uncompiled(model: torch.nn.Module, compiled: Any) -> Any:
    """Return a compiled call that is replaced by the module's own, with a warning, if it can't be compiled."""

    def call(*args: Any, **kwargs: Any) -> Any:
        from torch._dynamo.exc import TorchDynamoException

        try:
            return compiled(*args, **kwargs)
        except TorchDynamoException as error:
            model._compiled_call_impl = None
            text = str(error).strip().partition("\n")[0][:200]
            warnings.warn(f"torch_compile: reverted, {type(error).__name__}: {text}", RuntimeWarning, stacklevel=2)
            return model(*args, **kwargs)

    return call


def _has_compiler() -> bool:
    import shutil

    return any(shutil.which(name) for name in ("g++", "clang++", "c++"))
