"""Tiny configurations for model types: the library's own defaults, divided.

Every width of the whole configuration tree is divided by one factor, so that what was equal, a sum or a
product stays so; names are understood by the roles in roles.toml, exceptions are data in overrides/*.toml.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from generators.models.catalog import Catalog
from hardware.errors import ModelError

from .division import Division, divided, divisions_of
from .layer_lists import kept_lists, kept_outputs, layers_needed
from .overrides import overridden, overrides
from .rotary import rotary_sections
from .scopes import (
    arguments_of,
    children,
    default_of,
    numbers,
    role_of,
    roles,
    token_ids,
    tree,
    unset_places,
    whole_numbers,
)

VOCABULARY = 512
POSITIONS = 128
LAYERS = 2
LABELS = 10
"""Differs from the batch, so that an output's axes aren't ambiguous."""

_PATCHES_A_SIDE = 4
_WINDOW = 8
_LATENTS = 8
_STATE = 16
_IMAGE_WINDOW = 2
_IMAGE_TOKENS = 4
_PLAIN = (bool, int, float, str, list, tuple, dict, type(None))
_STAND_INS = {"timm_backbone": "resnet"}
"""Part of a default configuration -> the library's own that stands in, where the default needs another library."""
_EXPERTS = 4
_CODEBOOKS = 4
_OF_ANY_TYPE = ("AutoConfig", "PreTrainedConfig", "PretrainedConfig")
"""Classes of parts that may be of any model type, which then must be said."""
_OUTPUTS = ("out_features", "out_indices", "_out_features", "_out_indices")
"""Under which names a backbone is told what to give; one is enough, and those in use have no underscore."""


def _layers(config: Any) -> int:
    """Two layers, or as many as it takes to meet each kind of layer once; twice as many where later layers take keys
    and values from earlier ones of their kind."""
    named = {name: getattr(config, name, None) for name in roles()["config"]["layer_kinds"]}
    kinds = [list(kind) for kind in named.values() if isinstance(kind, list | tuple) and kind]
    firsts = [max(kind.index(one) for one in set(kind)) + 1 for kind in kinds]
    layers = max([LAYERS, *firsts, layers_needed(config)])
    return 2 * layers if whole_numbers(role_of(config, "layers_sharing_keys")) else layers


def _limits(config: Any) -> dict[str, int]:
    """The most that attributes of a role are left with, so that each still does something in a tiny model.

    A window is shorter than the shorter row, as is the chunk in which a state is computed. Experts are `_EXPERTS` in
    each group, and one of two groups is used; dense layers leave one layer for the experts.
    """
    groups = 2 if max(whole_numbers(role_of(config, "expert_groups")).values(), default=1) > 1 else 1
    layers = _layers(config)
    return {
        "layers": layers,
        "layers_sharing_keys": layers // 2,
        "dense_layers_first": layers - 1,
        "vocabulary": VOCABULARY,
        "codebooks": _CODEBOOKS,
        "positions": POSITIONS,
        "latents": _LATENTS,
        "window": _WINDOW,
        "chunk": _WINDOW,
        "state": _STATE,
        "expert_groups": groups,
        "expert_groups_used": 1,
        "experts": _EXPERTS * groups,
        "experts_used": _EXPERTS // 2,
        "experts_shared": 1,
        "image_tokens": _IMAGE_TOKENS,
    }


def _shrunk(config: Any, division: Division, tokens: Mapping[int | str, int]) -> dict[str, Any]:
    """The constructor arguments of one scope that are other than in `config`."""
    changed = divided(config, division)
    for role, limit in _limits(config).items():
        changed |= {name: min(value, limit) for name, value in whole_numbers(role_of(config, role)).items()}
    changed |= _unset_experts(config) | _per_layer(config, changed) | _image(config) | _needed(config)
    changed |= kept_lists(config, _layers(config)) | rotary_sections(config, changed)
    changed |= {name: tokens[name] for name in unset_places(config)}
    return changed | {name: tokens[value] for name, value in token_ids(config).items()}


def _needed(config: Any) -> dict[str, Any]:
    """What roles.toml gives an attribute whose default is nothing."""
    return {
        name: value
        for name, value in roles()["needed"].items()
        if name in arguments_of(config) and getattr(config, name, None) in (None, 0, [0])
    }


def _unset_experts(config: Any) -> dict[str, int]:
    """How many experts there are, where a configuration says their width and leaves that unset."""
    if not whole_numbers(role_of(config, "expert_width")):
        return {}
    limits, known = _limits(config), roles()["config"]
    names = {name for name in arguments_of(config) if getattr(config, name, None) is None}
    return {
        name: limits[role]
        for role in ("experts", "experts_used", "experts_shared")
        for name in names & {*known[role]}
    }


