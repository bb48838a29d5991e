"""Temporarily replace parts of transformers that can't be traced: caches, masks, experts, logits, and numbers that
Python reads from tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any
from unittest import mock

if TYPE_CHECKING:
    import torch

RULED_OUT = -1e4
"""Added to a masked score: its exp is zero, and three of them are still finite in float16. With minus infinity, a row
that is masked altogether becomes NaN, which spreads."""

_TRACEABLE_EXPERTS = "batched_mm"
"""transformers' implementation of experts without a loop over the chosen ones (`integrations/moe.py`)."""


@contextlib.contextmanager
def traceable_parts(model: torch.nn.Module) -> Iterator[None]:
    """Replace what no tracer can follow on any runtime: experts in a loop, caches, and packed sequences.

    transformers detects packed sequences with `diff`, which converters lack: there are none.
    """
    from transformers import masking_utils

    def no_packed_sequences(*_: Any) -> None:
        return None

    configs: list[Any] = [getattr(module, "config", None) for module in model.modules()]
    with contextlib.ExitStack() as stack:
        for config in (one for one in configs if hasattr(one, "_experts_implementation")):
            stack.callback(setattr, config, "_experts_implementation", config._experts_implementation)
            config._experts_implementation = _TRACEABLE_EXPERTS
        stack.enter_context(mock.patch.object(masking_utils, "find_packed_sequence_indices", no_packed_sequences))
        stack.enter_context(traceable_caches())
        yield


@contextlib.contextmanager
def traceable_caches() -> Iterator[None]:
    """Let caches begin with a tensor of the right axes, and replace their states instead of overwriting them.

    transformers begins a layer with a tensor of one axis, which OpenVINO can't concatenate to one of four, and copies
    into the states of a state space, which a trace loses.
    """
    import torch
    from transformers.cache_utils import DynamicLayer, LinearAttentionLayer

    begin = DynamicLayer.lazy_initialization

    def begin_empty(layer: Any, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        begin(layer, key_states, value_states)
        layer.keys, layer.values = key_states[:, :, :0], value_states[:, :, :0]

    def replace_convolution(layer: Any, conv_states: torch.Tensor, **_: Any) -> torch.Tensor:
        if not layer.is_conv_states_initialized:
            layer.lazy_initialization(conv_states=conv_states)
        known = [layer.conv_states] if layer.has_previous_state else []
        layer.conv_states = torch.cat([*known, conv_states], dim=-1)[..., -layer.conv_kernel_size :]
        layer.has_previous_state = True
        return layer.conv_states

    def replace_recurrent(layer: Any, recurrent_states: torch.Tensor, **_: Any) -> torch.Tensor:
        if not layer.is_recurrent_states_initialized:
            layer.lazy_initialization(recurrent_states=recurrent_states)
        layer.recurrent_states = recurrent_states
        return recurrent_states

    states: dict[str, Any] = {"update_conv_state": replace_convolution, "update_recurrent_state": replace_recurrent}
    with (
        growing_caches(),
        mock.patch.object(DynamicLayer, "lazy_initialization", begin_empty),
        mock.patch.multiple(LinearAttentionLayer, **states),
    ):
        yield


@contextlib.contextmanager
def growing_caches() -> Iterator[None]:
    """Let caches of a sliding window keep all keys: the mask excludes those before the window.

    transformers counts the length of such a cache in Python, where a trace freezes it; the length of a full cache is
    the size of its tensors.
    """
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

    names = ("update", "get_mask_sizes", "get_seq_length", "get_max_cache_shape")
    with mock.patch.multiple(DynamicSlidingWindowLayer, **{name: getattr(DynamicLayer, name) for name in names}):
        yield


def traceable_masks() -> AbstractContextManager[None]:
    """Build masks without vmap, which cannot be traced, with optimum-intel's replacement.

    Its mask is added to the scores. The library's own is boolean, and OpenVINO computes NaN for a padded row that
    attends to nothing, which spreads.
    """
    try:
        from optimum.exporters.openvino.patching_utils import eager_mask_without_vmap
    except ImportError:  # without optimum-intel the library's own masks are tried
        return contextlib.nullcontext()
    return _masks_by(eager_mask_without_vmap)


def arithmetic_masks() -> AbstractContextManager[None]:
    """Let transformers' masks be sums: (batch, 1, queries, keys), added to the scores, 0 for a key that counts. The
    part that depends only on positions is a constant of the trace; the caller's 2-D mask (batch, keys) is added to
    it.

    transformers builds a mask by indexing (a GatherND, or a Gather in a flattened mask) and by `and` of booleans.
    QNN's HTP has no kernel for the first, and silently gave wrong numbers for the second (onnxruntime-qnn 2.7.0: a
    tiny llama was off by 2.8 of its output's scale, and is by 0.02 with sums).
    """
    return _masks_by(_sum_mask)


@contextlib.contextmanager
def _masks_by(function: Any) -> Iterator[None]:
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    before = {name: ALL_MASK_ATTENTION_FUNCTIONS[name] for name in ("sdpa", "eager")}
    for name in before:
        ALL_MASK_ATTENTION_FUNCTIONS.register(name, function)
    try:
        yield
    finally:
        for name, own in before.items():
            ALL_MASK_ATTENTION_FUNCTIONS.register(name, own)


def _sum_mask(*args: Any, attention_mask: torch.Tensor | None = None, dtype: Any = None, **how: Any) -> torch.Tensor:
    import torch

    dtype = torch.float32 if dtype is None else dtype
    how |= {"allow_is_causal_skip": False, "allow_torch_fix": False}
    how.pop("allow_is_bidirectional_skip", None)
    allowed: torch.Tensor = _by_position()(*args, attention_mask=None, **how).to(dtype)
    masked = 1 - allowed
    if attention_mask is not None:
        begin, length = how.get("kv_offset", 0), how["kv_length"]
        kept = attention_mask[:, begin : begin + length].to(dtype)
        masked = masked + (1 - kept)[:, None, None, :]
    return masked * RULED_OUT


def _by_position() -> Any:
    """Return the library's mask function for booleans, without vmap, which can't be traced."""
    try:
        from optimum.exporters.openvino.patching_utils import sdpa_mask_without_vmap
    except ImportError:  # the library's own, which uses no vmap since transformers 5
        from transformers.masking_utils import sdpa_mask

        return sdpa_mask
    return sdpa_mask_without_vmap


@contextlib.contextmanager
def changeable_logits(model: torch.nn.Module) -> Iterator[None]:
    """Copy logits before they are changed in place: OpenVINO's converter writes such changes back into their source,
    which fails if that is a product."""
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if head is None:
        yield
        return
    hook = head.register_forward_hook(lambda _module, _given, logits: logits.clone())
    try:
        yield
    finally:
        hook.remove()


def traced_numbers() -> AbstractContextManager[Any]:
    """Keep numbers that Python reads from a tensor in the trace, as far as possible.

    The number of rows of experts or images is read as a list of integers, which `split` accepts as tensors too.
    During a trace sizes are tensors, and `round` accepts no tensors.
    """
    import torch

    listed = torch.Tensor.tolist

    def in_the_trace(tensor: torch.Tensor) -> Any:
        if torch.jit.is_tracing() and tensor.dim() == 1 and not tensor.is_floating_point():
            return [tensor[place] for place in range(tensor.shape[0])]
        return listed(tensor)

    def rounded(tensor: torch.Tensor, digits: int = 0) -> torch.Tensor:
        return torch.round(tensor, decimals=digits)

    return mock.patch.multiple(torch.Tensor, create=True, tolist=in_the_trace, __round__=rounded)
