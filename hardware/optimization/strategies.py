"""The single things that can be done to a module in place, each of which can be taken back.

A strategy says why it doesn't fit (`obstacle`), does it (`apply`, which gives what turns it off and on again), and
can look into the module whether it is in force (`is_applied`). Those in 8 bits are in `eight_bits.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from .optimization_steps import ModuleChange, OptimizationLevel, replaced

if TYPE_CHECKING:
    import torch

Pair = tuple[str, str]
"""Names of a convolution and of the normalisation that takes its output."""

FLOAT32_LIMIT = 1e-4
"""What reorders sums in float32 may move an output by, relative to its scale: five times what suites allow, since it
is added to what they allow."""
HALF_LIMIT = 8e-2
"""That of bfloat16 in suites."""


@dataclass(frozen=True, kw_only=True)
class StrategySetting:
    """What is optimised: the module on its device, and a sample of its inputs by name where there is one."""

    model: torch.nn.Module
    device: torch.device
    sample: Mapping[str, torch.Tensor] = field(default_factory=dict)
    dtype: torch.dtype | None = None


class Strategy:
    """One of them. `limit` is how far the outputs may move relative to their scale."""

    name: ClassVar[str]
    description: ClassVar[str]
    level: ClassVar[OptimizationLevel]
    limit: ClassVar[float] = FLOAT32_LIMIT
    training: ClassVar[bool] = False
    """Whether it is for training; else for inference."""
    speeds_up: ClassVar[bool] = True
    """Whether it is there for speed, and is taken back where it brings none; else for memory."""
    compiled_only: ClassVar[bool] = False
    """Whether it is slow by itself, and tried only together with compilation."""
    instead_of: ClassVar[str] = ""
    """What it is one of several ways to: of those with the same, one is enough. Empty where there is no other."""

    @property
    def applicable_levels(self) -> tuple[OptimizationLevel, ...]:
        """The level that brings it, and those above."""
        return tuple(level for level in OptimizationLevel if level.rank >= self.level.rank)

    def obstacle(self, setting: StrategySetting) -> str:
        """Why it isn't done here; the empty string where it can be."""
        raise NotImplementedError

    def apply(self, setting: StrategySetting) -> ModuleChange:
        """Do it, in place. Raises whatever the library does, and then leaves the module as it was.

        What was on before is on again when the change is turned off; nothing is made anew when it is turned on.
        """
        raise NotImplementedError

    def is_applied(self, model: torch.nn.Module) -> bool:
        """Whether it is in force, from looking into the module."""
        raise NotImplementedError


def _half(device: torch.device) -> torch.dtype | None:
    """The half precision that a device's own arithmetic has, the one with the wider range first; None without."""
    import torch

    if device.type == "cpu":
        return torch.bfloat16 if torch.ops.mkldnn._is_mkldnn_bf16_supported() else None
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    return {"xpu": torch.bfloat16, "mps": torch.float16}.get(device.type)


class MixedPrecision(Strategy):
    """Matrix products in half precision, everything delicate in float32."""

    name = "mixed_precision"
    description = "autocast: products and convolutions in half precision, where the hardware computes in it"
    level = OptimizationLevel.O1
    limit = HALF_LIMIT

    def obstacle(self, setting: StrategySetting) -> str:
        if setting.dtype is not None and setting.dtype.itemsize > 2:
            return f"{str(setting.dtype).removeprefix('torch.')} was asked for"
        if any(p.is_floating_point() and p.dtype.itemsize < 4 for p in setting.model.parameters()):
            return "its weights are in half precision already"
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
    """The same for a training step, in a half precision with float32's range."""

    training = True

    def obstacle(self, setting: StrategySetting) -> str:
        import torch

        if why := super().obstacle(setting):
            return why
        if (setting.dtype or _half(setting.device)) is torch.float16:
            return "small gradients are 0 in float16, unless the training loop scales its loss"
        return ""


class ChannelsLast(Strategy):
    """Convolutions on memory in which a pixel's channels lie side by side."""

    name = "channels_last"
    description = "channels-last memory for models with convolutions over images"
    level = OptimizationLevel.O1

    def obstacle(self, setting: StrategySetting) -> str:
        import torch

        if not any(isinstance(module, torch.nn.Conv2d) for module in setting.model.modules()):
            return "it has no convolutions over images"
        return ""

    def apply(self, setting: StrategySetting) -> ModuleChange:
        import torch

        def pictures_last(module: Any, args: Any, kwargs: Any) -> Any:
            from torch.utils._pytree import tree_map

            def last(value: Any) -> Any:
                is_picture = isinstance(value, torch.Tensor) and value.dim() == 4 and value.is_floating_point()
                return value.contiguous(memory_format=torch.channels_last) if is_picture else value

            return tree_map(last, args), tree_map(last, kwargs)

        hooks: list[Any] = []

        def on() -> None:
            if not hooks:
                _lay_out(setting.model, torch.channels_last)
                hooks.append(setting.model.register_forward_pre_hook(pictures_last, with_kwargs=True))

        def off() -> None:
            while hooks:
                hooks.pop().remove()
                _lay_out(setting.model, torch.contiguous_format)

        on()
        return ModuleChange(on=on, off=off)

    def is_applied(self, model: torch.nn.Module) -> bool:
        import torch

        kernels = [
            m.weight for m in model.modules() if isinstance(m, torch.nn.Conv2d) and max(m.weight.shape[1:]) > 1
        ]
        return bool(kernels) and all(k.is_contiguous(memory_format=torch.channels_last) for k in kernels)


