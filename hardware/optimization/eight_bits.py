"""Strategies for products of linear layers in 8 bits, and their layers: int8 on the host and float8 by torch's own
kernels, int8 on accelerators by torchao."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, ClassVar

from ..command_names import as_runnable
from .optimization_steps import ModuleChange, OptimizationLevel, replaced
from .strategies import Strategy, StrategySetting

if TYPE_CHECKING:
    import torch

INT8_LIMIT = 0.25
"""Error of weights and activations in 8 bits: a hundredth of their range each, in every layer. Seeded random weights
show more of it than trained ones."""

FLOAT8_LIMIT = 0.25
"""Error of float8, which rounds to 3 bits of mantissa: at most 6 % of each term."""

FLOAT8_MULTIPLE = 16
"""Rows and columns of a weight in `torch._scaled_mm` are multiples of this."""


def products(model: torch.nn.Module) -> dict[str, tuple[torch.Tensor, torch.Tensor | None]]:
    """Return weight (out, in) and bias of the layers that are only a product, by name: `Linear`, and transformers'
    `Conv1D`, whose weight is transposed."""
    import torch

    transposed = getattr(sys.modules.get("transformers.pytorch_utils"), "Conv1D", None)
    found: dict[str, tuple[torch.Tensor, torch.Tensor | None]] = {}
    for name, module in model.named_modules():
        if type(module) is torch.nn.Linear:
            found[name] = module.weight, module.bias
        elif transposed is not None and type(module) is transposed:
            found[name] = module.weight.t(), module.bias
    return found


@functools.cache
def _eight_bits() -> Any:
    """Return the base of both layers. Made on first use, so that importing this module imports no torch."""
    import torch

    class EightBits(torch.nn.Module):  # type: ignore[misc] # torch is Any to mypy
        def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
            super().__init__()
            self.out_features, self.in_features = weight.shape
            self.weight = torch.empty_like(weight, device="meta")  # for code that reads a layer's dtype
            self.bias = None if bias is None else torch.nn.Parameter(bias.detach(), requires_grad=False)

    return EightBits


@functools.cache
def _int8_linear() -> Any:
    import torch

    class Int8Linear(_eight_bits()):  # type: ignore[misc] # made on first use
        """Weights in int8 with a scale for each row; activations in uint8 with a scale and zero point for each call.

        Without VNNI, sums of two products are kept in 16 bits, and activations use 7 of their 8.
        """

        def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
            super().__init__(weight, bias)
            wide = weight.detach().float()
            self.scales = wide.abs().amax(dim=1).clamp(min=1e-12) / 127
            self.zeros = torch.zeros(len(wide), dtype=torch.int64)
            narrow = (wide / self.scales[:, None]).round().clamp(-127, 127).to(torch.int8)
            self.packed = torch.ops.onednn.qlinear_prepack(narrow.contiguous(), None)
            self.most = 255 if torch.cpu._is_vnni_supported() else 127

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            wide = x.float().contiguous()
            low, high = wide.aminmax()
            low, high = low.clamp(max=0), high.clamp(min=0)
            scale = ((high - low) / self.most).clamp(min=1e-12)
            zero = (-low / scale).round()
            narrow = (wide / scale + zero).round().clamp(0, self.most).to(torch.uint8)
            bias = None if self.bias is None else self.bias.float()
            made = torch.ops.onednn.qlinear_pointwise.tensor(
                *(narrow, scale, zero.int(), self.packed, self.scales, self.zeros, bias),
                *(1.0, 0, torch.float32, "none", [], ""),  # of the output: scale, zero, dtype, nothing behind it
            )
            return made.to(x.dtype)

    return Int8Linear


@functools.cache
def _float8_linear() -> Any:
    import torch

    class Float8Linear(_eight_bits()):  # type: ignore[misc] # made on first use
        """Weights in float8 with one scale; activations in float8 with a scale for each call."""

        def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, dtype: torch.dtype) -> None:
            super().__init__(weight, bias)
            self._dtype, self._largest = dtype, torch.finfo(dtype).max
            narrow, scale = self._narrow(weight.detach())
            self.register_buffer("narrow", narrow.contiguous())
            self.register_buffer("scale", scale)

        def _narrow(self, wide: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            scale = wide.float().abs().amax().clamp(min=1e-12) / self._largest
            return (wide.float() / scale).clamp(-self._largest, self._largest).to(self._dtype), scale

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            rows, scale = self._narrow(x.reshape(-1, self.in_features))
            narrow = self.narrow.t()
            made = torch._scaled_mm(rows, narrow, scale_a=scale, scale_b=self.scale, out_dtype=x.dtype)
            made = made.reshape(*x.shape[:-1], self.out_features)
            return made if self.bias is None else made + self.bias.to(made.dtype)

    return Float8Linear


def float8_layers(model: torch.nn.Module, dtype: torch.dtype) -> dict[str, torch.nn.Module]:
    """Return a layer in float8 for each of the `products` whose sizes the kernel accepts."""
    return {
        name: _float8_linear()(weight, bias, dtype)
        for name, (weight, bias) in products(model).items()
        if all(size % FLOAT8_MULTIPLE == 0 for size in weight.shape)
    }


def kinds_of(model: torch.nn.Module) -> set[str]:
    """Return the kinds of 8-bit products in a module: of its layers, or of torchao's tensors in `Linear`."""
    import torch

    layers = {type(one).__name__ for one in model.modules() if isinstance(one, _eight_bits()) and _is_narrow(one)}
    weights = {type(one.weight.data).__name__ for one in model.modules() if type(one) is torch.nn.Linear}
    return layers | (weights & {Int8.kind})


