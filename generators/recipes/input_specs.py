"""Specify a model's inputs (`inputs.py`) from its forward's signature and configuration."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from hwcompat.generators.models.catalog import TaskEntry, load_catalog
from hwcompat.generators.models.inputs import DRAWN, LENGTHS, make_inputs
from hwcompat.hardware.errors import ModelError
from hwcompat.hardware.model.positions import positions_of

from . import measurements
from .config_scopes import attribute_of, overrides, referred, special_tokens, text_config
from .input_layouts import (
    SOUND_MASKS,
    SOUNDS,
    chosen_layout,
    placeholder_positions,
    placeholder_tokens,
    sound_layouts,
)
from .modality_inputs import modality_spec, scene_spec

_DECODED = 6
"""Tokens that suites decode, if a model has positions for them after its inputs."""
_OF_SENTENCES = (128, 72)
"""Lengths for a model that embeds whole texts: some errors show only in long ones."""
_DECODER_LENGTH = 7
"""Length of an encoder-decoder's second sequence if the first one has the mask; differs from `LENGTHS`."""


_PLACE_MARKS = ("token_type_ids", "mm_token_type_ids", "moe_mm_token_type_ids", "image_embeds_position_mask")
"""Inputs that mark the placeholder tokens of an image in the text."""
_MORE_THAN_TEXT = ("multimodal", "vision-encoder-text-decoder", "vision", "video", "speech")
_SENSED = frozenset(DRAWN) - {"tokens", "decoder_tokens", "boxes", "categories", "token_categories"}
"""Kinds of input of which a model of these architectures gets at least one, because its text alone proves little."""
_OF_IMAGES = ("pixel", "image", "patch", "feature", "video", "session")
"""Words in the names of image inputs."""
_OF_SOUNDS = ("audio", "sound", "speech", "wave", "input_values")
"""Words in the names of sound inputs; `feature` may be either."""
_OF_TEXT = ("text2text-generation", "text-generation", "text-encoding", "text-classification", "token-classification")
"""Tasks of a multimodal model's part whose class takes only text."""
_TEXT_TO_SOUND = "text-to-audio"
"""The task with text as input and sound as output."""
_WHERE_NEEDED = ("image_sizes",)
"""Inputs that few models read although they accept them: given only if image features need them."""
_NAMED_ANEW = {"image_patches": "pixel_values", "pixel_values_images": "pixel_values"}
"""Inputs by their former names; a forward may take the old name alone or beside the new one, which is then used."""


def input_specs(model: Any, entry: TaskEntry, architecture: str, side: str, most: int) -> dict[str, dict[str, Any]]:
    """Return the specifications of the inputs of a model's forward, in the order of its signature.

    `side` is the padding side of token sequences, `most` the number of tokens that a position table allows. Raises
    `ModelError` if it takes no known input.
    """
    config = model.config
    text = text_config(config)
    takes = inspect.signature(model.forward).parameters
    overridden = overrides(_type_of(config), entry.task).get("inputs", {})
    reads_own_end = entry.reads_end and config.is_encoder_decoder
    names = _given(model, takes, overridden, reads_own_end)
    known = {n: s for n in names if (s := scene_spec(n, names, config, entry) or modality_spec(n, names, config))}
    others = (name for name in names if name in {"input_ids", *SOUNDS, *overridden})
    tokens = placeholder_tokens(config, {*known, *others})
    specs: dict[str, dict[str, Any]] = {}
    layouts: dict[str, list[dict[str, Any]]] = {}
    for name in names:
        if "kind" in overridden.get(name, {}):
            specs[name] = (
                {"high": first_special(config)} if overridden[name]["kind"] in ("tokens", "decoder_tokens") else {}
            )
        elif name in known:
            specs[name] = known[name]
        elif sound := sound_layouts(name, model, in_text="audio" in tokens):
            layouts[name] = sound
            specs[name] = sound[0]
        elif name in SOUND_MASKS:
            specs[name] = {"kind": "ones", "shape": []}
        elif spec := _text_spec(name, names, config, side, most):
            specs[name] = spec
        elif name == "position_ids" and (architecture == "decoder-only" or (tokens and side == "left")):
            if "image_grid_thw" not in takes:  # otherwise the model computes positions of three axes from the grid
                specs[name] = {"kind": "positions"}
        elif name in _PLACE_MARKS and tokens:
            specs[name] = {"kind": "places", "token": next(iter(tokens.values()))}
    for name, fields in overridden.items():
        if name in specs:
            specs[name] |= {key: referred(value, partial(_looked_up, text, config)) for key, value in fields.items()}
    _end_texts(model, specs, text, reads_own_end)
    for name, likely in layouts.items():
        specs = chosen_layout(model, name, specs, likely, lambda tried: _run(model, tried, tokens, side, most))
    fixed = "places" in overridden.get("input_ids", {})
    if not fixed and (taken := placeholder_positions(model, tokens, specs, side)):
        specs["input_ids"]["places"] = taken
    _count_in_the_mask(specs)
    if entry.choices > 1:
        for spec in specs.values():
            spec["choices"] = entry.choices
    _require_known(model, entry, takes, specs, architecture)
    return specs


