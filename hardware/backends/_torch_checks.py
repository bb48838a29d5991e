"""Saves a module and loads it again in the way of the library that it is of."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..output_masks import covering
from .base import ModelSubject, Unsupported

if TYPE_CHECKING:
    import torch


def saved_and_loaded(model: Any, folder: Path, dtype: torch.dtype) -> Any:
    """A model of transformers or diffusers, saved and loaded as its users do it, with the kinds of attention that it
    had."""
    model.save_pretrained(folder, safe_serialization=True)
    return type(model).from_pretrained(folder, local_files_only=True, **_wishes(model, folder, dtype))


def _wishes(model: Any, folder: Path, dtype: torch.dtype) -> dict[str, Any]:
    """transformers and diffusers take the dtype under other names, and only one of them offers kinds of attention."""
    if not hasattr(type(model), "config_class"):
        return {"torch_dtype": dtype}
    return {"dtype": dtype, "attn_implementation": _attention_by_part(model.config), **_own_config(model, folder)}


def saved_and_rebuilt(model: torch.nn.Module, subject: ModelSubject, folder: Path) -> torch.nn.Module:
    """A module that isn't of transformers, made again by its own code with the weights that were saved."""
    import torch
    from safetensors.torch import load_model, save_model

    if subject.rebuild is None:
        raise Unsupported("nothing says how to make the module again", error_type="not_implemented")
    save_model(model, str(folder / "model.safetensors"))
    again = subject.rebuild()
    with torch.no_grad():
        for tensor in again.state_dict().values():
            if tensor.is_floating_point():
                tensor.fill_(float("nan"))  # so that what isn't read from the file stands out
    load_model(again, str(folder / "model.safetensors"))
    return again


def _attention_by_part(config: Any) -> dict[str, str]:
    """The kind of attention of a model (under "") and of its parts, which may have less to choose from."""
    parts = {name: getattr(config, name, None) for name in getattr(config, "sub_configs", None) or {}}
    kinds = {name: getattr(part, "_attn_implementation", None) for name, part in {"": config, **parts}.items()}
    return {name: kind for name, kind in kinds.items() if kind is not None}


def _own_config(model: Any, folder: Path) -> dict[str, Any]:
    """The saved configuration, where its class isn't the one that the model's class would read it with.

    A backbone may name the configuration of the whole network that it belongs to (UVDoc).
    """
    own = type(model.config)
    if own is getattr(type(model), "config_class", own):
        return {}
    return {"config": own.from_pretrained(folder, local_files_only=True)}


if TYPE_CHECKING:
    from .base import Array


def loss_weights(shape: tuple[int, ...], mask: Array | None = None) -> Array:
    """What each element of an output of this shape weighs: the cosine of its index, so that no two count alike,
    divided by their number.

    What an output holds where its `mask` is 0 means nothing and weighs nothing: there a mask of large numbers
    swallows the scores in one precision and not in another.
    """
    import numpy as np

    size = int(np.prod(shape))
    weights: Array = np.cos(0.7 * np.arange(size, dtype=np.float64)).reshape(shape) / max(1, size)
    if mask is None:
        return weights
    meant = covering(mask, weights)
    weighed: Array = weights * meant.reshape(*meant.shape, *[1] * (weights.ndim - meant.ndim))
    return weighed
