"""Attention masks as plain arithmetic, for runtimes that compute those of transformers elsewhere, or wrongly.

transformers builds a mask by indexing (a GatherND, or a Gather in a flattened mask) and by `and` of booleans. QNN's
HTP has no kernel for the first, and gave wrong numbers for the second without a word (onnxruntime-qnn 2.7.0: a tiny
llama was off by 2.8 of its output's scale, and is by 0.02 with sums).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

RULED_OUT = -1e4
"""Added to a score that doesn't count: exp of it is zero, and three of them are still a number in float16. With minus
infinity a row that is ruled out altogether becomes NaN, and spreads."""


@contextlib.contextmanager
def arithmetic_masks() -> Iterator[None]:
    """For a while, transformers' masks are sums: (batch, 1, queries, keys) to be added to the scores, 0 where a key
    counts.

    What follows from positions alone is a constant of the trace; what the caller's 2-D mask (batch, keys) leaves out
    is added to it.
    """
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    before = {name: ALL_MASK_ATTENTION_FUNCTIONS[name] for name in ("sdpa", "eager")}
    for name in before:
        ALL_MASK_ATTENTION_FUNCTIONS.register(name, _mask)
    try:
        yield
    finally:
        for name, function in before.items():
            ALL_MASK_ATTENTION_FUNCTIONS.register(name, function)


def _mask(*args: Any, attention_mask: torch.Tensor | None = None, dtype: Any = None, **how: Any) -> torch.Tensor:
    import torch

    dtype = torch.float32 if dtype is None else dtype
    how |= {"allow_is_causal_skip": False, "allow_torch_fix": False}
    how.pop("allow_is_bidirectional_skip", None)
    allowed: torch.Tensor = _by_position()(*args, attention_mask=None, **how).to(dtype)
    left_out = 1 - allowed
    if attention_mask is not None:
        begin, length = how.get("kv_offset", 0), how["kv_length"]
        kept = attention_mask[:, begin : begin + length].to(dtype)
        left_out = left_out + (1 - kept)[:, None, None, :]
    return left_out * RULED_OUT


def _by_position() -> Any:
    """The library's mask as booleans, without vmap, which can't be traced."""
    try:
        from optimum.exporters.openvino.patching_utils import sdpa_mask_without_vmap
    except ImportError:  # the library's own, which uses no vmap since transformers 5
        from transformers.masking_utils import sdpa_mask

        return sdpa_mask
    return sdpa_mask_without_vmap
