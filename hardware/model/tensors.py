"""Arrays become tensors on a device, and tensors arrays in host memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import torch

    from .types import Array


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
