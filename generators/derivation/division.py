"""By what a configuration tree is divided, and what its widths and heads become."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .scopes import arguments_of, numbers, role_of, stages, tree, whole_numbers

_FACTORS = (256, 128, 64, 32, 16, 8, 4, 2, 1)
_SMALLEST_HIDDEN = 32
_SMALLEST_STAGE = 16
_NARROW = 16
"""A stream that is narrower by default, as the codes of an image are, stays as it is."""
_LARGEST_HIDDEN = 256
_LARGEST_UNDIVIDED = 128
"""A stream that no common divisor brings down to this is divided by one that leaves remainders: the first where there
is a divisor, the second where there is none."""
_SMALLEST_HEAD_DIM = 8
_WISHED_HEAD_DIM = 16
_EVEN = 8
"""Half precision's grouped kernels, which experts are multiplied by, want rows of a multiple of 16 bytes."""
_FEW_HEADS = 4
_LEAST_MULTIPLIER = 1 / 16
"""Below that, every width that is multiplied would be the least one that the code allows."""
_OFTEN_UNSET = ("num_key_value_heads", "head_dim")


@dataclass(frozen=True, kw_only=True)
class Division:
    """One divisor for all widths of a tree.

    `rounded`: it leaves remainders, and every width becomes a multiple of 8, so that equal ones stay equal, but
    sums and products need not. `completed`: the number and the width of heads that a configuration leaves unset are
    set, as most models take them then. `deeper`: there are twice as many layers, in which a fault grows, and patches
    over which a sum in float32 stays exact.
    """

    factor: int
    rounded: bool = False
    completed: bool = False
    deeper: bool = False


def divisions_of(config: Any) -> list[Division]:
    """The divisions that fit a whole configuration tree: the largest divisor and two that leave it larger.

    Where no common divisor makes the tree small, two that leave remainders come first. Where heads are left unset,
    the same divisions come again, completed: most models do without, and others fail. The last one is deeper.
    """
    scopes = list(tree(config))
    found = _by_factor(scopes)
    completed = [replace(one, completed=True) for one in found if any(map(_unset, scopes))]
    return [*found, *completed, replace(found[0], deeper=True)]


