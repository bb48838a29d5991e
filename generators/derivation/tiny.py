"""Tiny configurations for model types: the library's own defaults, divided.

Every width of the whole configuration tree is divided by one factor, so that what was equal, a sum or a
product stays so; names are understood by the roles in roles.toml, exceptions are data in overrides/*.toml.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from generators.models.catalog import Catalog
from hardware.errors import ModelError

from .overrides import overridden, overrides
from .scopes import arguments_of, children, default_of, numbers, role_of, stages, token_ids, tree, whole_numbers

VOCABULARY = 512
POSITIONS = 128
LAYERS = 2
LABELS = 10
"""Differs from the batch, so that an output's axes aren't ambiguous."""

_FACTORS = (256, 128, 64, 32, 16, 8, 4, 2, 1)
_SMALLEST_HIDDEN = 32
_SMALLEST_STAGE = 16
_SMALLEST_HEAD_DIM = 8
_WISHED_HEAD_DIM = 16
_PATCHES_A_SIDE = 4
_WINDOW = 8
_IMAGE_WINDOW = 2
_PLAIN = (bool, int, float, str, list, tuple, dict, type(None))
_STAND_INS = {"timm_backbone": "resnet"}
"""Part of a default configuration -> the library's own that stands in, where the default needs another library."""
_EXPERTS = 4
_OF_ANY_TYPE = ("AutoConfig", "PreTrainedConfig", "PretrainedConfig")
"""Classes of parts that may be of any model type, which then must be said."""


