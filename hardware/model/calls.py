"""How a torch module is called, and brought into a precision."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from .model_types import Unsupported
from .outputs import nested, results

if TYPE_CHECKING:
    import torch


def torch_dtype(precision: str) -> torch.dtype:
    """The dtype that tensors have in a precision. Raises `Unsupported` where torch has none for it."""
    import torch

    table = {
        "float32": torch.float32,
        "tf32": torch.float32,
        "float16": torch.float16,
        "bfloat16": torch.bfloat16,
        "float64": torch.float64,
    }
    if precision not in table:
        raise Unsupported(f"{precision} needs a quantised model", error_type="unsupported_dtype")
    return table[precision]


def without_cache(model: torch.nn.Module) -> dict[str, bool]:
    """The argument that asks a model for a pass without a cache; empty where the model doesn't take it."""
    return {"use_cache": False} if "use_cache" in inspect.signature(model.forward).parameters else {}


def forward(model: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The results of one forward pass without a cache, where the model takes that wish."""
    return results(model(**nested(tensors), **without_cache(model)))


def forget_passes(model: torch.nn.Module) -> None:
    """Have a model in evaluation mode drop what it keeps of earlier passes, which has their dtype and no gradient.

    LeViT keeps its biases between patches so. That training goes on is what tells it to drop them.
    """
    model.train()
    model.eval()


def in_dtype(model: torch.nn.Module, dtype: torch.dtype) -> torch.nn.Module:
    """The floating parameters and buffers of a model in `dtype`, in place. Complex ones stay (Llama 4 has one):
    `to` would make them real, and lose their imaginary part."""
    model._apply(lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)
    return model


if TYPE_CHECKING:
    import torch

    from .model_types import Array


def to_tensors(inputs: Mapping[str, Array], device: Any, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Arrays as tensors on `device`; floating-point ones in `dtype`. Copies, since modelling code may write into what
    it is given, as XGLM of transformers 4.57 adds 2 to its positions in place."""
    import numpy as np
    import torch

    tensors = {name: torch.as_tensor(np.array(value, order="C")) for name, value in inputs.items()}
    return {
        name: tensor.to(device=device, dtype=dtype if tensor.is_floating_point() else None)
        for name, tensor in tensors.items()
    }


def to_arrays(tensors: Mapping[str, torch.Tensor]) -> dict[str, Array]:
    """Tensors as arrays in host memory: float64, minus infinity where an entry is ruled out; whole numbers and
    booleans as they are.

    Grounding DINO gives that to words behind a text's end. Others give the smallest number of the dtype (Chameleon to
    words that images are made of), which isn't the same in two precisions.
    """
    import torch

    def array(tensor: torch.Tensor) -> Array:
        if not tensor.is_floating_point():
            return cast("Array", tensor.detach().to("cpu").numpy())
        smallest = tensor == torch.finfo(tensor.dtype).min
        kept = tensor.masked_fill(smallest, -torch.inf) if bool(smallest.any()) else tensor
        return cast("Array", kept.detach().to("cpu").to(torch.float64).numpy())

    return {name: array(tensor) for name, tensor in tensors.items()}
