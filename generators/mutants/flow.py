"""Breaks of what flows between the parts of a model: its masks, and its state between calls."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random

    import torch

    from .model_anatomy import ModelAnatomy

_MASK = "attention_mask"
_CACHES = ("past_key_values", "cache_params")
_STATES = ("keys", "values", "conv_states", "recurrent_states")


def drop_mask(model: torch.nn.Module, random: random.Random, anatomy: ModelAnatomy) -> str:
    """Call the model as if its mask were all ones; without a mask input drop the mask inside it, else one place.

    The mask inside is the causal one, or that of shifted windows. A place is a patch of an image or a frame of a
    waveform, in the output of a convolution that splits its input.
    """
    given = next((name for name in anatomy.inputs if name.endswith("_mask")), None)
    if given is not None:
        model.register_forward_pre_hook(lambda *call: _with_ones(given, *call), with_kwargs=True)
        return f"input {given}"
    masked = _masked_inside(model, anatomy)
    for name in masked:
        module = model.get_submodule(name)
        if hasattr(module, "is_causal"):
            module.is_causal = False
        module.register_forward_pre_hook(_without_inner_mask, with_kwargs=True)
    return f"mask of {masked[0]} and {len(masked) - 1} more" if masked else _drop_place(model, random, anatomy)


def _with_ones(name: str, _module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    import torch

    mask = kwargs.get(name)
    return args, kwargs if mask is None else kwargs | {name: torch.ones_like(mask)}


def _masked_inside(model: torch.nn.Module, anatomy: ModelAnatomy) -> list[str]:
    """Return the attentions that are causal or get a mask, found by one forward pass."""
    import torch

    from hwcompat.hardware.model.calls import forward, to_tensors

    found = {
        one.module: bool(getattr(model.get_submodule(one.module), "is_causal", False))
        for one in anatomy.attention_layers
    }
    hooks = []
    for name in found:

        def look(module: Any, args: Any, kwargs: dict[str, Any], name: str = name) -> None:
            found[name] |= inspect.signature(module.forward).bind(*args, **kwargs).arguments.get(_MASK) is not None

        hooks.append(model.get_submodule(name).register_forward_pre_hook(look, with_kwargs=True))
    try:
        with torch.no_grad():
            forward(model, to_tensors(anatomy.inputs, "cpu", torch.float32))
    finally:
        for hook in hooks:
            hook.remove()
    return [name for name, is_masked in found.items() if is_masked]


def _without_inner_mask(module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    call = inspect.signature(module.forward).bind(*args, **kwargs)
    call.arguments[_MASK] = None
    return call.args, call.kwargs


def _drop_place(model: torch.nn.Module, random: random.Random, anatomy: ModelAnatomy) -> str:
    """Set one place of the output of a convolution that splits its input to zero."""
    modules = dict(model.named_modules())
    cutting = [name for name, module in modules.items() if _strides(module) and anatomy.is_used(f"{name}.weight")]
    if not cutting:
        raise ValueError(f"{anatomy.class_name} has no mask and no convolution that splits its input")
    name = random.choice(cutting)
    shares = [random.random() for _ in modules[name].kernel_size]

    def hook(_module: Any, _args: Any, output: torch.Tensor) -> torch.Tensor:
        kept = output.clone()
        places = tuple(int(share * size) for share, size in zip(shares, output.shape[-len(shares) :], strict=True))
        kept[(..., *places)] = 0
        return kept

    modules[name].register_forward_hook(hook)
    return f"{name}, one position set to zero"


def _strides(module: Any) -> bool:
    """Return whether this is a convolution that splits its input into patches or frames, which may overlap."""
    sizes = [getattr(module, name, None) for name in ("kernel_size", "stride")]
    return hasattr(module, "weight") and all(isinstance(size, tuple) and max(size) > 1 for size in sizes)


def make_cache_stale(model: torch.nn.Module, random: random.Random, anatomy: ModelAnatomy) -> str:
    """Let one layer of the cache lag from the second step on; without a cache reuse one layer's first output.

    The hooks change only caches that are passed to a decoder; the reference decodes without one.
    """
    decoder = _decoder(model)
    if decoder is None:
        return _reuse_layer(model, random, anatomy)
    name, seq2seq = decoder[0], bool(getattr(model.config, "is_encoder_decoder", False))
    layers = _cached_layers(
        model, name, [one.module for one in anatomy.attention_layers], seq2seq=seq2seq
    ) or _cached_layers(model, name, [module for module, _ in model.named_modules()], seq2seq=seq2seq)
    if not layers:
        raise ValueError(f"{anatomy.class_name} has a cache with unknown layers")
    index = random.choice(sorted(layers))
    before: list[dict[str, torch.Tensor]] = []

    def remember(_module: Any, _args: Any, kwargs: dict[str, Any]) -> None:
        before[:] = [_states(_layer(kwargs, index))]

    def lag(_module: Any, _args: Any, kwargs: dict[str, Any], _output: Any) -> None:
        layer, old = _layer(kwargs, index), before.pop()
        if not old:
            return
        for state, now in _states(layer, copies=False).items():
            if state in ("keys", "values"):
                now[..., -1, :] = now[..., -2, :]
            else:
                now.copy_(old[state])

    decoder[1].register_forward_pre_hook(remember, with_kwargs=True)
    decoder[1].register_forward_hook(lag, with_kwargs=True)
    return f"cache of {f'{name}, ' if name else ''}layer {index}, from the second step on"


def _cached_layers(model: torch.nn.Module, decoder: str, modules: Sequence[str], *, seq2seq: bool) -> set[int]:
    """Return the indices of these modules in the decoder's cache."""
    numbers = {
        getattr(model.get_submodule(name), "layer_idx", None)
        for name in modules
        if name.startswith(decoder) and (not seq2seq or "decoder" in name)
    }
    return {number for number in numbers if isinstance(number, int) and number >= 0}