def _require_known(
    model: Any, entry: TaskEntry, takes: Mapping[str, Any], specs: Mapping[str, Any], architecture: str
) -> None:
    """Raise `ModelError` if no input is known, or only the text of a model that takes more."""
    if not specs:
        raise ModelError(
            f"the inputs of {type(model).__name__} ({entry.task}) are unknown",
            why=f"its forward takes {', '.join(list(takes)[:8])}",
        )
    text_alone = entry.task == _TEXT_TO_SOUND or (entry.task in _OF_TEXT and not _may_sense(takes))
    if architecture in _MORE_THAN_TEXT and not text_alone and not _senses(takes, specs, architecture):
        raise ModelError(
            f"only the text inputs of {type(model).__name__} ({entry.task}) are known",
            why=f"its forward takes {', '.join(takes)}",
        )


def _given(
    model: Any, takes: Collection[str], overridden: Mapping[str, Mapping[str, Any]], reads_own_end: bool
) -> list[str]:
    """Return the names of usable inputs among those that a forward takes and that its overrides pass on."""
    newer = {new for old, new in _NAMED_ANEW.items() if old in takes}
    passed_on = [name for name in overridden if name not in (*takes, *newer) and "kwargs" in takes]
    left = {name for name, fields in overridden.items() if fields.get("omit")} | (
        set(_WHERE_NEEDED) - _needed(model) - set(overridden)
    )
    if reads_own_end:  # its decoder reads the encoder's text
        left.add("decoder_input_ids")
    left |= {old for old, new in _NAMED_ANEW.items() if new in takes}
    return [name for name in (*takes, *passed_on) if name not in left]


def _count_in_the_mask(specs: dict[str, dict[str, Any]]) -> None:
    """Move positions after the mask that they are counted in, independent of the signature's order."""
    for name in [name for name, spec in specs.items() if spec["kind"] == "positions"]:
        if "attention_mask" in list(specs)[list(specs).index(name) :]:
            specs[name] = specs.pop(name)


def _senses(takes: Collection[str], specs: Mapping[str, Mapping[str, Any]], architecture: str) -> bool:
    """Return whether a model gets more than a text."""
    if any(spec["kind"] in _SENSED or "streams" in spec for spec in specs.values()):
        return True
    # ImageGPT's tokens are the colors of an image: its forward takes no other image input.
    colors = architecture == "vision" and not _may_sense(takes)
    return colors or sum(spec["kind"] == "tokens" for spec in specs.values()) > 1  # two vocabularies: Evolla


def _may_sense(takes: Collection[str]) -> bool:
    """Return whether a forward takes an input that may be an image, a video or a sound."""
    return any(word in name for name in takes for word in (*_OF_IMAGES, *_OF_SOUNDS))