def _per_layer(config: Any, changed: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Lists with an entry for each layer, cut to the layers that are kept; where there are stages, theirs are whole."""
    counts = {} if role_of(config, "depths") else whole_numbers(role_of(config, "layers"))
    kept = min([_layers(config), *counts.values()])
    values = {name: changed.get(name, getattr(config, name, None)) for name in arguments_of(config)}
    lists = {name: list(value) for name, value in values.items() if isinstance(value, list | tuple)}
    kinds = roles()["config"]["layer_kinds"]
    return {
        name: value[:kept]
        for name, value in lists.items()
        if name in kinds or (len(value) in counts.values() and len(value) > kept)
    }


def _image(config: Any) -> dict[str, Any]:
    """Sizes of images, windows and stages: an image has as many patches a side as leave two to the last stage."""
    stages = role_of(config, "depths")
    patches = list(whole_numbers(role_of(config, "patch")).values())
    windows = whole_numbers(role_of(config, "image_window")) if patches else {}
    changed: dict[str, Any] = {name: [2 if windows else 1] * len(value) for name, value in stages.items()}
    if patches:
        a_side = max(_PATCHES_A_SIDE, *(2 ** len(value) for value in stages.values()), 0)
        changed |= dict.fromkeys(whole_numbers(role_of(config, "image")), patches[0] * a_side)
    merged = whole_numbers({"side": getattr(config, "spatial_merge_size", None)})
    window = patches[0] * merged["side"] if merged and patches else _IMAGE_WINDOW  # where patches merge, in pixels
    return changed | dict.fromkeys(windows, window) | _tile_grids(config)


def _tile_grids(config: Any) -> dict[str, Any]:
    """The shapes that tiles make up, in pixels: they shrink as one tile does, an image of a part."""
    grids = {name: value for name, value in role_of(config, "image_grids").items() if isinstance(value, list)}
    sizes = {
        before: _image(part)[name]
        for part in children(config).values()
        for name, before in whole_numbers(role_of(part, "image")).items()
        if name in _image(part)
    }
    for before, after in sizes.items():
        return {name: [[one * after // before for one in pair] for pair in grid] for name, grid in grids.items()}
    return {}


def _arguments(config: Any, default: Any, division: Division, tokens: Mapping[int | str, int]) -> dict[str, Any]:
    """The constructor arguments that make `config`, shrunk: what differs from `default`, an object of its class."""
    parts = children(config)
    known = [name for name in arguments_of(config) if name not in (*parts, *_OUTPUTS)]
    kept = {name: getattr(config, name, None) for name in known}
    plain = {name: value for name, value in kept.items() if isinstance(value, _PLAIN)}
    wanted = plain | _shrunk(config, division, tokens)
    found = {name: value for name, value in wanted.items() if value != getattr(default, name, None)}
    found |= kept_outputs(config, default, _layers(config))
    for name, child in parts.items():
        found[name] = _arguments(child, default_of(child), division, tokens)
        if type(config).sub_configs[name].__name__ in _OF_ANY_TYPE:
            own = overrides(child.model_type).get("config", {})
            found[name] = {"model_type": child.model_type, **overridden(found[name], own, child)}
    for name, child in parts.items():
        found[name] |= dict.fromkeys(role_of(child, "text_width"), _text_width(parts, found))
    return {name: value for name, value in found.items() if value != {}}


def _text_width(parts: Mapping[str, Any], found: Mapping[str, Any]) -> int | None:
    """The width of the stream that text and images share, where a part of the configuration is for the text."""
    text = next((name for name in parts if name.startswith("text")), "")
    widths = [found[text].get(name, value) for name, value in role_of(parts[text], "hidden").items()] if text else []
    return next(iter(widths), None)


def tiny_configs(model_type: str, catalog: Catalog) -> Iterator[dict[str, Any]]:
    """Constructor arguments of small configurations of `model_type`, the smallest first.

    JSON values, only what differs from the defaults; nested dicts are sub-configurations. Behind those come the same
    with the padding token where a table of positions can count from it; not every model needs that, and none says so
    but by its constructor. Imports transformers.
    Raises `ModelError` with the reason where the type is unknown, its defaults can't be built, or no divisor
    fits.
    """
    told = next(filter(None, map(overrides, catalog.names_of(model_type))), {})
    changes, parts = (told.get(key, {}) for key in ("config", "parts"))
    if parts:
        for made in zip(*(tiny_configs(part, catalog) for part in parts.values()), strict=False):
            composed = {
                name: {"model_type": part, **arguments}
                for (name, part), arguments in zip(parts.items(), made, strict=True)
            }
            yield overridden(composed, changes, None)
        return
    config = _defaults(model_type, catalog)
    known: list[int | str] = sorted({value for scope in tree(config) for value in token_ids(scope).values()})
    known += sorted({name for scope in tree(config) for name in unset_places(scope)})
    top = min([VOCABULARY, *(size for scope in tree(config) for size in numbers(role_of(scope, "vocabulary")))])
    high = {value: top - 1 - place for place, value in enumerate(known)}
    low = _padding_tokens(config)
    for tokens in [high, high | low] if low else [high]:
        for division in divisions_of(config):
            arguments = overridden(_arguments(config, config, division, tokens), changes, config)
            yield dict(json.loads(json.dumps(arguments)))


def _padding_tokens(config: Any) -> dict[int | str, int]:
    """Padding tokens as they are by default, of the scopes that number positions from the padding token upwards if
    they have it from RoBERTa: its id must lie below the end of the table."""
    return {
        scope.pad_token_id: scope.pad_token_id
        for scope in tree(config)
        if "pad_token_id" in token_ids(scope) and role_of(scope, "positions") and scope.pad_token_id < POSITIONS // 2
    }


def _defaults(model_type: str, catalog: Catalog) -> Any:
    """The configuration of a type as the library makes it. Raises `ModelError` with the constructor's reason."""
    import transformers

    name = catalog.config_class(model_type)
    make = getattr(transformers, name)
    try:
        config = make()
        stand_ins = {
            part: {"model_type": _STAND_INS[child.model_type]}
            for part, child in children(config).items()
            if child.model_type in _STAND_INS
        }
        return make(**stand_ins) if stand_ins else config
    except Exception as error:  # any error of a constructor means the same: no defaults to start from
        raise ModelError(
            f"no tiny {model_type} can be made", why=f"{name}() fails with {type(error).__name__}: {error}"
        ) from error


def tiny_config(model_type: str, catalog: Catalog) -> dict[str, Any]:
    """The smallest of `tiny_configs`."""
    return next(tiny_configs(model_type, catalog))
