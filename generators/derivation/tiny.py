"""Tiny configurations for model types: the library's own defaults, divided.

Every width of the whole configuration tree is divided by one factor, so that what was equal, a sum or a
product stays so; names are understood by the roles in roles.toml, exceptions are data in overrides/*.toml.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from generators.models.catalog import Catalog
from hardware.errors import ModelError

from .layer_lists import kept_lists, kept_outputs, layers_needed, unnamed_arguments
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
_IMAGE = 64
"""Pixels a side where nothing is cut into patches: two places a side are left by strides that multiply to 32."""
_FINE_PATCH = 16
_LEAST_MULTIPLIER = 1 / 16
"""Below that, every width that is multiplied would be the least one that the code allows."""
_WINDOW = 8
_IMAGE_WINDOW = 2
_PLAIN = (bool, int, float, str, list, tuple, dict, type(None))
_STAND_INS = {"timm_backbone": "resnet"}
"""Part of a default configuration -> the library's own that stands in, where the default needs another library."""
_EXPERTS = 4
_QUERIES = 100
_FRAMES = 4
"""Two steps in time where two images make one."""
_OUTPUTS = ("out_features", "out_indices", "_out_features", "_out_indices")
"""Under which names a backbone is told what to give; one is enough, and those in use have no underscore."""


@dataclass(frozen=True, kw_only=True)
class _Scale:
    """How far a configuration is shrunk: the divisor of its widths, and what is left of layers and patches."""

    factor: int
    layers: int = LAYERS
    largest_patch: int | None = None


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
    step = math.lcm(*whole_numbers(role_of(config, "width_step")).values())
    return (
        all(width % (factor * step) == 0 for width in widths)
        and all(one / factor >= _LEAST_MULTIPLIER for one in role_of(config, "width_multiplier").values())
        and min(hidden, default=smallest * factor) // factor >= smallest
        and _split(config, factor) is not None
    )


def _layers(config: Any, least: int) -> int:
    """So many layers, or as many as it takes to meet each kind of layer once."""
    kinds = [k for k in role_of(config, "layer_kinds").values() if isinstance(k, list) and k]
    firsts = [max(kind.index(one) for one in set(kind)) + 1 for kind in kinds]
    return max([least, *firsts, layers_needed(config)])


def _limits(config: Any, scale: _Scale) -> dict[str, int]:
    """The most that attributes of a role are left with, so that each still does something in a tiny model.

    A window is shorter than the shorter row. Experts are `_EXPERTS` in each group, and one of two groups is used;
    dense layers leave one layer for the experts.
    """
    groups = 2 if max(whole_numbers(role_of(config, "expert_groups")).values(), default=1) > 1 else 1
    layers = _layers(config, scale.layers)
    return {
        "layers": layers,
        "layer_multiplier": 1,
        "dense_layers_first": layers - 1,
        "vocabulary": VOCABULARY,
        "positions": POSITIONS,
        "window": _WINDOW,
        "frames": _FRAMES,
        "queries": _QUERIES,
        "expert_groups": groups,
        "expert_groups_used": 1,
        "experts": _EXPERTS * groups,
        "experts_used": _EXPERTS // 2,
    }


