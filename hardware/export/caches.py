"""Caches of transformers in a form that can be traced and converted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@contextlib.contextmanager
def traceable_caches() -> Iterator[None]:
    """Caches that begin with a tensor of the right axes, and whose states are replaced instead of written over.

    transformers begins a layer with a tensor of one axis, which OpenVINO can't join to one of four, and copies into
    the states of a state space, which a trace loses.
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

    with contextlib.ExitStack() as stack:
        stack.enter_context(growing_caches())
        stack.enter_context(replaced(DynamicLayer, "lazy_initialization", begin_empty))
        stack.enter_context(replaced(LinearAttentionLayer, "update_conv_state", replace_convolution))
        stack.enter_context(replaced(LinearAttentionLayer, "update_recurrent_state", replace_recurrent))
        yield


@contextlib.contextmanager
def growing_caches() -> Iterator[None]:
    """Caches of a sliding window that keep all keys, as others do: the mask rules out those before the window.

    transformers counts the length of such a cache in Python, where a trace freezes it; that of one which keeps
    everything is the size of its tensors.
    """
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

    names = ("update", "get_mask_sizes", "get_seq_length", "get_max_cache_shape")
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(replaced(DynamicSlidingWindowLayer, name, getattr(DynamicLayer, name)))
        yield


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Let an attribute of a class or module have another value for a while."""
    own = vars(owner)
    had, before = name in own, own.get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if had:
            setattr(owner, name, before)
        else:
            delattr(owner, name)  # it was a base class's, or nobody's
