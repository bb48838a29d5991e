"""Call a torch module, and convert it to a precision."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from .model_types import Unsupported
from .outputs import nested, results

if TYPE_CHECKING:
    import torch

    from .model_types import Array


def torch_dtype(precision: str) -> torch.dtype:
    """Return the dtype of tensors in a precision. Raises `Unsupported` if torch has none for it."""
    import torch

    table = {
        "float32": torch.float32,
        "tf32": torch.float32,
        "float16": torch.float16,
        "bfloat16": torch.bfloat16,
        "float64": torch.float64,
    }
    if precision not in table:
        raise Unsupported(f"{precision} needs a quantized model", error_type="unsupported_dtype")
    return table[precision]


def without_cache(model: torch.nn.Module) -> dict[str, bool]:
    """Return the argument for a pass without a cache; empty if the model doesn't accept it."""
    return {"use_cache": False} if "use_cache" in inspect.signature(model.forward).parameters else {}


def forward(model: torch.nn.Module, tensors: Mapping[str, torch.Tensor], **more: Any) -> dict[str, torch.Tensor]:
    """Return the results of one forward pass, without a cache if the model accepts that argument."""
    return results(model(**nested(tensors), **without_cache(model), **more))


def forget_passes(model: torch.nn.Module) -> None:
    """Let a model in evaluation mode drop what it caches of earlier passes, which has their dtype and no gradient.

    LeViT caches the biases between its patches, and drops them when training continues.
    """
    model.train()
    model.eval()


def in_dtype(model: torch.nn.Module, dtype: torch.dtype) -> torch.nn.Module:
    """Convert floating-point parameters and buffers to `dtype`, in place. Complex ones stay (Llama 4 has one): `to`
    would drop their imaginary part."""
    model._apply(lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)
    return model


def to_tensors(inputs: Mapping[str, Array], device: Any, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Return arrays as tensors on `device`, floating-point ones in `dtype`. Copies, since modeling code may write
    into its inputs: XGLM of transformers 4.57 adds 2 to its positions in place."""
    import numpy as np
    import torch

    tensors = {name: torch.as_tensor(np.array(value, order="C")) for name, value in inputs.items()}
    return {
        name: tensor.to(device=device, dtype=dtype if tensor.is_floating_point() else None)
        for name, tensor in tensors.items()
    }


def to_arrays(tensors: Mapping[str, torch.Tensor]) -> dict[str, Array]:
    """Return tensors as arrays in host memory: float64, with minus infinity for masked entries; integers and booleans
    as they are.

    Grounding DINO returns minus infinity for words after a text's end. Others return the smallest number of the dtype
    (Chameleon for image tokens), which differs between precisions.
    """
    import torch

    def array(tensor: torch.Tensor) -> Array:
        if not tensor.is_floating_point():
            return cast("Array", tensor.detach().to("cpu").numpy())
        smallest = tensor == torch.finfo(tensor.dtype).min
        kept = tensor.masked_fill(smallest, -torch.inf) if bool(smallest.any()) else tensor
        return cast("Array", kept.detach().to("cpu").to(torch.float64).numpy())

    return {name: array(tensor) for name, tensor in tensors.items()}
