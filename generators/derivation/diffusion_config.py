"""Tiny constructor arguments for parts of diffusion pipelines: the class' own defaults, made small.

What is equal in the defaults stays equal, and so does a width that is the product of heads and their width. Names are
understood by the roles in diffusion.toml; exceptions are data in overrides/diffusion.toml, by class or by family.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hardware.errors import ModelError

from .overrides import overrides

LAYERS = 2
HEADS = 2
HEAD_DIM = 16
CHANNELS = 32
LATENTS = 8
GROUPS = 8
_NARROWEST = 32
_APART = 16

Arguments = Mapping[str, Any]


@functools.cache
def _roles() -> Mapping[str, list[str]]:
    with Path(__file__).with_name("diffusion.toml").open("rb") as file:
        roles: Mapping[str, list[str]] = tomllib.load(file)["roles"]
    return roles


def defaults_of(model_class: Any) -> dict[str, Any]:
    """What a class' constructor takes, with its defaults; None where an argument has none."""
    parameters = inspect.signature(model_class.__init__).parameters.values()
    named = [p for p in parameters if p.name != "self" and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return {p.name: None if p.default is p.empty else p.default for p in named}


def told_of(model_class: str, family: str, what: str) -> dict[str, Any]:
    """What `overrides/diffusion.toml` says of `config` or `inputs`: first of the class, then of the family."""
    entries = (overrides(model_class), overrides(family))
    return {key: value for entry in entries for key, value in entry.get(what, {}).items()}


def tiny_arguments(model_class: Any, family: str) -> dict[str, Any]:
    """The constructor arguments of a small model of `model_class`: JSON values, only what differs from the defaults.

    Imports nothing. `overrides/diffusion.toml` has the last word; what it says of a family counts for the classes
    that take such an argument. Raises `ModelError` for a family of which it says why it has none.
    """
    if why := overrides(family).get("refused"):
        raise ModelError(f"no tiny {family} can be made", why=why)
    defaults = defaults_of(model_class)
    told = {key: value for key, value in told_of(model_class.__name__, family, "config").items() if key in defaults}
    made = {**defaults, **_shrunk(defaults), **told}
    found = {name: value for name, value in made.items() if value != defaults.get(name, _plain)}
    return dict(json.loads(json.dumps(found)))


_plain = object()


def _shrunk(defaults: Arguments) -> dict[str, Any]:
    changed: dict[str, Any] = {n: min(v, LAYERS) for n, v in _numbers(defaults, "layers").items()}
    changed |= {n: min(v, LATENTS) for n, v in _numbers(defaults, "latents").items()}
    changed |= _heads(defaults)
    changed |= _widths(defaults, changed)
    changed |= _rotary(defaults, changed)
    return changed | _blocks(defaults)


def _role(defaults: Arguments, role: str) -> dict[str, Any]:
    return {name: value for name, value in defaults.items() if name in _roles()[role] and value}


def _numbers(defaults: Arguments, role: str) -> dict[str, int]:
    return {n: v for n, v in _role(defaults, role).items() if isinstance(v, int) and not isinstance(v, bool)}


def _lists(defaults: Arguments, role: str) -> dict[str, list[Any]]:
    return {n: list(v) for n, v in _role(defaults, role).items() if isinstance(v, list | tuple)}


def _heads(defaults: Arguments) -> dict[str, Any]:
    """Few heads in the same proportion, two at least where there were two; narrow ones of equal width."""
    if _lists(defaults, "down_blocks"):  # there `attention_head_dim` is a number of heads, of blocks of other widths
        return dict.fromkeys(_numbers(defaults, "head_dim"), HEADS)
    heads = _numbers(defaults, "heads")
    common = math.gcd(*heads.values()) if heads else 1
    few = {name: value // common for name, value in heads.items()}
    few = {name: value * (HEADS if max(few.values()) < HEADS else 1) for name, value in few.items()}
    return few | {name: min(value, HEAD_DIM) for name, value in _numbers(defaults, "head_dim").items()}


def _widths(defaults: Arguments, changed: Arguments) -> dict[str, int]:
    """Widths in the order of their size, `_APART` from each other; products of heads and their width stay so."""
    heads, head_dim = ("num_attention_heads", "attention_head_dim")
    products: dict[int, int] = {}
    if isinstance(defaults.get(heads), int) and isinstance(defaults.get(head_dim), int):
        products[defaults[heads] * defaults[head_dim]] = changed[heads] * changed[head_dim]
    stream = _numbers(defaults, "stream")
    if not products and stream:
        few = next((changed[name] for name in ("num_attention_heads", "n_heads") if name in changed), HEADS)
        products = dict.fromkeys(stream.values(), few * HEAD_DIM)
    widths = stream | _numbers(defaults, "width")
    sizes = sorted({value for value in widths.values() if value not in products})
    small = {size: min(size, _NARROWEST + _APART * place) for place, size in enumerate(sizes)}
    return {name: products.get(value) or small[value] for name, value in widths.items()}


def _rotary(defaults: Arguments, changed: Arguments) -> dict[str, list[int]]:
    """Even shares of the width of a head, in about the same proportion; the first axis takes what is left."""
    found = {}
    for name, axes in _lists(defaults, "rotary").items():
        width = changed.get("attention_head_dim", HEAD_DIM)
        shares = [max(2, axis * width // sum(axes) // 2 * 2) for axis in axes]
        found[name] = [width - sum(shares[1:]), *shares[1:]]
    return found


def _blocks(defaults: Arguments) -> dict[str, Any]:
    """One block of each kind, the first ones first, and as many where a list has no kinds; twice as wide each."""
    changed: dict[str, Any] = {}
    down = next(iter(_lists(defaults, "down_blocks").values()), [])
    channels = _lists(defaults, "channels")
    count = len(next(iter(channels.values()), []))
    kinds = sorted({down.index(kind) for kind in down})
    kept = kinds if len(kinds) > 1 else list(range(min(count, 2)))
    if not kept or not count:
        return {}
    for name, value in defaults.items():
        if isinstance(value, list | tuple) and len(value) == count:
            places = kept if name not in _roles()["up_blocks"] else sorted(count - 1 - place for place in kept)
            changed[name] = [value[place] for place in places]
    for name in channels:
        changed[name] = [CHANNELS * 2**place for place in range(len(kept))]
    return changed | dict.fromkeys(_numbers(defaults, "groups"), GROUPS)