def _divided(values: Mapping[str, Any], divisor: int) -> dict[str, Any]:
    lists = {name: [one // divisor for one in stages] for name, stages in stages(values).items()}
    return {name: value // divisor for name, value in whole_numbers(values).items()} | lists


def _head_dim(config: Any, heads: list[int]) -> int | None:
    explicit = whole_numbers(role_of(config, "head_dim"))
    if explicit:
        return math.gcd(*explicit.values())
    hidden = numbers(role_of(config, "hidden"))
    if not hidden or not heads:
        return None
    # Stages grow in width and in heads alike: the narrowest has the fewest.
    return min(hidden) // (min(heads) if stages(role_of(config, "heads")) else max(heads))


def _split(config: Any, factor: int) -> tuple[int, int] | None:
    """How the factor is shared between the number of heads and their width; None where it can't be.

    Heads stay at least two where there were two; their width stays a multiple of 4 (rotary embeddings), and
    at least 8 (GPU kernels) where it was.
    """
    heads = numbers(role_of(config, "heads"))
    width = _head_dim(config, heads)
    if not heads or width is None:
        return 1, factor
    common = math.gcd(*heads)
    options = [
        (h, factor // h)
        for h in range(1, factor + 1)
        if factor % h == 0
        and common % h == 0
        and width % (factor // h) == 0
        and (width * h // factor) % 4 == 0
        and width * h // factor >= min(_SMALLEST_HEAD_DIM, width)
        and min(heads) // h >= min(2, *heads)
    ]
    return min(options, key=lambda o: (abs(width // o[1] - _WISHED_HEAD_DIM), o), default=None)


def _fits(config: Any, factor: int) -> bool:
    hidden = numbers(role_of(config, "hidden"))
    widths = [*hidden, *numbers(role_of(config, "width"))]
    smallest = _SMALLEST_STAGE if role_of(config, "depths") else _SMALLEST_HIDDEN
    return (
        all(width % factor == 0 for width in widths)
        and min(hidden, default=smallest * factor) // factor >= smallest
        and _split(config, factor) is not None
    )


def _layers(config: Any) -> int:
    """Two layers, or as many as it takes to meet each kind of layer once."""
    kinds = [k for k in role_of(config, "layer_kinds").values() if isinstance(k, list) and k]
    firsts = [max(kind.index(one) for one in set(kind)) + 1 for kind in kinds]
    return max([LAYERS, *firsts])


def _limits(config: Any) -> dict[str, int]:
    """The most that attributes of a role are left with, so that each still does something in a tiny model.

    A window is shorter than the shorter row. Experts are `_EXPERTS` in each group, and one of two groups is used;
    dense layers leave one layer for the experts.
    """
    groups = 2 if max(whole_numbers(role_of(config, "expert_groups")).values(), default=1) > 1 else 1
    layers = _layers(config)
    return {
        "layers": layers,
        "dense_layers_first": layers - 1,
        "vocabulary": VOCABULARY,
        "positions": POSITIONS,
        "window": _WINDOW,
        "expert_groups": groups,
        "expert_groups_used": 1,
        "experts": _EXPERTS * groups,
        "experts_used": _EXPERTS // 2,
    }


def _shrunk(config: Any, factor: int, tokens: Mapping[int, int]) -> dict[str, Any]:
    """The constructor arguments of one scope that are other than in `config`."""
    split = _split(config, factor)
    assert split is not None, "a factor is used only where every scope fits"
    changed: dict[str, Any] = {}
    for role in ("hidden", "width"):
        changed |= _divided(role_of(config, role), factor)
    changed |= {name: value / factor for name, value in role_of(config, "width_multiplier").items()}
    changed |= _divided(role_of(config, "heads"), split[0])
    changed |= {name: value // split[1] for name, value in whole_numbers(role_of(config, "head_dim")).items()}
    for role, limit in _limits(config).items():
        changed |= {name: min(value, limit) for name, value in whole_numbers(role_of(config, role)).items()}
    for name, value in role_of(config, "layer_kinds").items():
        changed[name] = list(value)[: _layers(config)]
    return changed | _image(config) | {name: tokens[value] for name, value in token_ids(config).items()}


def _image(config: Any) -> dict[str, Any]:
    """Sizes of images, windows and stages: an image has as many patches a side as leave two to the last stage."""
    stages = role_of(config, "depths")
    patches = list(whole_numbers(role_of(config, "patch")).values())
    windows = whole_numbers(role_of(config, "image_window")) if patches else {}
    changed: dict[str, Any] = {name: [2 if windows else 1] * len(value) for name, value in stages.items()}
    if patches:
        a_side = max(_PATCHES_A_SIDE, *(2 ** len(value) for value in stages.values()), 0)
        changed |= dict.fromkeys(whole_numbers(role_of(config, "image")), patches[0] * a_side)
    return changed | dict.fromkeys(windows, _IMAGE_WINDOW)


def _arguments(config: Any, default: Any, factor: int, tokens: Mapping[int, int]) -> dict[str, Any]:
    """The constructor arguments that make `config`, shrunk: what differs from `default`, an object of its class."""
    parts = children(config)
    kept = {name: getattr(config, name, None) for name in arguments_of(config) if name not in parts}
    plain = {name: value for name, value in kept.items() if isinstance(value, _PLAIN)}
    wanted = plain | _shrunk(config, factor, tokens)
    found = {name: value for name, value in wanted.items() if value != getattr(default, name, None)}
    for name, child in parts.items():
        found[name] = _arguments(child, default_of(child), factor, tokens)
        if type(config).sub_configs[name].__name__ in _OF_ANY_TYPE:
            own = overrides(child.model_type).get("config", {})
            found[name] = {"model_type": child.model_type, **overridden(found[name], own, child)}
    return {name: value for name, value in found.items() if value != {}}


def factors_of(config: Any) -> list[int]:
    """The divisors that fit a whole configuration tree, the largest and two that leave it larger.

    Raises `ModelError` where not even 1 leaves valid heads.
    """
    scopes = list(tree(config))
    fitting = [f for f in _FACTORS if all(_fits(scope, f) for scope in scopes)]
    if not fitting and all(_split(scope, 1) is not None for scope in scopes):
        fitting = [1]
    if not fitting:
        raise ModelError(
            f"no tiny {config.model_type} can be made",
            why="the width of its heads is not a multiple of 4, so that no common divisor fits",
        )
    return fitting[:3]


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
    known = sorted({value for scope in tree(config) for value in token_ids(scope).values()})
    top = min([VOCABULARY, *(size for scope in tree(config) for size in numbers(role_of(scope, "vocabulary")))])
    high = {value: top - 1 - place for place, value in enumerate(known)}
    low = _padding_tokens(config)
    for tokens in [high, high | low] if low else [high]:
        for factor in factors_of(config):
            arguments = overridden(_arguments(config, config, factor, tokens), changes, config)
            yield dict(json.loads(json.dumps(arguments)))


def _padding_tokens(config: Any) -> dict[int, int]:
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