def _lay_out(model: torch.nn.Module, memory_format: torch.memory_format) -> None:
    """What has four axes, as `Module.to` lays it out; that may refuse while somebody else holds a weight."""
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.dim() == 4 and tensor.is_floating_point():
            tensor.data = tensor.data.contiguous(memory_format=memory_format)


class FoldedBatchNorms(Strategy):
    """A normalisation with fixed statistics is a part of the convolution before it."""

    name = "folded_batch_norms"
    description = "batch normalisations folded into the convolutions whose outputs they alone take"
    level = OptimizationLevel.O1

    def obstacle(self, setting: StrategySetting) -> str:
        import torch

        if not any(isinstance(module, torch.nn.BatchNorm2d) for module in setting.model.modules()):
            return "it has no batch normalisations"
        if not foldable_pairs(setting.model, setting.sample, self.limit):
            return "no batch normalisation is all that takes a convolution's output"
        return ""

    def apply(self, setting: StrategySetting) -> ModuleChange:
        return folded(setting.model, foldable_pairs(setting.model, setting.sample, self.limit))

    def is_applied(self, model: torch.nn.Module) -> bool:
        return any(hasattr(module, "_hwcompat_folded") for module in model.modules())


class Compiled(Strategy):
    """torch.compile."""

    name = "torch_compile"
    description = "torch.compile with its default back end"
    level = OptimizationLevel.O2
    mode: ClassVar[str] = "default"

    def obstacle(self, setting: StrategySetting) -> str:
        import torch

        if setting.device.type not in ("cpu", "cuda", "xpu", "mps"):
            return f"torch.compile makes no kernels for {setting.device.type}"
        if not torch._dynamo.is_dynamo_supported():
            return "torch.compile doesn't support this Python"
        if setting.device.type == "cpu" and not _has_compiler():
            return "torch.compile needs a C++ compiler, and there is none"
        return ""

    def apply(self, setting: StrategySetting) -> ModuleChange:
        model = setting.model
        model.compile(mode=self.mode)
        compiled = model._compiled_call_impl

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
    mode = "max-autotune-no-cudagraphs"


class GradientCheckpointing(Strategy):
    """Activations are computed again for the backward pass, not kept."""

    name = "gradient_checkpointing"
    description = "activations are computed again in the backward pass: less memory, more time"
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


def _has_compiler() -> bool:
    import shutil

    return any(shutil.which(name) for name in ("g++", "clang++", "c++"))


def foldable_pairs(model: torch.nn.Module, sample: Mapping[str, torch.Tensor], limit: float) -> list[Pair]:
    """Names of convolutions and of the normalisations that alone take their outputs, as passes over `sample` show.

    Both run once, the normalisation in evaluation mode with statistics of its own, and it is handed the very tensor
    that the convolution gave. Whether something else reads that tensor too can't be seen from that: pairs that move
    an output by more than `limit` of its scale when they are folded aren't among them.
    """
    found = _handed_over(model, sample) if sample else []
    if not found:
        return []
    want = outputs_of(model, sample)
    if _moved(model, found, sample, want) <= limit:
        return found
    return [pair for pair in found if _moved(model, [pair], sample, want) <= limit]


def _moved(model: torch.nn.Module, pairs: list[Pair], sample: Mapping[str, torch.Tensor], want: Any) -> float:
    from ..compare import compare

    change = folded(model, pairs)
    try:
        return compare(outputs_of(model, sample), want).max_rel_error
    finally:
        change.off()


def outputs_of(model: torch.nn.Module, sample: Mapping[str, torch.Tensor]) -> Any:
    """The outputs of a pass over a sample, as arrays by name."""
    import torch

    from ..model.calls import to_arrays
    from ..model.outputs import results

    with torch.no_grad():
        return to_arrays(results(model(**sample)))


def _handed_over(model: torch.nn.Module, sample: Mapping[str, torch.Tensor]) -> list[Pair]:
    import torch
    from torch.nn.modules import module as hooks

    names = {module: name for name, module in model.named_modules()}
    given: dict[int, tuple[str, torch.Tensor]] = {}
    runs: Counter[str] = Counter()
    pairs: list[Pair] = []

    def look(module: Any, args: tuple[Any, ...]) -> None:
        if module in names and isinstance(module, torch.nn.BatchNorm2d) and not module.training:
            runs[names[module]] += 1
            if module.track_running_stats and args and id(args[0]) in given:
                pairs.append((given[id(args[0])][0], names[module]))

    def keep(module: Any, _: Any, output: torch.Tensor) -> None:
        if module in names and isinstance(module, torch.nn.Conv2d):
            runs[names[module]] += 1
            given[id(output)] = names[module], output  # the tensor is kept so that its id stays its own

    with (
        hooks.register_module_forward_pre_hook(look),
        hooks.register_module_forward_hook(keep),
        torch.no_grad(),
    ):
        model(**sample)
    return [pair for pair in pairs if all(runs[name] == 1 for name in pair)]


def folded(model: torch.nn.Module, pairs: list[Pair]) -> ModuleChange:
    """Fold each pair in place: the convolution gets the scale and shift of the normalisation, which does nothing."""
    import torch
    from torch.nn.utils.fusion import fuse_conv_bn_eval

    before = {name: model.get_submodule(name) for pair in pairs for name in pair}
    after: dict[str, torch.nn.Module] = {}
    for convolution, norm in pairs:
        whole = fuse_conv_bn_eval(before[convolution], before[norm])
        whole._hwcompat_folded = norm
        after |= {convolution: whole, norm: torch.nn.Identity()}
    return replaced(model, after)
