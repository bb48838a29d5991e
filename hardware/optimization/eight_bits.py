"""Strategies that make the products of linear layers in 8 bits: int8 on the host, float8 and int8 on accelerators."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..own_commands import as_runnable
from .changes import Change, replaced
from .eight_bit_layers import (
    float8_layers,
    float8_of,
    holds_float8,
    holds_int8,
    int8_layers,
    products,
)
from .levels import OptimizationLevel
from .strategies import Setting, Strategy

if TYPE_CHECKING:
    import torch

INT8_LIMIT = 0.25
"""Weights and activations in 8 bits: a hundredth of their range each, in every layer. Loud random weights show more
of it than trained ones."""

FLOAT8_LIMIT = 0.25
"""The same of float8, which rounds to 3 bits of mantissa: by 6 % at most in what is summed up, wherever it lies."""


class EightBits(Strategy):
    """Linear layers in 8 bits."""

    level = OptimizationLevel.O3
    limit = INT8_LIMIT
    instead_of = "8 bits"

    def obstacle(self, setting: Setting) -> str:
        if why := self._missing(setting):
            return why
        if any(held(setting.model) for held in _HELD):
            return "its linear layers are in 8 bits already"
        return "" if products(setting.model) else "it has no linear layers"

    def _missing(self, setting: Setting) -> str:
        """Why the kernels aren't here; the empty string where they are."""
        raise NotImplementedError


class Int8Kernels(EightBits):
    """int8 on the host."""

    name = "int8_kernels"
    description = "oneDNN's int8 kernels for the host: weights of linear layers, and activations while it runs"

    def _missing(self, setting: Setting) -> str:
        import torch

        if setting.device.type != "cpu":
            return "oneDNN's int8 kernels are for the host"
        if not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.onednn, "qlinear_prepack")):
            return "this build of torch has no int8 kernels"
        return ""

    def apply(self, setting: Setting) -> Change:
        return replaced(setting.model, int8_layers(setting.model))

    def is_applied(self, model: torch.nn.Module) -> bool:
        return holds_int8(model)


class Float8(EightBits):
    """float8 where the hardware multiplies it."""

    name = "float8_dynamic"
    description = "torch's float8 products: weights of linear layers, and activations while it runs"
    limit = FLOAT8_LIMIT
    compiled_only = True

    def obstacle(self, setting: Setting) -> str:
        import torch

        if why := super().obstacle(setting):
            return why
        if any(p.dtype not in (torch.float32, torch.bfloat16, torch.float16) for p, _ in _of(setting.model)):
            return "its weights are in no precision that float8 products give"
        return ""

    def _missing(self, setting: Setting) -> str:
        form = float8_of(setting.device)
        return form if isinstance(form, str) else ""

    def apply(self, setting: Setting) -> Change:
        form = float8_of(setting.device)
        if isinstance(form, str):
            raise ValueError(form)
        return replaced(setting.model, float8_layers(setting.model, form))

    def is_applied(self, model: torch.nn.Module) -> bool:
        return holds_float8(model)


class Int8(EightBits):
    """int8 through torchao."""

    name = "int8_dynamic"
    description = "torchao: weights of linear layers in int8, activations made so while it runs"
    compiled_only = True

    def obstacle(self, setting: Setting) -> str:
        import torch

        if why := super().obstacle(setting):
            return why
        linear = any(type(module) is torch.nn.Linear for module in setting.model.modules())
        return "" if linear else "it has no linear layers that torchao knows"

    def _missing(self, setting: Setting) -> str:
        import importlib.util

        if importlib.util.find_spec("torchao") is None:
            return as_runnable("torchao isn't installed (pip install -r requirements-optimise.txt)")
        if setting.device.type not in ("cpu", "cuda", "xpu"):
            return f"torchao has no int8 kernels for {setting.device.type}"
        return ""

    def apply(self, setting: Setting) -> Change:
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
        return Change(on=lambda: put(after), off=lambda: put(before))

    def is_applied(self, model: torch.nn.Module) -> bool:
        return _holds_torchao(model)


def _of(model: torch.nn.Module) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
    return list(products(model).values())


def _holds_torchao(model: torch.nn.Module) -> bool:
    import torch

    return any(
        type(module) is torch.nn.Linear and type(module.weight.data).__name__ == "Int8Tensor"
        for module in model.modules()
    )


_HELD: tuple[Callable[[torch.nn.Module], bool], ...] = (holds_int8, holds_float8, _holds_torchao)
