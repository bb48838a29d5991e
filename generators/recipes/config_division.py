"""Divide a configuration: choose a divisor for its widths and heads, and shrink images, lists of layers and rotary
positions."""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .config_scopes import arguments_of, numbers, role_of, stages, tree, whole_numbers

_FACTORS = (256, 128, 64, 32, 16, 8, 4, 2, 1)
_SMALLEST_HIDDEN = 32
_SMALLEST_STAGE = 16
_NARROW = 16
"""A default width below this, as of image codes, stays unchanged."""
_LARGEST_HIDDEN = 256
_LARGEST_UNDIVIDED = 128
"""A stream that no common divisor brings down to this is divided with remainders: the first limit applies if there
is a divisor, the second if there is none."""
_SMALLEST_HEAD_DIM = 8
_WISHED_HEAD_DIM = 16
_EVEN = 8
"""Half precision's grouped kernels, used for experts, need rows of a multiple of 16 bytes."""
_FEW_HEADS = 4
_LEAST_MULTIPLIER = 1 / 16
"""Below this, each multiplied width would be the least that the code allows."""
_OFTEN_UNSET = ("num_key_value_heads", "head_dim")
_PATCHES_A_SIDE = 4
_IMAGE = 64
"""Pixels per side of an image without patches: strides with a product of 32 leave two places per side."""
_FINE_PATCH = 16
_IMAGE_WINDOW = 2
_SECTIONS = "mrope_section"
_HOLDERS = ("rope_parameters", "rope_scaling")
"""The attributes with the sections in transformers 5 and in 4."""


@dataclass(frozen=True, kw_only=True)
class Division:
    """One divisor for all widths of a tree.

    `rounded`: the division has remainders, and each width becomes a multiple of 8, so equal widths stay equal, but
    sums and products may not. `completed`: number and width of heads that a configuration leaves unset are set, as
    most models then compute them. `deeper`: twice as many layers, in which a fault grows, and patches over which a
    float32 sum stays exact.
    """

    factor: int
    rounded: bool = False
    completed: bool = False
    deeper: bool = False


def divisions_of(config: Any) -> list[Division]:
    """Return the divisions that fit a whole configuration tree: the largest divisor and the next two.

    If no common divisor makes the tree small, two with remainders come first. If heads are unset, the same divisions
    follow, completed, because some models fail without. The last one is deeper.
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
    """Return the widths and heads of one scope under a division, by attribute name."""
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
    """Return the divided heads and their widths; a few heads of any width if nothing divides them."""
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
    """Return whether heads without a width of their own still divide a stream whose width was rounded."""
    counts = [count // share for count in numbers(role_of(config, heads))]
    return all(width % (4 * max(counts, default=1)) == 0 for width in hidden)


def _head_dim(config: Any, heads: str, head_dim: str) -> int | None:
    """Return the common divisor of the widths of a scope's heads."""
    explicit = whole_numbers(role_of(config, head_dim))
    if explicit:
        return math.gcd(*explicit.values())
    hidden, counts = numbers(role_of(config, "hidden")), numbers(role_of(config, heads))
    if not hidden or not counts:
        return None
    expansion = max(whole_numbers(role_of(config, "mixer_expansion")).values(), default=1)
    # Stages grow in width and in heads: the narrowest has the fewest.
    fewest = min(counts) if stages(role_of(config, heads)) else max(counts)
    return min(hidden) * (expansion if heads == "mixer_heads" else 1) // fewest


def _shares(config: Any, heads: str, head_dim: str, factor: int | None) -> tuple[int, int] | None:
    """Return how a factor is split between number and width of heads, or None if it can't be.

    At least two heads remain if there were two; their width stays a multiple of 4 (rotary embeddings) and at least 8
    (GPU kernels) if it was. Without a factor each is divided by itself.
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
    """Return the divisor of a head's width: 4, unless heads share a stream evenly in other widths."""
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


