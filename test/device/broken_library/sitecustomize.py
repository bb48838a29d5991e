"""Breaks modeling code of transformers in every process that has this folder on its path, when it is imported.

Each fault is one that a reviewer got past the suites once. Those `on both sides` are in the reference too; the others
show in float32 alone, as a device's would.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


def _wrap(owner: Any, change: Callable[..., Any], name: str = "forward") -> None:
    """Replace a method by `change(original, self, *args, **kwargs)`, with the signature that it had."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def changed(self: Any, *args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(original).bind(self, *args, **kwargs)
        return change(functools.partial(original, self), bound.arguments)

    setattr(owner, name, changed)


def _call(original: Callable[..., Any], given: dict[str, Any]) -> Any:
    plain = {name: value for name, value in given.items() if name not in ("self", "kwargs")}
    return original(**plain, **given.get("kwargs", {}))


def _in_float32(tensor: Any) -> bool:
    return str(tensor.dtype) == "torch.float32"


def lost_branch(module: ModuleType) -> None:
    """On both sides: what goes round a layer has no gradient."""

    def forward(original: Any, given: dict[str, Any]) -> Any:
        return _call(original, {**given, "input_tensor": given["input_tensor"].detach()})

    _wrap(module.BertOutput, forward)


def louder_with_loud_padding(module: ModuleType) -> None:
    """On both sides: attention is a tenth too loud, and padding so loud that no error is large beside it."""

    def attention(original: Any, given: dict[str, Any]) -> Any:
        return _call(original, {**given, "hidden_states": 1.1 * given["hidden_states"]})

    def logits(original: Any, given: dict[str, Any]) -> Any:
        output = _call(original, given)
        if given.get("attention_mask") is not None:
            output.logits = output.logits.masked_fill(given["attention_mask"][..., None] == 0, 1e6)
        return output

    _wrap(module.ElectraSelfOutput, attention)
    _wrap(module.ElectraForMaskedLM, logits)


def no_image_padding(module: ModuleType) -> None:
    """The padding of images is lost."""

    def forward(original: Any, given: dict[str, Any]) -> Any:
        return _call(original, {**given, "pixel_mask": None} if _in_float32(given["pixel_values"]) else given)

    _wrap(module.DetrModel, forward)


def no_patch_padding(module: ModuleType) -> None:
    """All patches of an image count, padding too."""

    def forward(original: Any, given: dict[str, Any]) -> Any:
        if _in_float32(given["pixel_values"]):
            given = {**given, "attention_mask": given["attention_mask"] | True}
        return _call(original, given)

    _wrap(module.Siglip2VisionTransformer, forward)


def other_codes(module: ModuleType) -> None:
    """Codes come out as zeros; the sound is right."""

    def forward(original: Any, given: dict[str, Any]) -> Any:
        output = _call(original, given)
        if _in_float32(output.audio_values):
            output.audio_codes = output.audio_codes * 0
        return output

    _wrap(module.EncodecModel, forward)


def no_matches(module: ModuleType) -> None:
    """Nothing matches anything; the scores are right."""

    def forward(original: Any, given: dict[str, Any]) -> Any:
        output = _call(original, given)
        if _in_float32(output.matching_scores):
            output.matches = output.matches * 0 - 2
        return output

    _wrap(module.LightGlueForKeypointMatching, forward)


def one_output_less(module: ModuleType) -> None:
    """One of two tables of scores doesn't come out."""

    def forward(original: Any, given: dict[str, Any]) -> Any:
        output = _call(original, given)
        if _in_float32(output.logits_per_image):
            return type(output)(**{name: one for name, one in output.items() if name != "logits_per_text"})
        return output

    _wrap(module.CLIPModel, forward)


def no_cache(module: ModuleType) -> None:
    """Decoding computes everything anew for each token."""

    def prepare(original: Any, given: dict[str, Any]) -> Any:
        made = _call(original, {**given, "next_sequence_length": None})
        return {**made, "past_key_values": None}

    _wrap(module.GPT2LMHeadModel, prepare, "prepare_inputs_for_generation")


FAULTS: dict[str, Callable[[ModuleType], None]] = {
    "bert": lost_branch,
    "clip": one_output_less,
    "detr": no_image_padding,
    "electra": louder_with_loud_padding,
    "encodec": other_codes,
    "gpt2": no_cache,
    "lightglue": no_matches,
    "siglip2": no_patch_padding,
}
"""The fault of each model type."""


class _Breaking(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        model_type = name.rpartition(".modeling_")[2]
        if not name.startswith("transformers.models.") or model_type not in FAULTS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def broken(module: ModuleType) -> None:
            load(module)
            FAULTS[model_type](module)

        spec.loader.exec_module = broken  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _Breaking())
