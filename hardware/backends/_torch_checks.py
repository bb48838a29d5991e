"""Save a module and load it again with its library, and weigh the outputs of the loss."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..output_masks import covering
from .base import ModelInput, Unsupported

if TYPE_CHECKING:
    import torch


def saved_and_loaded(model: Any, folder: Path, dtype: torch.dtype) -> Any:
    """Return a model of transformers or diffusers, saved and loaded again as users do, with the same attention
    implementation."""
    model.save_pretrained(folder, safe_serialization=True)
    return type(model).from_pretrained(folder, local_files_only=True, **_load_options(model, folder, dtype))


def _load_options(model: Any, folder: Path, dtype: torch.dtype) -> dict[str, Any]:
    """Return the options of `from_pretrained`: the libraries name the dtype differently, and only transformers has
    kinds of attention."""
    if not hasattr(type(model), "config_class"):
        return {"torch_dtype": dtype}
    return {"dtype": dtype, "attn_implementation": _attention_by_part(model.config), **_own_config(model, folder)}


def saved_and_rebuilt(model: torch.nn.Module, model_input: ModelInput, folder: Path) -> torch.nn.Module:
    """Return a module that isn't of transformers, rebuilt by its own code with the saved weights."""
    import torch
    from safetensors.torch import load_model, save_model

    if model_input.rebuild is None:
        raise Unsupported(
            "the module can't be rebuilt: its class and arguments are unknown", error_type="not_implemented"
        )
    save_model(model, str(folder / "model.safetensors"))
    again = model_input.rebuild()
    with torch.no_grad():
        for tensor in again.state_dict().values():
            if tensor.is_floating_point():
                tensor.fill_(float("nan"))  # so that weights that aren't read from the file are detected
    load_model(again, str(folder / "model.safetensors"))
    return again


def _attention_by_part(config: Any) -> dict[str, str]:
    """Return the attention implementation of a model (key "") and of its parts, which may support fewer."""
    parts = {name: getattr(config, name, None) for name in getattr(config, "sub_configs", None) or {}}
    kinds = {name: getattr(part, "_attn_implementation", None) for name, part in {"": config, **parts}.items()}
    return {name: kind for name, kind in kinds.items() if kind is not None}


def _own_config(model: Any, folder: Path) -> dict[str, Any]:
    """Return the saved configuration if its class isn't the one that the model's class reads.

    A backbone may name the configuration of the whole network that it belongs to (UVDoc).
    """
    own = type(model.config)
    if own is getattr(type(model), "config_class", own):
        return {}
    return {"config": own.from_pretrained(folder, local_files_only=True)}


if TYPE_CHECKING:
    from .base import Array


def loss_weights(shape: tuple[int, ...], mask: Array | None = None) -> Array:
    """Return the weight of each element of an output in the loss: the cosine of its index, so that no two weights are
    equal, divided by the number of elements.

    Elements with a `mask` of 0 weigh nothing: large numbers of a mask may hide the scores in one precision only.
    """
    import numpy as np

    size = int(np.prod(shape))
    weights: Array = np.cos(0.7 * np.arange(size, dtype=np.float64)).reshape(shape) / max(1, size)
    if mask is None:
        return weights
    meant = covering(mask, weights)
    weighed: Array = weights * meant.reshape(*meant.shape, *[1] * (weights.ndim - meant.ndim))
    return weighed
