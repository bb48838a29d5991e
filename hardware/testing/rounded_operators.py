"""Passes with exact operators that round their results once: the effect of a precision alone on a model.

No kernel of the target is used. A model may be in the precision: then its operators get their inputs in float64,
and results keep the dtypes that the model's code asks for. Or it is in float64, and each result is rounded: then no
branch of the code for half precision runs either, and what the code computes in float32 on purpose is rounded too.
Sums that torch's own kernel makes in the precision itself are made so here. In TF32 only the factors of products and
convolutions are rounded.
"""

from __future__ import annotations

from typing import Any

_KEPT = frozenset({"_to_copy", "clone", "detach", "alias", "lift_fresh", "empty_like", "contiguous"})
"""Operators that compute nothing."""


def exact_operators() -> Any:
    """Return a mode in which torch's operators on narrow CPU tensors compute in float64 and round once."""
    import torch
    from torch.utils._pytree import tree_leaves, tree_map

    narrow = (torch.bfloat16, torch.float16, torch.float32)

    def wide(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dtype in narrow:
            return value.double()
        return torch.float64 if value in narrow else value

    def compute(func: Any, args: Any, kwargs: Any) -> Any:
        real = func(*args, **kwargs)
        tensors = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        computes = isinstance(real, torch.Tensor | tuple | list) and any(one.dtype in narrow for one in tensors)
        if not computes or func.is_view or func._schema.is_mutable or func.overloadpacket.__name__ in _KEPT:
            return real
        try:
            exact = func(*tree_map(wide, args), **tree_map(wide, kwargs))
        except (RuntimeError, NotImplementedError, TypeError):  # no float64 kernel
            return real
        if isinstance(real, torch.Tensor):
            return exact.to(real.dtype)
        made = [a.to(b.dtype) if isinstance(b, torch.Tensor) else b for a, b in zip(exact, real, strict=True)]
        return type(real)(_with_coarse_sums(func, args, made, lambda sums: sums.to(args[0].dtype)))

    return _mode(compute)


def rounded_results(dtype: Any) -> Any:
    """Return a mode in which each float64 result is rounded to a narrow dtype."""
    import torch
    from torch.utils._pytree import tree_map

    largest = torch.finfo(dtype).max

    def rounded(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dtype != torch.float64:
            return value
        return torch.where(value.abs() <= largest, value.to(dtype).double(), value)  # keep the number of a mask

    def compute(func: Any, args: Any, kwargs: Any) -> Any:
        real = func(*args, **kwargs)
        if func.is_view or func.overloadpacket.__name__ in _KEPT:
            return real
        if func._schema.is_mutable:
            return real.copy_(rounded(real)) if isinstance(real, torch.Tensor) else real
        if not isinstance(real, tuple | list):
            return rounded(real)
        return type(real)(_with_coarse_sums(func, args, [tree_map(rounded, one) for one in real], rounded))

    return _mode(compute)


_PRODUCTS = {
    "mm": (0, 1),
    "bmm": (0, 1),
    "addmm": (1, 2),
    "baddbmm": (1, 2),
    "convolution": (0, 1),
    "convolution_backward": (0, 1, 2),
    "_scaled_dot_product_flash_attention_for_cpu": (0, 1, 2),
    "_scaled_dot_product_flash_attention_for_cpu_backward": (0, 1, 2, 3),
}
"""Operators that compute in TF32, and which of their arguments are multiplied."""
_TF32_BITS = 11
"""Of the significand. Source: "Alternate floating-point data formats" in
https://docs.nvidia.com/cuda/parallel-thread-execution/
"""


def rounded_products() -> Any:
    """Return a mode in which the factors of products and convolutions are rounded to TF32, and sums are exact."""
    import torch

    def rounded(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        significand, exponent = torch.frexp(value)
        return torch.ldexp(torch.round(significand * 2**_TF32_BITS) / 2**_TF32_BITS, exponent)

    def compute(func: Any, args: Any, kwargs: Any) -> Any:
        multiplied = _PRODUCTS.get(func.overloadpacket.__name__, ())
        given = (rounded(one) if place in multiplied else one for place, one in enumerate(args))
        return func(*given, **kwargs)

    return _mode(compute)


def _mode(compute: Any) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Computing(TorchDispatchMode):  # type: ignore[misc] # torch is Any to mypy
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return compute(func, args, kwargs or {})

    return Computing()


def _with_coarse_sums(func: Any, args: Any, made: list[Any], rounded: Any) -> list[Any]:
    """Return an operator's results with the gradients of a layer norm's weight and bias summed in the precision
    itself, as torch's CPU kernel does. Of 1,500 positions, the last ones are added to a sum that is too coarse for
    them."""
    if func.overloadpacket.__name__ != "native_layer_norm_backward":
        return made
    gradient, given, shape, mean, scale = args[:5]
    rows = gradient.double().reshape(-1, *shape)
    normed = ((given.double() - mean.double()) * scale.double()).reshape(-1, *shape)
    for place, terms in ((1, rounded(rows * normed)), (2, rounded(rows))):
        if made[place] is not None:
            added = terms[0]
            for term in terms[1:]:
                added = rounded(added + term)
            made[place] = added
    return made
