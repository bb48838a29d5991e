"""Layers whose products are made in 8 bits by torch's own kernels, and the layers that they can stand for."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Product = tuple["torch.Tensor", "torch.Tensor | None"]

FLOAT8_MULTIPLE = 16
"""`torch._scaled_mm` takes rows and columns of a weight in multiples of this."""


@dataclass(frozen=True, kw_only=True)
class Float8:
    """A float8 format that a device multiplies, and its largest number."""

    dtype: torch.dtype
    largest: float


def products(model: torch.nn.Module) -> dict[str, Product]:
    """By name, weight (out, in) and bias of the layers that are a product and nothing else: `Linear`, and the
    `Conv1D` of transformers, which is one with its weight the other way round."""
    import torch

    turned = getattr(sys.modules.get("transformers.pytorch_utils"), "Conv1D", None)
    found: dict[str, Product] = {}
    for name, module in model.named_modules():
        if type(module) is torch.nn.Linear:
            found[name] = module.weight, module.bias
        elif turned is not None and type(module) is turned:
            found[name] = module.weight.t(), module.bias
    return found


@functools.cache
def _eight_bits() -> Any:
    """What both layers are. The classes are made on first use, since importing us imports no torch."""
    import torch

    class EightBits(torch.nn.Module):  # type: ignore[misc] # torch is Any to mypy
        def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
            super().__init__()
            self.out_features, self.in_features = weight.shape
            self.weight = torch.empty_like(weight, device="meta")  # for code that asks a layer for its dtype
            self.bias = None if bias is None else torch.nn.Parameter(bias.detach(), requires_grad=False)

    return EightBits


@functools.cache
def _int8_linear() -> Any:
    import torch

    class Int8Linear(_eight_bits()):  # type: ignore[misc] # made on first use
        """Weights in int8 with a scale for each row; activations in uint8 with a scale and a zero for each call.

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
        """Weights in float8 with a scale for all; activations in float8 with a scale for each call."""

        def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, form: Float8) -> None:
            super().__init__(weight, bias)
            self._dtype, self._largest = form.dtype, form.largest
            narrow, scale = self._narrow(weight.detach())
            self.register_buffer("narrow", narrow.contiguous())
            self.register_buffer("scale", scale)

        def _narrow(self, wide: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            scale = wide.float().abs().amax().clamp(min=1e-12) / self._largest
            return (wide.float() / scale).clamp(-self._largest, self._largest).to(self._dtype), scale

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            rows, scale = self._narrow(x.reshape(-1, self.in_features))
            made = torch._scaled_mm(
                rows,
                self.narrow.t(),
                scale_a=scale,
                scale_b=self.scale,
                out_dtype=x.dtype,
            ).reshape(*x.shape[:-1], self.out_features)
            return made if self.bias is None else made + self.bias.to(made.dtype)

    return Float8Linear


def int8_layers(model: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """A layer in int8 for each of the `products` of a module on the host."""
    return {name: _int8_linear()(*product) for name, product in products(model).items()}


def float8_layers(model: torch.nn.Module, form: Float8) -> dict[str, torch.nn.Module]:
    """A layer in float8 for each of the `products` whose sizes the kernel takes."""
    return {
        name: _float8_linear()(weight, bias, form)
        for name, (weight, bias) in products(model).items()
        if all(size % FLOAT8_MULTIPLE == 0 for size in weight.shape)
    }


def holds_int8(model: torch.nn.Module) -> bool:
    """Whether a module has layers of `int8_layers`."""
    return any(isinstance(one, _int8_linear()) for one in model.modules())


def holds_float8(model: torch.nn.Module) -> bool:
    """Whether a module has layers of `float8_layers`, with their weights in float8."""
    return any(isinstance(one, _float8_linear()) and one.narrow.element_size() == 1 for one in model.modules())


def float8_of(device: torch.device) -> Float8 | str:
    """The float8 that a device multiplies, or why it multiplies none.

    CUDA from compute capability 8.9 on; of AMD's, MI300 (gfx94) with formats that have no negative zero, and those
    after it. torch's kernel for the host widens both sides first.
    """
    import torch

    if device.type == "cpu":
        return "no processor multiplies float8 itself: torch's kernel there widens it first"
    if device.type != "cuda":
        return f"torch has no float8 products for {device.type}"
    if torch.version.hip:
        architecture = torch.cuda.get_device_properties(device).gcnArchName
        if architecture.startswith("gfx94"):
            return Float8(dtype=torch.float8_e4m3fnuz, largest=torch.finfo(torch.float8_e4m3fnuz).max)
        if not architecture.startswith(("gfx95", "gfx12")):
            return f"{architecture.partition(':')[0]} doesn't multiply float8"
    elif (found := torch.cuda.get_device_capability(device)) < (8, 9):
        return f"compute capability {found[0]}.{found[1]} doesn't multiply float8; 8.9 does"
    return Float8(dtype=torch.float8_e4m3fn, largest=torch.finfo(torch.float8_e4m3fn).max)
