"""Tiny configurations for model types: the library's own defaults, divided.

Every width of the whole configuration tree is divided by one factor, so that what was equal, a sum or a
product stays so; names are understood by the roles in roles.toml, exceptions are data in overrides.toml.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import math
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hardware.errors import ModelError

from .catalog import Catalog

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


@functools.cache
def roles() -> Mapping[str, Mapping[str, list[str]]]:
    """roles.toml: names of configuration attributes and of parameters by what they mean."""
    with (Path(__file__).parent / "roles.toml").open("rb") as file:
        return tomllib.load(file)


@functools.cache
def _all_overrides() -> Mapping[str, Any]:
    with (Path(__file__).parent / "overrides.toml").open("rb") as file:
        return tomllib.load(file)


def overrides(model_type: str) -> Mapping[str, Any]:
    """The entry of a model type in overrides.toml, empty where it has none."""
    entry: Mapping[str, Any] = _all_overrides().get(model_type, {})
    return entry


def _keys(config: Any) -> tuple[str, ...]:
    """What the constructor of a configuration takes, whether it is a dataclass (5.x) or not (4.x)."""
    if dataclasses.is_dataclass(config):
        return tuple(f.name for f in dataclasses.fields(config) if f.init)
    return tuple(p for p in inspect.signature(type(config).__init__).parameters if p not in ("self", "kwargs"))


def children(config: Any) -> dict[str, Any]:
    """The sub-configurations of a configuration by attribute name."""
    names = getattr(type(config), "sub_configs", None) or vars(config)
    found = {name: getattr(config, name, None) for name in names}
    return {name: child for name, child in found.items() if hasattr(child, "to_dict")}


def text_config(config: Any) -> Any:
    """The part of a configuration that holds the vocabulary: itself, or its `text_config`."""
    return next((c for c in _tree(config) if getattr(c, "vocab_size", None)), config)


def _tree(config: Any) -> Iterator[Any]:
    yield config
    for child in children(config).values():
        yield from _tree(child)


def _role(config: Any, role: str) -> dict[str, Any]:
    """The attributes of `config` with this role that the constructor takes and that are set."""
    values = {name: getattr(config, name, None) for name in _keys(config) if name in roles()["config"][role]}
    return {name: value for name, value in values.items() if value is not None and value is not False}


def _whole(values: Mapping[str, Any]) -> dict[str, int]:
    return {k: v for k, v in values.items() if isinstance(v, int) and v > 0}


def _stages(values: Mapping[str, Any]) -> dict[str, list[int]]:
    """Those that are lists with a number for each stage."""
    lists = {k: list(v) for k, v in values.items() if isinstance(v, list | tuple) and v}
    return {k: v for k, v in lists.items() if all(isinstance(one, int) and one > 0 for one in v)}


def _numbers(values: Mapping[str, Any]) -> list[int]:
    """All whole numbers, those of lists too."""
    return [*_whole(values).values(), *(one for stages in _stages(values).values() for one in stages)]


def _divided(values: Mapping[str, Any], divisor: int) -> dict[str, Any]:
    lists = {name: [one // divisor for one in stages] for name, stages in _stages(values).items()}
    return {name: value // divisor for name, value in _whole(values).items()} | lists


def _head_dim(config: Any, heads: list[int]) -> int | None:
    explicit = _whole(_role(config, "head_dim"))
    if explicit:
        return math.gcd(*explicit.values())
    hidden = _numbers(_role(config, "hidden"))
    if not hidden or not heads:
        return None
    # Stages grow in width and in heads alike: the narrowest has the fewest.
    return min(hidden) // (min(heads) if _stages(_role(config, "heads")) else max(heads))


def _split(config: Any, factor: int) -> tuple[int, int] | None:
    """How the factor is shared between the number of heads and their width; None where it can't be.

    Heads stay at least two where there were two; their width stays a multiple of 4 (rotary embeddings), and
    at least 8 (GPU kernels) where it was.
    """
    heads = _numbers(_role(config, "heads"))
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
    hidden = _numbers(_role(config, "hidden"))
    widths = [*hidden, *_numbers(_role(config, "width"))]
    smallest = _SMALLEST_STAGE if _role(config, "depths") else _SMALLEST_HIDDEN
    return (
        all(width % factor == 0 for width in widths)
        and min(hidden, default=smallest * factor) // factor >= smallest
        and _split(config, factor) is not None
    )


def _token_ids(config: Any) -> dict[str, int]:
    """Special tokens by attribute name: what the constructor takes that ends in `_token_id` or `_index`."""
    values = {name: getattr(config, name, None) for name in _keys(config)}
    return {
        name: value
        for name, value in values.items()
        if name.endswith(("_token_id", "_token_index")) and isinstance(value, int) and value >= 0
    }


def _layers(config: Any) -> int:
    """Two layers, or as many as it takes to meet each kind of layer once."""
    kinds = [k for k in _role(config, "layer_kinds").values() if isinstance(k, list) and k]
    firsts = [max(kind.index(one) for one in set(kind)) + 1 for kind in kinds]
    return max([LAYERS, *firsts])


def _limits(config: Any) -> dict[str, int]:
    """The most that attributes of a role are left with, so that each still does something in a tiny model.

    A window is shorter than the shorter row. Experts are `_EXPERTS` in each group, and one of two groups is used;
    dense layers leave one layer for the experts.
    """
    groups = 2 if max(_whole(_role(config, "expert_groups")).values(), default=1) > 1 else 1
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
        changed |= _divided(_role(config, role), factor)
    changed |= _divided(_role(config, "heads"), split[0])
    changed |= {name: value // split[1] for name, value in _whole(_role(config, "head_dim")).items()}
    for role, limit in _limits(config).items():
        changed |= {name: min(value, limit) for name, value in _whole(_role(config, role)).items()}
    for name, value in _role(config, "layer_kinds").items():
        changed[name] = list(value)[: _layers(config)]
    return changed | _image(config) | {name: tokens[value] for name, value in _token_ids(config).items()}


def _image(config: Any) -> dict[str, Any]:
    """Sizes of images, windows and stages: an image has as many patches a side as leave two to the last stage."""
    stages = _role(config, "depths")
    patches = list(_whole(_role(config, "patch")).values())
    windows = _whole(_role(config, "image_window")) if patches else {}
    changed: dict[str, Any] = {name: [2 if windows else 1] * len(value) for name, value in stages.items()}
    if patches:
        a_side = max(_PATCHES_A_SIDE, *(2 ** len(value) for value in stages.values()), 0)
        changed |= dict.fromkeys(_whole(_role(config, "image")), patches[0] * a_side)
    return changed | dict.fromkeys(windows, _IMAGE_WINDOW)


def _arguments(config: Any, default: Any, factor: int, tokens: Mapping[int, int]) -> dict[str, Any]:
    """The constructor arguments that make `config`, shrunk: what differs from `default`, an object of its class."""
    parts = children(config)
    kept = {name: getattr(config, name, None) for name in _keys(config) if name not in parts}
    plain = {name: value for name, value in kept.items() if isinstance(value, _PLAIN)}
    wanted = plain | _shrunk(config, factor, tokens)
    found = {name: value for name, value in wanted.items() if value != getattr(default, name, None)}
    for name, child in parts.items():
        found[name] = _arguments(child, _default_of(child), factor, tokens)
        if type(config).sub_configs[name].__name__ == "AutoConfig":
            found[name] = {"model_type": child.model_type, **found[name]}
    return {name: value for name, value in found.items() if value != {}}


def _default_of(config: Any) -> Any:
    return config if getattr(config, "has_no_defaults_at_init", False) else type(config)()


def factors_of(config: Any) -> list[int]:
    """The divisors that fit a whole configuration tree, the largest and two that leave it larger.

    Raises `ModelError` where not even 1 leaves valid heads.
    """
    scopes = list(_tree(config))
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

    JSON values, only what differs from the defaults; nested dicts are sub-configurations. Imports transformers.
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
            yield _overridden(composed, changes, None)
        return
    config = _defaults(model_type, catalog)
    known = sorted({value for scope in _tree(config) for value in _token_ids(scope).values()})
    top = min([VOCABULARY, *(size for scope in _tree(config) for size in _numbers(_role(scope, "vocabulary")))])
    tokens = {value: top - 1 - place for place, value in enumerate(known)}
    for factor in factors_of(config):
        arguments = _overridden(_arguments(config, config, factor, tokens), changes, config)
        yield dict(json.loads(json.dumps(arguments)))


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


def _overridden(
    arguments: Mapping[str, Any], changes: Mapping[str, Any], config: Any, whole: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """`arguments` with the values of overrides.toml, less those that are the defaults in `config`.

    A table changes a sub-configuration, where there is one of that name, and is a literal elsewhere. `whole` are the
    arguments around a sub-configuration's.
    """
    changed = dict(arguments)
    whole = changed if whole is None else whole
    for key, value in changes.items():
        default = getattr(config, key, None)
        if isinstance(value, Mapping) and (key in changed or hasattr(default, "to_dict")):
            changed[key] = _overridden(changed.get(key, {}), value, default, whole)
        else:
            changed[key] = _referred(value, changed, config, whole)
        if changed[key] == default:
            del changed[key]
    return changed


def _referred(value: Any, arguments: Mapping[str, Any], config: Any, whole: Mapping[str, Any]) -> Any:
    """A literal of overrides.toml, or for "@name" the tiny value of another attribute ("@part.name" of a part)."""
    if not (isinstance(value, str) and value.startswith("@")):
        return value
    scope, _, name = value[1:].rpartition(".")
    if scope:
        arguments, config = whole.get(scope, {}), getattr(config, scope, None)
    return arguments.get(name, getattr(config, name, None))


def special_tokens(config: Any) -> frozenset[int]:
    """The ids of all special tokens in a configuration tree."""
    return frozenset(value for scope in _tree(config) for value in _token_ids(scope).values())
