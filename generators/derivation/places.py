"""The places that images, videos and sounds take in a text: which token keeps them, and how many the model wants."""

from __future__ import annotations

import contextlib
import inspect
import math
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from generators.models.inputs import make_inputs
from hardware.errors import ModelError

from .scopes import attribute_of

Spec = dict[str, Any]

_OF = {
    "image": ("pixel_values", "pixel_values_images", "image_patches"),
    "video": ("pixel_values_videos",),
    "audio": ("input_features", "input_values"),
}
"""What each modality comes in as."""
_TEXT_BEHIND = 3
"""Tokens behind the places: fewer than the shortest text of a suite has."""


def place_tokens(config: Any, given: Collection[str] | None = None) -> dict[str, int]:
    """The token that keeps places in the text, by modality; with `given`, for the modalities among those inputs."""
    if given is not None and "input_ids" not in given:
        return {}
    tokens = {
        modality: attribute_of(config, f"{modality}_token_id", f"{modality}_token_index")
        for modality, names in _OF.items()
        if given is None or set(names) & set(given)
    }
    return {modality: token for modality, token in tokens.items() if isinstance(token, int)}


def places(model: Any, tokens: Mapping[str, int], specs: Mapping[str, Spec], side: str) -> list[list[Any]]:
    """The columns of the text that each modality takes, as `[token, start, stop]`: as many as the model wants.

    They lie one behind the other where no row is padded. Raises `ModelError` where the model doesn't say how many.
    """
    counts = {modality: _wanted(model, modality, token, specs) for modality, token in tokens.items()}
    start = -sum(counts.values()) - _TEXT_BEHIND if side == "left" else 1
    found = []
    for modality, count in counts.items():
        found.append([tokens[modality], start, start + count])
        start += count
    return [one for one in found if one[1] < one[2]]


class _Wanted(Exception):
    """No error: it carries the answer out of a forward pass."""

    def __init__(self, count: int) -> None:
        self.count = count


def _wanted(model: Any, modality: str, token: int, specs: Mapping[str, Spec]) -> int:
    """How many places one example of a modality takes in the text."""
    other = {name for known, names in _OF.items() if known != modality for name in names}
    drafts = {name: dict(spec) for name, spec in specs.items() if name not in other}
    drafts["input_ids"]["places"] = [[token, 1, 3]]  # two, since one may stand for all (Qwen2-Audio)
    try:
        count = _by_forward(model, drafts)
    except Exception as error:  # whatever modelling code raises, a check of its own that isn't known among it
        if counted := re.search(r"features:? (\d+)", str(error)):
            return int(counted[1])
        count = _by_features(model, modality, drafts)
        if count is None:
            why = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            what = f"{type(model).__name__} doesn't say how many places an {modality} takes"
            raise ModelError(what, why=why) from error
    else:
        count = _by_features(model, modality, drafts) if count is None else count
    return count or 0  # none, as in cross attention


def _tensors(drafts: Mapping[str, Spec]) -> dict[str, Any]:
    """One example of each input."""
    import torch

    from hardware.model.tensors import to_tensors

    return to_tensors(make_inputs(drafts, 0, (_TEXT_BEHIND,)), "cpu", torch.float32)


def _by_forward(model: Any, drafts: Mapping[str, Spec]) -> int | None:
    """What a forward pass is about to put into the embedded text, counted just before; None where it isn't seen to
    put anything there."""
    import torch

    from hardware.model.calls import without_cache

    with torch.no_grad(), _stopped_at_places(model), _scatters():
        try:
            model(**_tensors(drafts), **without_cache(model))
        except _Wanted as wanted:
            return wanted.count
    return None


@contextlib.contextmanager
def _stopped_at_places(model: Any) -> Iterator[None]:
    """The check of transformers that the places are as many as the features raises their number instead."""
    modules = [module for module in model.modules() if hasattr(module, "get_placeholder_mask")]

    def stopping(check: Any) -> Any:
        def counted(*args: Any, **kwargs: Any) -> Any:
            given = inspect.signature(check).bind(*args, **kwargs).arguments
            for name, features in given.items():
                if name.split("_")[-1] == "features" and features is not None:
                    raise _Wanted(features.numel() // given["inputs_embeds"].shape[-1])
            return check(*args, **kwargs)

        return counted

    for module in modules:
        module.get_placeholder_mask = stopping(module.get_placeholder_mask)
    try:
        yield
    finally:
        for module in modules:
            del module.get_placeholder_mask


def _scatters() -> Any:
    """A mode in which scattering features over the embedded text raises how many places they fill."""
    import torch
    from torch.overrides import TorchFunctionMode

    scatters = (torch.masked_scatter, torch.Tensor.masked_scatter)

    class Counting(TorchFunctionMode):  # type: ignore[misc] # torch is Any to mypy
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function in scatters and len(args) == 3:
                raise _Wanted(args[2].numel() // args[0].shape[-1])
            return function(*args, **(kwargs or {}))

    return Counting()


def _by_features(model: Any, modality: str, drafts: Mapping[str, Spec]) -> int | None:
    """The embeddings that the model makes of one example; None where it has no method that makes them."""
    import torch

    name = f"get_{modality}_features"
    makers = [getattr(module, name) for module in model.modules() if hasattr(module, name)]
    takes = [inspect.signature(maker).parameters for maker in makers]
    # A head may hand on whatever it gets: the model inside it names what it takes.
    embed, taken = next((both for both in zip(makers, takes, strict=True) if {*both[1]} & {*drafts}), (None, ()))
    if embed is None:
        return None
    with torch.no_grad():
        features = embed(**{given: tensor for given, tensor in _tensors(drafts).items() if given in taken})
    found = getattr(features, "pooler_output", features)  # 4.x gives the embeddings alone
    parts: list[Any] = list(found) if isinstance(found, list | tuple) else [found]
    return int(sum(math.prod(part.shape[:-1]) for part in parts))
