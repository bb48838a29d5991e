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
_SMALLEST_HEAD_DIM = 8
_WISHED_HEAD_DIM = 16
_PATCHES_A_SIDE = 4


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
    names = getattr(type(config), "sub_configs", None) or {}
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


def _head_dim(config: Any, heads: Mapping[str, int]) -> int | None:
    explicit = _whole(_role(config, "head_dim"))
    if explicit:
        return min(explicit.values())
    hidden = _whole(_role(config, "hidden"))
    return min(hidden.values()) // max(heads.values()) if hidden and heads else None


def _split(config: Any, factor: int) -> tuple[int, int] | None:
    """How the factor is shared between the number of heads and their width; None where it can't be.

    Heads stay at least two where there were two; their width stays a multiple of 4 (rotary embeddings), and
    at least 8 (GPU kernels) where it was.
    """
    heads = _whole(_role(config, "heads"))
    width = _head_dim(config, heads)
    if not heads or width is None:
        return 1, factor
    common = math.gcd(*heads.values())
    options = [
        (h, factor // h)
        for h in range(1, factor + 1)
        if factor % h == 0
        and common % h == 0
        and width % (factor // h) == 0
        and (width * h // factor) % 4 == 0
        and width * h // factor >= min(_SMALLEST_HEAD_DIM, width)
        and min(heads.values()) // h >= min(2, min(heads.values()))
    ]
    return min(options, key=lambda o: (abs(width // o[1] - _WISHED_HEAD_DIM), o), default=None)


def _fits(config: Any, factor: int) -> bool:
    hidden = _whole(_role(config, "hidden"))
    widths = [*hidden.values(), *_whole(_role(config, "width")).values()]
    return (
        all(width % factor == 0 for width in widths)
        and min(hidden.values(), default=_SMALLEST_HIDDEN * factor) // factor >= _SMALLEST_HIDDEN
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


def _shrunk(config: Any, factor: int, tokens: Mapping[int, int]) -> dict[str, Any]:
    """The constructor arguments of one scope that differ from its defaults."""
    split = _split(config, factor)
    assert split is not None, "a factor is used only where every scope fits"
    changed: dict[str, Any] = {}
    for role in ("hidden", "width"):
        changed |= {name: value // factor for name, value in _whole(_role(config, role)).items()}
    changed |= {name: value // split[0] for name, value in _whole(_role(config, "heads")).items()}
    changed |= {name: value // split[1] for name, value in _whole(_role(config, "head_dim")).items()}
    limits = {"layers": _layers(config), "vocabulary": VOCABULARY, "positions": POSITIONS, "experts": 4}
    for role, limit in (limits | {"experts_used": 2}).items():
        changed |= {name: min(value, limit) for name, value in _whole(_role(config, role)).items()}
    for name, value in _role(config, "layer_kinds").items():
        changed[name] = list(value)[: _layers(config)]
    for name, value in _role(config, "depths").items():
        changed[name] = [1] * len(value)
    patches = list(_whole(_role(config, "patch")).values())
    if patches:
        changed |= dict.fromkeys(_whole(_role(config, "image")), patches[0] * _PATCHES_A_SIDE)
    changed |= {name: tokens[value] for name, value in _token_ids(config).items()}
    return {name: value for name, value in changed.items() if value != getattr(config, name)}


def _arguments(config: Any, factor: int, tokens: Mapping[int, int]) -> dict[str, Any]:
    nested = {name: _arguments(child, factor, tokens) for name, child in children(config).items()}
    return {name: value for name, value in (_shrunk(config, factor, tokens) | nested).items() if value != {}}


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
    import transformers

    name = catalog.config_class(model_type)
    try:
        config = getattr(transformers, name)()
    except Exception as error:  # any error of a constructor means the same: no defaults to start from
        raise ModelError(
            f"no tiny {model_type} can be made", why=f"{name}() fails with {type(error).__name__}: {error}"
        ) from error
    known = sorted({value for scope in _tree(config) for value in _token_ids(scope).values()})
    tokens = {value: VOCABULARY - 1 - place for place, value in enumerate(known)}
    for factor in factors_of(config):
        arguments = _arguments(config, factor, tokens)
        for key, value in overrides(model_type).get("config", {}).items():
            arguments[key] = _referred(value, arguments, config)
            if arguments[key] == getattr(config, key, None):
                del arguments[key]
        yield dict(json.loads(json.dumps(arguments)))


def tiny_config(model_type: str, catalog: Catalog) -> dict[str, Any]:
    """The smallest of `tiny_configs`."""
    return next(tiny_configs(model_type, catalog))


def _referred(value: Any, arguments: Mapping[str, Any], config: Any) -> Any:
    """A literal of overrides.toml, or for "@name" the tiny value of another attribute."""
    if isinstance(value, str) and value.startswith("@"):
        return arguments.get(value[1:], getattr(config, value[1:], None))
    return value


def special_tokens(config: Any) -> frozenset[int]:
    """The ids of all special tokens in a configuration tree."""
    return frozenset(value for scope in _tree(config) for value in _token_ids(scope).values())