def _end_texts(model: Any, specs: dict[str, dict[str, Any]], text: Any, reads_own_end: bool) -> None:
    """Let each text of a model that embeds text end in the end-of-text token, where many models read the embedding.

    It is in the last column, after the padding on the right: there it attends over the padding, so that a dropped
    mask is detected although the text is causal, and no row is masked completely. A decoder that reads the encoder's
    text to its end has no mask: its token comes before the padding.
    """
    end = getattr(text, "eos_token_id", None)
    if reads_own_end and "input_ids" in specs and isinstance(end, int):
        specs["input_ids"]["end"] = end
    elif hasattr(model, "get_text_features") and "input_ids" in specs and isinstance(end, int):
        specs["input_ids"].setdefault("last", end)


def _run(model: Any, specs: dict[str, dict[str, Any]], tokens: dict[str, int], side: str, most: int) -> None:
    """Run the model with these inputs, or only until the number of placeholders is known if it has some."""
    if tokens:
        placeholder_positions(model, tokens, specs, side)
    else:
        # A copy, because a codec caches results of its codes; one less, so that frames and bins differ in number.
        measurements.forward_pass(copy.deepcopy(model), make_inputs(specs, 0, (most - 1, most - 1)))


def _text_spec(name: str, names: Collection[str], config: Any, side: str, most: int) -> dict[str, Any] | None:
    """Return the specification of an input that is text or its mask, or None."""
    if name == "input_ids" and first_special(config):
        return {"kind": "tokens", "high": first_special(config)}
    if name == "attention_mask" and "input_ids" in names:
        return {"kind": "mask", "side": side}
    if name == "decoder_input_ids" and (config.is_encoder_decoder or "input_ids" not in names):
        length = {"length": min(_DECODER_LENGTH, most)} if "input_ids" in names else {}
        return {"kind": "decoder_tokens", "high": first_special(config), **length}
    return None


def first_special(config: Any) -> int:
    """Return the first token id that isn't drawn: all from there on are special or unused. 0 without vocabulary."""
    vocabulary = getattr(text_config(config), "vocab_size", 0) or 0
    special = {*special_tokens(config), *placeholder_tokens(config).values()}
    return min([vocabulary, *(one for one in special if one >= vocabulary - 16)])


def _type_of(config: Any) -> str:
    """Return the library's model type of a configuration, which may contain another name (Evolla's)."""
    known = load_catalog().configs
    named = (model_type for model_type, name in known.items() if name == type(config).__name__)
    return config.model_type if config.model_type in known else next(named, config.model_type)


def _needed(model: Any) -> set[str]:
    """Return the inputs without which a model, or the model inside it, can't compute image features."""
    makers = [getattr(owner, "get_image_features", None) for owner in (model, getattr(model, "model", None))]
    known = [inspect.signature(maker).parameters.values() for maker in makers if maker is not None]
    return {one.name for parameters in known for one in parameters if one.default is one.empty}


def _looked_up(text: Any, config: Any, name: str) -> Any:
    """Return an attribute of the text part, else of the whole or a part."""
    found = attribute_of(text, name) or attribute_of(config, name)
    return list(found) if isinstance(found, tuple) else found


def lengths_of(model: Any) -> tuple[int, int]:
    """Return `LENGTHS`, or those of whole sentences for a model that embeds them, or shorter lengths if the model has
    fewer positions: decoding needs some for new tokens."""
    usual = _OF_SENTENCES if hasattr(model, "sentence_modules") else LENGTHS
    most = positions_of(model)
    if most is None:
        return usual
    decodes = hasattr(model, "generate") and not model.config.is_encoder_decoder
    left = max(most - _DECODED, most // 2) if decodes else most
    longest = min(usual[0], max(left, 1))
    return (longest, min(usual[1], max(longest - max(longest // 3, 1), 1)))