def _by_factor(scopes: list[Any]) -> list[Division]:
    exact = [factor for factor in _FACTORS if all(_fits(scope, factor) for scope in scopes)]
    if not exact and all(_shares(scope, "heads", "head_dim", 1) for scope in scopes):
        exact = [1]
    hidden = [width for scope in scopes for width in _hidden(scope)]
    largest = _LARGEST_HIDDEN if exact[:1] > [1] else _LARGEST_UNDIVIDED
    if exact and min(hidden, default=0) // exact[0] <= largest:
        return [Division(factor=factor) for factor in exact[:3]]
    least = _SMALLEST_STAGE if any(role_of(scope, "depths") for scope in scopes) else _SMALLEST_HIDDEN
    coarse = [factor for factor in _FACTORS if min(hidden, default=least) // factor >= least] or [1]
    rounded = [Division(factor=factor, rounded=True) for factor in coarse[:2]]
    return rounded + [Division(factor=factor) for factor in exact[:1]]


def divided(config: Any, division: Division) -> dict[str, Any]:
    """The widths and heads of one scope under a division, by attribute name."""
    changed: dict[str, Any] = {}
    for role in ("hidden", "width", "rank"):
        changed |= _each(role_of(config, role), _quotient(config, division, role))
    for name, widths in stages(role_of(config, "stem")).items():
        changed[name] = [widths[0], *map(_quotient(config, division, "width"), widths[1:])]
    changed |= {name: value / division.factor for name, value in role_of(config, "width_multiplier").items()}
    for heads, head_dim in (("heads", "head_dim"), ("mixer_heads", "mixer_head_dim")):
        changed |= _divided_heads(config, heads, head_dim, division, changed)
    counts = [changed[n] for role in ("heads", "mixer_heads") for n in whole_numbers(role_of(config, role))]
    groups = whole_numbers(role_of(config, "mixer_groups"))
    changed |= {name: math.gcd(2, value, *counts) for name, value in groups.items()}
    return changed | (_completed(config, changed) if division.completed else {})


def _each(values: Mapping[str, Any], change: Callable[[int], int]) -> dict[str, Any]:
    lists = {name: [change(one) for one in listed] for name, listed in stages(values).items()}
    return {name: change(value) for name, value in whole_numbers(values).items()} | lists


def _quotient(config: Any, division: Division, role: str) -> Callable[[int], int]:
    def quotient(value: int) -> int:
        if role == "hidden" and value < _NARROW:
            return value
        exact = value // division.factor
        even = max(_EVEN, exact - exact % _EVEN)
        if division.rounded:
            return even
        return even if role == "width" and exact > _EVEN and _has_experts(config) else exact

    return quotient


def _has_experts(config: Any) -> bool:
    return bool(numbers(role_of(config, "experts")))


def _divided_heads(
    config: Any, heads: str, head_dim: str, division: Division, changed: Mapping[str, Any]
) -> dict[str, Any]:
    """What heads and their widths become; a few heads of any width where nothing divides them."""
    counts, widths = role_of(config, heads), whole_numbers(role_of(config, head_dim))
    free = heads == "mixer_heads" or (division.rounded and (widths or not counts))
    shares = _shares(config, heads, head_dim, division.factor)
    if shares is None and free:
        shares = _shares(config, heads, head_dim, None)
    hidden = numbers({name: changed.get(name) for name in role_of(config, "hidden")})
    if division.rounded and shares and not widths and not _remain_whole(config, heads, division, shares[0], hidden):
        shares = None
    if shares:
        return _each(counts, lambda value: value // shares[0]) | _each(widths, lambda value: value // shares[1])
    few = _FEW_HEADS if all(width % (4 * _FEW_HEADS) == 0 for width in hidden) else _FEW_HEADS // 2
    most = max(numbers(counts), default=1)
    return _each(counts, lambda value: min(few if value == most else few // 2, value))


def _remain_whole(config: Any, heads: str, division: Division, share: int, hidden: list[int]) -> bool:
    """Whether heads of no width of their own still divide a stream whose width was rounded."""
    counts = [count // share for count in numbers(role_of(config, heads))]
    return all(width % (4 * max(counts, default=1)) == 0 for width in hidden)


def _head_dim(config: Any, heads: str, head_dim: str) -> int | None:
    """The common divisor of the widths of a scope's heads."""
    explicit = whole_numbers(role_of(config, head_dim))
    if explicit:
        return math.gcd(*explicit.values())
    hidden, counts = numbers(role_of(config, "hidden")), numbers(role_of(config, heads))
    if not hidden or not counts:
        return None
    expansion = max(whole_numbers(role_of(config, "mixer_expansion")).values(), default=1)
    # Stages grow in width and in heads alike: the narrowest has the fewest.
    fewest = min(counts) if stages(role_of(config, heads)) else max(counts)
    return min(hidden) * (expansion if heads == "mixer_heads" else 1) // fewest


def _shares(config: Any, heads: str, head_dim: str, factor: int | None) -> tuple[int, int] | None:
    """How a factor is shared between the number of heads and their width; None where it can't be.

    Heads stay at least two where there were two; their width stays a multiple of 4 (rotary embeddings) and
    at least 8 (GPU kernels) where it was. Without a factor the two are divided each by itself.
    """
    counts = numbers(role_of(config, heads))
    width = _head_dim(config, heads, head_dim)
    if not counts or width is None:
        return 1, factor or 1
    common, step = math.gcd(*counts), _step(config, heads, width)
    options = [
        (by, width_by)
        for by in range(1, common + 1)
        if common % by == 0 and min(counts) // by >= min(2, *counts)
        for width_by in ([factor // by] if factor and factor % by == 0 else [] if factor else range(1, width + 1))
        if width % width_by == 0
        and (width // width_by) % step == 0
        and width // width_by >= min(_SMALLEST_HEAD_DIM, width)
    ]
    return min(
        options, key=lambda o: (abs(width // o[1] - _WISHED_HEAD_DIM), o if factor else (-o[0],)), default=None
    )


def _hidden(config: Any) -> list[int]:
    return [width for width in numbers(role_of(config, "hidden")) if width >= _NARROW]


def _step(config: Any, heads: str, width: int) -> int:
    """What the width of a head stays a multiple of: 4, but where heads share a stream evenly in other widths."""
    hidden, counts = numbers(role_of(config, "hidden")), numbers(role_of(config, heads))
    evenly = {stream / count for stream, count in zip(hidden * len(counts), counts, strict=False)} == {width}
    return 1 if evenly and width % 4 else 4


def _fits(config: Any, factor: int) -> bool:
    hidden = _hidden(config)
    widths = [*hidden, *numbers(role_of(config, "width")), *numbers(role_of(config, "rank"))]
    smallest = _SMALLEST_STAGE if role_of(config, "depths") else _SMALLEST_HIDDEN
    step = math.lcm(*whole_numbers(role_of(config, "width_step")).values())
    return (
        all(width % (factor * step) == 0 for width in widths)
        and all(one / factor >= _LEAST_MULTIPLIER for one in role_of(config, "width_multiplier").values())
        and min(hidden, default=smallest * factor) // factor >= smallest
        and not (_has_experts(config) and any(width // factor % _EVEN for width in hidden))
        and _shares(config, "heads", "head_dim", factor) is not None
    )


def _completed(config: Any, changed: Mapping[str, Any]) -> dict[str, Any]:
    heads = max(numbers({name: changed[name] for name in role_of(config, "heads")}), default=0)
    hidden = max(numbers({name: changed[name] for name in role_of(config, "hidden")}), default=0)
    if not heads or not hidden:
        return {}
    return {n: heads if n == "num_key_value_heads" else hidden // heads for n in _unset(config)}


def _unset(config: Any) -> list[str]:
    return [name for name in arguments_of(config) if name in _OFTEN_UNSET and getattr(config, name, None) is None]