def _shrunk(config: Any, scale: _Scale, tokens: Mapping[int, int]) -> dict[str, Any]:
    """The constructor arguments of one scope that are other than in `config`."""
    factor, layers = scale.factor, _layers(config, scale.layers)
    split = _split(config, factor)
    assert split is not None, "a factor is used only where every scope fits"
    changed: dict[str, Any] = {}
    for role in ("hidden", "width"):
        changed |= _divided(role_of(config, role), factor)
    for name, widths in stages(role_of(config, "stem")).items():
        changed[name] = [widths[0], *(width // factor for width in widths[1:])]
    changed |= {name: value / factor for name, value in role_of(config, "width_multiplier").items()}
    changed |= _divided(role_of(config, "heads"), split[0])
    changed |= {name: value // split[1] for name, value in whole_numbers(role_of(config, "head_dim")).items()}
    for role, limit in _limits(config, scale).items():
        values = {name: one for name, one in role_of(config, role).items() if isinstance(one, int | float)}
        changed |= {name: type(value)(min(value, limit)) for name, value in values.items()}
    for name, value in role_of(config, "layer_kinds").items():
        changed[name] = list(value)[:layers]
    changed |= {name: [layers - 1] for name in role_of(config, "global_layers")} | kept_lists(config, layers)
    changed |= _feature_sizes(config, scale)
    return changed | _image(config, scale) | {name: tokens[value] for name, value in token_ids(config).items()}


def _image(config: Any, scale: _Scale) -> dict[str, Any]:
    """Sizes of images, patches, windows and stages."""
    sizes, depths = role_of(config, "image"), stages(role_of(config, "depths"))
    found = whole_numbers(role_of(config, "patch"))
    patches = {name: min(value, scale.largest_patch or value) for name, value in found.items()}
    patch = next(iter([*patches.values(), *_listed_patches(config)]), None)
    windows = whole_numbers(role_of(config, "image_window")) if patches else {}
    blocks = 2 if windows or role_of(config, "layers_apart") else 1
    side = _side(config, patch)
    changed: dict[str, Any] = {name: [blocks] * len(value) for name, value in depths.items()} | patches
    for name, size in whole_numbers(sizes).items():
        changed[name] = side if patch else min(size, side)
    for name, both in stages(sizes).items():
        changed[name] = [_longer(one, min(both), side, patch) if patch else min(one, side) for one in both]
    return changed | dict.fromkeys(windows, _IMAGE_WINDOW)


def _feature_sizes(config: Any, scale: _Scale) -> dict[str, Any]:
    """Sizes of feature maps, which shrink as the image of the backbone does."""
    known = role_of(config, "feature_sizes")
    shrunk = [
        (numbers({name: getattr(part, name)})[0], numbers({name: size})[0])
        for part in tree(config)
        for name, size in (_image(part, scale) if known else {}).items()
        if name in role_of(part, "image")
    ]
    if not shrunk:
        return {}
    before, after = shrunk[0]
    return {name: [[one * after // before for one in size] for size in maps] for name, maps in known.items()}


def _listed_patches(config: Any) -> list[int]:
    """The side of patches where a configuration says both sides, or for a video their length in time as well."""
    listed = [stages(role_of(config, role)).values() for role in ("patch", "video_patch")]
    return [patch[-1] for patches in listed for patch in patches]


def _longer(one: int, shortest: int, side: int, patch: int) -> int:
    """A side of an image whose shortest is `side` now: as much longer as it was, in whole patches."""
    return patch * round(side * one / shortest / patch)


def _side(config: Any, patch: int | None) -> int:
    """Pixels a side of an image: as many patches as leave two a side to the last stage."""
    strides = whole_numbers(role_of(config, "output_stride")).values()
    if patch is None:
        return max([_IMAGE, *(2 * stride for stride in strides)])
    halvings = [2 ** len(value) for value in stages(role_of(config, "depths")).values()]
    return patch * max([_PATCHES_A_SIDE, *halvings, *(2 * stride for stride in strides)])


def _arguments(config: Any, default: Any, scale: _Scale, tokens: Mapping[int, int]) -> dict[str, Any]:
    """The constructor arguments that make `config`, shrunk: what differs from `default`, an object of its class."""
    parts = children(config)
    known = [name for name in arguments_of(config) if name not in (*parts, *_OUTPUTS)]
    kept = {name: getattr(config, name, None) for name in known}
    kept |= unnamed_arguments(config, default)
    plain = {name: value for name, value in kept.items() if isinstance(value, _PLAIN)}
    wanted = plain | _shrunk(config, scale, tokens)
    found = {name: value for name, value in wanted.items() if value != getattr(default, name, None)}
    found |= kept_outputs(config, default, _layers(config, scale.layers))
    for name, child in parts.items():
        found[name] = _arguments(child, default_of(child), scale, tokens)
        if type(config).sub_configs[name].__name__ == "AutoConfig":
            found[name] = {"model_type": child.model_type, **found[name]}
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


def _scales(config: Any) -> list[_Scale]:
    """How far to shrink, in the order of trying. The last is deeper, where a fault grows, and has patches over which
    a sum in float32 stays exact."""
    factors = factors_of(config)
    deeper = _Scale(factor=factors[0], layers=2 * LAYERS, largest_patch=_FINE_PATCH)
    return [*(_Scale(factor=factor) for factor in factors), deeper]


def tiny_configs(model_type: str, catalog: Catalog) -> Iterator[dict[str, Any]]:
    """Constructor arguments of small configurations of `model_type`, the smallest first.

    JSON values, only what differs from the defaults; nested dicts are sub-configurations. Behind those come the same
    with the padding token where a table of positions can count from it; not every model needs that, and none says so
    but by its constructor. Imports transformers.
    Raises `ModelError` with the reason where the type is unknown, its defaults can't be built, or no divisor
    fits.
    """
    changes, parts = (overrides(model_type).get(key, {}) for key in ("config", "parts"))
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
    seen: list[dict[str, Any]] = []
    for tokens in [high, high | low] if low else [high]:
        for scale in _scales(config):
            arguments = overridden(_arguments(config, config, scale, tokens), changes, config)
            if arguments not in seen:
                seen.append(arguments)
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
