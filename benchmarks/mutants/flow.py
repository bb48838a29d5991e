"""Breaks of what flows between the parts of a model: its masks, and what it keeps from one call to the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from generators.models.sites import attention_sites

if TYPE_CHECKING:
    import random

    import torch

_MASK = "attention_mask"
_CACHES = ("past_key_values", "cache_params")


def drop_mask(model: torch.nn.Module, random: random.Random, inputs: Mapping[str, Any]) -> str:
    """Call the model as if its mask were all ones; without such an input drop the causal mask, else one patch."""
    if _MASK in inputs:
        model.register_forward_pre_hook(_without_mask, with_kwargs=True)
        return f"input {_MASK}"
    modules = dict(model.named_modules())
    causal = [site.module for site in attention_sites(model) if getattr(modules[site.module], "is_causal", False)]
    if causal:
        for name in causal:
            modules[name].is_causal = False
            modules[name].register_forward_pre_hook(_without_causal_mask, with_kwargs=True)
        return f"causal mask of {causal[0]} and {len(causal) - 1} more"
    return _drop_patch(modules, random, type(model).__name__)


def _without_mask(_module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    import torch

    mask = kwargs.get(_MASK)
    return args, kwargs if mask is None else kwargs | {_MASK: torch.ones_like(mask)}


def _without_causal_mask(_module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    return args, kwargs | {_MASK: None}


def _drop_patch(modules: Mapping[str, Any], random: random.Random, model: str) -> str:
    """One place of the convolution that cuts an image into patches gives zeros."""
    import torch

    patches = [
        (name, module)
        for name, module in modules.items()
        if isinstance(module, torch.nn.Conv2d) and module.stride == module.kernel_size
    ]
    if not patches:
        raise ValueError(f"{model} has neither a mask nor image patches")
    name, module = random.choice(patches)
    down, right = random.random(), random.random()

    def hook(_module: Any, _args: Any, output: torch.Tensor) -> torch.Tensor:
        kept = output.clone()
        kept[..., int(down * output.shape[-2]), int(right * output.shape[-1])] = 0
        return kept

    module.register_forward_hook(hook)
    return f"{name}, one patch set to zero"


def make_cache_stale(model: torch.nn.Module, random: random.Random, inputs: Mapping[str, Any]) -> str:
    """Let one layer of the cache lag from the second step on; without a cache reuse one layer's first output.

    The hooks touch only caches that this model is handed; the reference decodes without one.
    """
    if not hasattr(model, "can_generate") or not model.can_generate():
        return _reuse_layer(model, random)
    seq2seq = bool(getattr(model.config, "is_encoder_decoder", False))
    modules = dict(model.named_modules())
    layers: set[int] = {
        int(modules[site.module].layer_idx)
        for site in attention_sites(model)
        if isinstance(getattr(modules[site.module], "layer_idx", None), int)
        and (not seq2seq or "decoder" in site.module.split("."))
    }
    if not layers:
        raise ValueError(f"{type(model).__name__} decodes, but the layers of its cache are not known")
    index = random.choice(sorted(layers))
    before: list[dict[str, torch.Tensor]] = []

    def remember(_module: Any, _args: Any, kwargs: dict[str, Any]) -> None:
        before[:] = [_states(_layer(kwargs, index))]

    def lag(_module: Any, _args: Any, kwargs: dict[str, Any], _output: Any) -> None:
        layer, old = _layer(kwargs, index), before.pop()
        if not old:
            return
        for name, now in _states(layer, copies=False).items():
            if name in ("keys", "values"):
                now[..., -1, :] = now[..., -2, :]
            else:
                now.copy_(old[name])

    model.register_forward_pre_hook(remember, with_kwargs=True)
    model.register_forward_hook(lag, with_kwargs=True)
    return f"cache of layer {index}, from the second step on"


def _layer(kwargs: Mapping[str, Any], index: int) -> Any:
    cache = next((kwargs[name] for name in _CACHES if kwargs.get(name) is not None), None)
    layers = getattr(getattr(cache, "self_attention_cache", cache), "layers", ())
    return layers[index] if index < len(layers) else None


def _states(layer: Any, *, copies: bool = True) -> dict[str, torch.Tensor]:
    """What a layer of a cache holds by name: keys and values, or the states of a state space; nothing at first."""
    import torch

    found = {name: getattr(layer, name, None) for name in ("keys", "values", "conv_states", "recurrent_states")}
    return {
        name: value.clone() if copies else value
        for name, value in found.items()
        if isinstance(value, torch.Tensor) and value.numel()
    }


def _reuse_layer(model: torch.nn.Module, random: random.Random) -> str:
    layers = sorted({name for site in attention_sites(model) if (name := _layer_name(site.module))})
    if not layers:
        raise ValueError(f"{type(model).__name__} has no layers to reuse the output of")
    name = random.choice(layers)
    kept: dict[tuple[int, ...], torch.Tensor] = {}

    def hook(_module: Any, _args: Any, output: Any) -> Any:
        states = output[0] if isinstance(output, tuple) else output
        first = kept.setdefault(tuple(states.shape), states.detach().clone())
        return (first, *output[1:]) if isinstance(output, tuple) else first

    dict(model.named_modules())[name].register_forward_hook(hook)
    return f"output of {name}, reused for the same shape"


def _layer_name(attention: str) -> str:
    """The layer that an attention lies in: its name up to the last part that is a number."""
    parts = attention.split(".")
    numbers = [place for place, part in enumerate(parts) if part.isdigit()]
    return ".".join(parts[: numbers[-1] + 1]) if numbers else ""