def _decoder(model: torch.nn.Module) -> tuple[str, torch.nn.Module] | None:
    """Return the outermost part that decodes with a cache, with its name, or None."""
    able = getattr(model, "can_generate", None)
    if able is None or not able():
        return None
    for name, module in model.named_modules():
        decodes = hasattr(module, "can_generate") and module.can_generate()
        if decodes and set(_CACHES) & set(inspect.signature(module.forward).parameters):
            return name, module
    return None


def _layer(kwargs: Mapping[str, Any], index: int) -> Any:
    cache = next((kwargs[name] for name in _CACHES if kwargs.get(name) is not None), None)
    layers = getattr(getattr(cache, "self_attention_cache", cache), "layers", ())
    return layers[index] if index < len(layers) else None


def _states(layer: Any, *, copies: bool = True) -> dict[str, torch.Tensor]:
    """Return a cache layer's content by name: keys and values, or a state space's states; empty at first."""
    import torch

    found = {name: getattr(layer, name, None) for name in _STATES}
    return {
        name: value.clone() if copies else value
        for name, value in found.items()
        if isinstance(value, torch.Tensor) and value.numel()
    }


def _reuse_layer(model: torch.nn.Module, random: random.Random, anatomy: ModelAnatomy) -> str:
    attention = anatomy.attention_layers or anatomy.matrices
    layers = sorted({name for one in attention if (name := _layer_name(one.module))})
    if not layers:
        raise ValueError(f"{anatomy.class_name} has no layer whose output can be reused")
    name = random.choice(layers)
    kept: dict[tuple[int, ...], torch.Tensor] = {}

    def hook(_module: Any, _args: Any, output: Any) -> Any:
        states = output[0] if isinstance(output, tuple) else output
        first = kept.setdefault(tuple(states.shape), states.detach().clone())
        return (first, *output[1:]) if isinstance(output, tuple) else first

    model.get_submodule(name).register_forward_hook(hook)
    return f"output of {name}, reused for the same shape"


def _layer_name(attention: str) -> str:
    """Return the layer that contains an attention: its name up to the last part that is a number."""
    parts = attention.split(".")
    numbers = [place for place, part in enumerate(parts) if part.isdigit()]
    return ".".join(parts[: numbers[-1] + 1]) if numbers else ""