def _is_narrow(layer: Any) -> bool:
    """Return whether a layer's numbers still have 8 bits: casting a module casts those in float8 too."""
    return not hasattr(layer, "narrow") or layer.narrow.element_size() == 1


def float8_of(device: torch.device) -> torch.dtype | str:
    """Return the float8 type that a device multiplies, or the reason why it multiplies none.

    CUDA from compute capability 8.9 on; of AMD's, MI300 (gfx94) with formats without a negative zero, and those after
    it. torch's kernel for the host widens both sides first.
    """
    import torch

    if device.type == "cpu":
        return "processors can't multiply float8: torch's CPU kernel widens it first"
    if device.type != "cuda":
        return f"torch has no float8 products for {device.type}"
    if torch.version.hip:
        architecture = torch.cuda.get_device_properties(device).gcnArchName
        if architecture.startswith("gfx94"):
            return torch.float8_e4m3fnuz
        if not architecture.startswith(("gfx95", "gfx12")):
            return f"{architecture.partition(':')[0]} doesn't multiply float8"
    elif (found := torch.cuda.get_device_capability(device)) < (8, 9):
        return f"compute capability {found[0]}.{found[1]} doesn't multiply float8 (8.9 or later does)"
    return torch.float8_e4m3fn


class EightBits(Strategy):
    """Linear layers in 8 bits."""

    level = OptimizationLevel.O3
    limit = INT8_LIMIT
    instead_of = "8 bits"
    kind: ClassVar[str]
    """Kind of its products, as in `kinds_of`."""

    def obstacle(self, setting: StrategySetting) -> str:
        if why := self._missing(setting):
            return why
        if kinds_of(setting.model):
            return "its linear layers are already in 8 bits"
        return "" if products(setting.model) else "it has no linear layers"

    def _missing(self, setting: StrategySetting) -> str:
        """Return the reason why the kernels are missing, or an empty string."""
        raise NotImplementedError

    def is_applied(self, model: torch.nn.Module) -> bool:
        return self.kind in kinds_of(model)


class Int8Kernels(EightBits):
    """int8 on the host."""

    name = "int8_kernels"
    kind = "Int8Linear"
    description = "oneDNN's int8 kernels for the host: weights of linear layers, and activations at run time"

    def _missing(self, setting: StrategySetting) -> str:
        import torch

        if setting.device.type != "cpu":
            return "oneDNN's int8 kernels are for the host"
        if not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.onednn, "qlinear_prepack")):
            return "this build of torch has no int8 kernels"
        return ""

    def apply(self, setting: StrategySetting) -> ModuleChange:
        return replaced(
            setting.model,
            {name: _int8_linear()(*product) for name, product in products(setting.model).items()},
        )


class Float8(EightBits):
    """float8 on hardware that multiplies it."""

    name = "float8_dynamic"
    kind = "Float8Linear"
    description = "torch's float8 products: weights of linear layers, and activations at run time"
    limit = FLOAT8_LIMIT
    compiled_only = True

    def obstacle(self, setting: StrategySetting) -> str:
        import torch

        if why := super().obstacle(setting):
            return why
        given = (torch.float32, torch.bfloat16, torch.float16)
        if any(weight.dtype not in given for weight, _ in products(setting.model).values()):
            return "float8 products don't give the precision of its weights"
        return ""

    def _missing(self, setting: StrategySetting) -> str:
        dtype = float8_of(setting.device)
        return dtype if isinstance(dtype, str) else ""

    def apply(self, setting: StrategySetting) -> ModuleChange:
        dtype = float8_of(setting.device)
        if isinstance(dtype, str):
            raise ValueError(dtype)
        return replaced(setting.model, float8_layers(setting.model, dtype))


class Int8(EightBits):
    """int8 through torchao."""

    name = "int8_dynamic"
    kind = "Int8Tensor"
    description = "torchao: weights of linear layers in int8, activations quantized at run time"
    compiled_only = True

    def obstacle(self, setting: StrategySetting) -> str:
        import torch

        if why := super().obstacle(setting):
            return why
        linear = any(type(module) is torch.nn.Linear for module in setting.model.modules())
        return "" if linear else "it has no linear layers that torchao supports"

    def _missing(self, setting: StrategySetting) -> str:
        import importlib.util

        if importlib.util.find_spec("torchao") is None:
            return as_runnable("torchao isn't installed (pip install 'hwcompat[optimize]')")
        if setting.device.type not in ("cpu", "cuda", "xpu"):
            return f"torchao has no int8 kernels for {setting.device.type}"
        return ""

    def apply(self, setting: StrategySetting) -> ModuleChange:
        import torch
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

        layers = [module for module in setting.model.modules() if type(module) is torch.nn.Linear]
        before = [module.weight for module in layers]

        def put(weights: list[torch.nn.Parameter]) -> None:
            for module, weight in zip(layers, weights, strict=True):
                module.weight = weight

        try:
            quantize_(setting.model, Int8DynamicActivationInt8WeightConfig(version=2, set_inductor_config=False))
        except Exception:
            put(before)
            raise
        after = [module.weight for module in layers]
        return ModuleChange(on=lambda: put(after), off=lambda: put(before))
