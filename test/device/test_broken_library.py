"""Faults that reviewers got past the suites by breaking the library: each fails now, by the check that is for it.

Those `on both sides` are in the reference too; the others show in float32 alone, as a device's would.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from suites_of_recipes import outcomes

pytestmark = pytest.mark.slow

Change = tuple[tuple[Any, str, Any], ...]
"""Classes, names of their methods, and what takes their place."""


def _wrap(owner: Any, change: Callable[..., Any], name: str = "forward") -> Change:
    """Replace a method by `change(original, arguments)`, with the signature that it had."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def changed(self: Any, *args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(original).bind(self, *args, **kwargs)
        return change(functools.partial(original, self), bound.arguments)

    return ((owner, name, changed),)


def _call(original: Callable[..., Any], given: dict[str, Any]) -> Any:
    plain = {name: value for name, value in given.items() if name not in ("self", "kwargs")}
    return original(**plain, **given.get("kwargs", {}))


def _in_float32(tensor: Any) -> bool:
    return str(tensor.dtype) == "torch.float32"


def lost_branch(module: Any) -> Change:
    """On both sides: what goes round a layer has no gradient."""

    def forward(original: Any, given: dict[str, Any]) -> Any:
        return _call(original, {**given, "input_tensor": given["input_tensor"].detach()})

    return _wrap(module.BertOutput, forward)


def louder_with_loud_padding(module: Any) -> Change:
    """On both sides: attention is a tenth too loud, and padding so loud that no error is large beside it."""

    def attention(original: Any, given: dict[str, Any]) -> Any:
        return _call(original, {**given, "hidden_states": 1.1 * given["hidden_states"]})

    def logits(original: Any, given: dict[str, Any]) -> Any:
        output = _call(original, given)
        if given.get("attention_mask") is not None:
            output.logits = output.logits.masked_fill(given["attention_mask"][..., None] == 0, 1e6)
        return output

    return _wrap(module.ElectraSelfOutput, attention) + _wrap(module.ElectraForMaskedLM, logits)


def no_image_padding(module: Any) -> Change:
    """The padding of images is lost."""

    def forward(original: Any, given: dict[str, Any]) -> Any:
        return _call(original, {**given, "pixel_mask": None} if _in_float32(given["pixel_values"]) else given)

    return _wrap(module.DetrModel, forward)


def no_patch_padding(module: Any) -> Change:
    """All patches of an image count, padding too."""

    def forward(original: Any, given: dict[str, Any]) -> Any:
        if _in_float32(given["pixel_values"]):
            given = {**given, "attention_mask": given["attention_mask"] | True}
        return _call(original, given)

    return _wrap(module.Siglip2VisionTransformer, forward)


def other_codes(module: Any) -> Change:
    """Codes come out as zeros; the sound is right."""

    def forward(original: Any, given: dict[str, Any]) -> Any:
        output = _call(original, given)
        if _in_float32(output.audio_values):
            output.audio_codes = output.audio_codes * 0
        return output

    return _wrap(module.EncodecModel, forward)


def no_matches(module: Any) -> Change:
    """Nothing matches anything; the scores are right."""

    def forward(original: Any, given: dict[str, Any]) -> Any:
        output = _call(original, given)
        if _in_float32(output.matching_scores):
            output.matches = output.matches * 0 - 2
        return output

    return _wrap(module.LightGlueForKeypointMatching, forward)


def one_output_less(module: Any) -> Change:
    """One of two tables of scores doesn't come out."""

    def forward(original: Any, given: dict[str, Any]) -> Any:
        output = _call(original, given)
        if _in_float32(output.logits_per_image):
            return type(output)(**{name: one for name, one in output.items() if name != "logits_per_text"})
        return output

    return _wrap(module.CLIPModel, forward)


def no_cache(module: Any) -> Change:
    """Decoding computes everything anew for each token."""

    def prepare(original: Any, given: dict[str, Any]) -> Any:
        made = _call(original, {**given, "next_sequence_length": None})
        return {**made, "past_key_values": None}

    return _wrap(module.GPT2LMHeadModel, prepare, "prepare_inputs_for_generation")


CAUGHT: dict[str, tuple[Callable[[Any], Change], str]] = {
    "bert": (lost_branch, "backward"),
    "clip": (one_output_less, "matches_reference"),
    "detr": (no_image_padding, "matches_reference"),
    "electra": (louder_with_loud_padding, "matches_recorded"),
    "encodec": (other_codes, "matches_reference"),
    "gpt2": (no_cache, "cache_matches"),
    "lightglue": (no_matches, "matches_reference"),
    "siglip2": (no_patch_padding, "matches_reference"),
}
"""The fault of each model type, and a check that has to see it."""


def test_a_fault_that_was_green_once_is_seen(tmp_path: Path) -> None:
    for model_type, (fault, check) in CAUGHT.items():
        module = importlib.import_module(f"transformers.models.{model_type}.modeling_{model_type}")
        with pytest.MonkeyPatch.context() as patch:
            for owner, name, method in fault(module):
                patch.setattr(owner, name, method)
            found, _ = outcomes(model_type, "float32", tmp_path, checks=("builds", check))
        assert found == {"builds": "passed", check: "failed"}, model_type