def image_sizes(config: Any, division: Division) -> dict[str, Any]:
    """Return the constructor arguments of one scope for the sizes of images, windows and stages."""
    return _sizes(config, division) | _shapes(config, division)


def _sizes(config: Any, division: Division) -> dict[str, Any]:
    sizes, depths = role_of(config, "image"), stages(role_of(config, "depths"))
    if not any(role_of(config, role) for role in ("patch", "video_patch", "channels")):
        sizes = {}  # the size of something else, such as the input of a stack of layers
    patches = whole_numbers(role_of(config, "patch"))
    if division.deeper:
        patches = {name: min(value, _FINE_PATCH) for name, value in patches.items()}
    patch = next(iter([*patches.values(), *_listed_patches(config)]), None)
    windows = whole_numbers(role_of(config, "image_window")) if patches else {}
    blocks = 2 if windows or role_of(config, "layers_apart") else 1
    side = _side(config, patch)
    changed: dict[str, Any] = {name: [blocks] * len(value) for name, value in depths.items()} | patches
    for name, size in whole_numbers(sizes).items():
        changed[name] = side if patch else min(size, side)
    for name, both in stages(sizes).items():
        step = patch or 1
        changed[name] = [min(one, side * one // min(both) // step * step) for one in both]
    merged = whole_numbers({"side": getattr(config, "spatial_merge_size", None)})
    window = patch * merged["side"] if merged and patch else _IMAGE_WINDOW  # in pixels if patches merge
    return changed | dict.fromkeys(windows, window)


def _listed_patches(config: Any) -> list[int]:
    """Return the sides of patches if a configuration lists both sides, or for a video also the length in time."""
    listed = [stages(role_of(config, role)).values() for role in ("patch", "video_patch")]
    return [patch[-1] for patches in listed for patch in patches]


def _side(config: Any, patch: int | None) -> int:
    """Return the pixels per side of an image that leave two patches per side to the last stage and to a window."""
    strides = whole_numbers(role_of(config, "output_stride")).values()
    if patch is None:
        return max([_IMAGE, *(2 * stride for stride in strides)])
    halvings = [2 ** len(value) for value in stages(role_of(config, "depths")).values()]
    windows = [math.isqrt(count) for count in whole_numbers(role_of(config, "windows")).values()]
    a_side: int = max([_PATCHES_A_SIDE, *halvings, *(2 * one for one in (*strides, *windows))])
    return patch * a_side


def _shapes(config: Any, division: Division) -> dict[str, Any]:
    """Return the shapes of tiles and feature maps, which shrink as the image does, possibly a part's image."""
    shapes = role_of(config, "image_grids") | role_of(config, "feature_sizes")
    shapes = {name: value for name, value in shapes.items() if isinstance(value, list)}
    sizes = [
        (numbers({name: getattr(part, name)})[0], numbers({name: after})[0])
        for part in tree(config)
        for name, after in (_sizes(part, division) if shapes else {}).items()
        if name in role_of(part, "image")
    ]
    if not sizes:
        return {}
    before, after = sizes[0]
    return {name: [[one * after // before for one in shape] for shape in value] for name, value in shapes.items()}


def layers_needed(config: Any) -> int:
    """Return the number of layers that the listed outputs need."""
    return max(len(_outputs_of_layers(config)), *map(len, _lists(config, "layers_used").values()), 0)


def first_of_each_kind(config: Any) -> set[int]:
    """Return the indices of the first special layer and of the first other layer, for each list of special layers."""
    lists = _lists(config, "layers_apart").values() if not role_of(config, "depths") else ()
    plain = {next(place for place in range(len(special) + 1) if place not in special) for special in lists}
    return plain | {min(special) for special in lists}


def kept_lists(config: Any, places: list[int]) -> dict[str, Any]:
    """Return the constructor's lists of layers if the layers at these indices are kept: the new indices of special
    layers, and the last indices of used layers, as many as before. If the last layers differ, all but one of the
    kept layers are such layers."""
    staged, layers = _lists(config, "depths"), len(places)
    kept: dict[str, Any] = {
        name: _last_of_stages(special, next(iter(staged.values())))
        if staged
        else [new for new, place in enumerate(places) if place in special]
        for name, special in _lists(config, "layers_apart").items()
    }
    most = max(numbers(role_of(config, "layers")), default=0)
    kept |= {name: layers - 1 for name, last in role_of(config, "layers_last").items() if 1 < last < most}
    for name, used in _lists(config, "layers_used").items():
        kept[name] = list(range(layers - len(used), layers))
    return kept


def kept_outputs(config: Any, default: Any, layers: int) -> dict[str, Any]:
    """Return `out_indices` of a backbone with this number of layers; empty if it gives its default outputs.

    Stages are numbered from 1; the stem is 0.
    """
    if _outputs(config) == _outputs(default):
        return {}
    count = len(_outputs_of_layers(config))
    return {"out_indices": list(range(layers + 1 - count, layers + 1)) if count else _outputs(config)}


def _last_of_stages(layers: list[int], depths: list[int]) -> list[int]:
    """Return the second layers of the stages that contain these layers, if every stage keeps two."""
    ends = list(itertools.accumulate(depths))
    return sorted({1 + 2 * next(stage for stage, end in enumerate(ends) if layer < end) for layer in layers})


def _lists(config: Any, role: str) -> dict[str, list[int]]:
    return {k: list(v) for k, v in role_of(config, role).items() if isinstance(v, list | tuple) and v}


def _outputs(config: Any) -> list[int]:
    """Return the output stages of a backbone; empty for other configurations."""
    names = getattr(config, "stage_names", None) or []
    return [one % len(names) for one in getattr(config, "out_indices", None) or []] if names else []


def _outputs_of_layers(config: Any) -> list[int]:
    """Return the output stages if each layer is a stage, as in a ViT."""
    names = getattr(config, "stage_names", None) or []
    return _outputs(config) if len(names) - 1 in numbers(role_of(config, "layers")) else []


def rotary_sections(config: Any, changed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rotary parameters of a scope whose heads became narrower; empty if it has no sections.

    `changed` are its other changed arguments. The three sections together are the frequencies of one head, half of
    its rotated width. Without them modeling code uses those of the full size; default configurations omit them.
    """
    holder = next((name for name in _HOLDERS if name in arguments_of(config)), None)
    if holder is None or not _has_sections(config):
        return {}
    known = dict(getattr(config, holder, None) or {})
    if any(isinstance(one, Mapping) for one in known.values()):  # by kind of layer; the code knows the sections
        return {}
    width = _value("head_dim", config, changed)
    heads = _value("num_attention_heads", config, changed)
    if width is None and heads:
        width = _value("hidden_size", config, changed) // heads
    if not width:
        return {}
    part = known.get("partial_rotary_factor") or getattr(config, "partial_rotary_factor", None) or 1.0
    frequencies = int(width * part) // 2
    time = frequencies // 4
    rows = (frequencies - time) // 2
    sections = [time, rows, frequencies - time - rows]
    return {holder: {"rope_type": "default", **dict(sorted(known.items(), reverse=True)), _SECTIONS: sections}}


def _has_sections(config: Any) -> bool:
    """Return whether the configuration's class, or its modeling code, uses such sections."""
    module = type(config).__module__.replace("configuration_", "modeling_")
    found = importlib.util.find_spec(module) if ".modeling_" in module else None
    beside = Path(found.origin).read_text(encoding="utf-8") if found and found.origin else ""
    return _SECTIONS in inspect.getsource(type(config)) + beside


def _value(name: str, config: Any, changed: Mapping[str, Any]) -> Any:
    return changed.get(name, getattr(config, name, None))
