"""Choose inputs of a graph file that its users might give: by name, dtype, rank and use in the graph."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from hwcompat.generators.models.given_recipe import GivenInput
from hwcompat.hardware.compare import Array
from hwcompat.hardware.errors import ModelError, echo
from hwcompat.hardware.testing.drawn_inputs import RATE_HZ

BATCH = "batch"
_STATE = re.compile(r"(^|[_./])(state|hidden|cell|cache|memory|mem|past|ctx|context|[hc](n|_?\d*)?)($|[_./\d])", re.I)
_NEXT = re.compile(r"_?(n|out|output|new|next)")
_FIRST = re.compile(r"(?<=[a-z])_?(0|in|init|initial|prev|past)$")
"""What the name of a state's next value has besides the state's."""
_LENGTH = re.compile(r"(^|[_./])(len|lens|length|lengths|num_\w+)($|[_./\d])", re.I)
_RATE = re.compile(r"^(sr|rate|sample_?rate|sampling_?rate)$", re.I)
_FACTOR = re.compile("scale|speed|alpha|temperature|ratio", re.I)
_SEQUENCE = re.compile(r"(^|_)(len(gth)?|seq(uence)?|steps?|time|tokens?|frames?|samples?|windows?)(_|$)", re.I)
"""Names of dimensions that hold what follows one another, also where it comes first: no batch."""
_FREQUENCY = re.compile("(?:f|freq)_?(min|max)|(min|max)_?freq(?:uency)?", re.I)
_RANGE_HZ = {"min": 50.0, "max": 2000.0}
_IMAGES = ((64, 64), (96, 96), (224, 224), (48, 320), (32, 320), (320, 320), (640, 640), (32, 32))
"""Heights and widths to try for an image without sizes. Windows of poolings don't fit into what is left of 32."""
_TEXTS = (16, 32, 64, 128, 256)
"""Lengths to try for a text."""
_SERIES = (16, 64, 224, 512, 576, 1536, 4000, 16000, 48000)
"""Lengths to try for a sound or another series: up to three seconds at 16 kHz."""
_SHORTEST, _MOST_ROWS = 224, 8
"""The shortest sound, and the largest batch or number of channels."""


@dataclass(frozen=True, kw_only=True)
class Port:
    """One input of a graph: NumPy's name of its dtype, its shape (a text names a dynamic dimension), and for indices
    the number of rows of their table, else 0."""

    dtype: str
    shape: tuple[int | str, ...]
    rows: int = 0

    @property
    def kind(self) -> str:
        """`f`, `i`, `u` or `b`, as in NumPy; `?` for a dtype that NumPy doesn't have."""
        return np.dtype(self.dtype).kind if self.dtype != "bfloat16" else "?"


@dataclass(frozen=True, kw_only=True)
class _Way:
    """How inputs are drawn: the smallest number of masks, the batch, the largest of images, what images and sounds
    are, and whether others are between 0 and 1."""

    mask: int = 0
    batch: int = 2
    image: float = 1.0
    pixels: str = "uniform"
    sound: str = "normal"
    is_positive: bool = False


_WAYS = (
    _Way(),
    _Way(pixels="page", sound="tones"),
    *(_Way(image=255.0), _Way(mask=1), _Way(batch=1), _Way(is_positive=True)),
)
"""The usual one first. Some models find nothing in noise, images have numbers up to 1 or 255, a mask of zeros may
spoil a row, some graphs allow a batch of one alone, and some functions only positive numbers."""


def attempts(ports: Mapping[str, Port]) -> Iterator[tuple[dict[str, GivenInput], dict[str, int]]]:
    """Yield specifications and sizes to try, the likeliest first. Raises `ModelError` for a dtype that can't be
    drawn."""
    before: list[tuple[dict[str, GivenInput], dict[str, int]]] = []
    for depth, how in itertools.product(range(max(map(len, (_IMAGES, _TEXTS, _SERIES)))), _WAYS):
        shapes = {name: _shape(name, port) for name, port in ports.items()}
        sizes = _sizes(ports, shapes, depth, how.batch)
        longest = _longest({name: one for name, one in shapes.items() if not is_image(ports[name])}, sizes)
        found = {name: _spec(name, port, shapes[name], how, longest, sizes) for name, port in ports.items()}, sizes
        if found not in before:
            before.append(found)
            yield found


def _shape(name: str, port: Port) -> tuple[int | str, ...]:
    """Return a shape in which unnamed dimensions have names: of texts and their masks the same one, of a state the
    batch's."""
    found: list[int | str] = []
    for axis, size in enumerate(port.shape):
        if size:
            found.append(size)
        elif axis == 0 or _STATE.search(name):
            found.append(BATCH)
        elif port.kind == "f" or is_image(port):
            found.append(f"{_word(name)}_{axis}")
        else:
            found.append(f"length_{axis}")
    return tuple(found)


def _word(name: str) -> str:
    word = "".join(char if char.isascii() and char.isalnum() else "_" for char in name).strip("_").lower()
    return word if word[:1].isalpha() else f"input_{word}"


def _sizes(
    ports: Mapping[str, Port], shapes: Mapping[str, tuple[int | str, ...]], depth: int, batch: int
) -> dict[str, int]:
    """Return sizes of the named dimensions: the batch's, an image's, a text's or a series', and sums of others."""
    sizes: dict[str, int] = {}
    for name, shape in shapes.items():
        named = [(axis, size) for axis, size in enumerate(shape) if isinstance(size, str)]
        for axis, size in named:
            if len(shape) == 1 and ports[name].kind == "f" and not _FACTOR.search(name):
                sizes.setdefault(size, _SERIES[min(depth, len(_SERIES) - 1)])
            elif _is_batch(name, ports[name], axis, size):
                sizes.setdefault(size, batch)
            elif is_image(ports[name]):
                pair = _IMAGES[min(depth, len(_IMAGES) - 1)]
                first = next(place for place, _ in named if place or len(shape) == 3)
                sizes.setdefault(size, pair[0 if axis == first and len(named) > 1 else 1])
            else:
                tried = _SERIES if ports[name].kind == "f" else _TEXTS
                sizes.setdefault(size, tried[min(depth, len(tried) - 1)])
    return with_sums(sizes)


def _is_batch(name: str, port: Port, axis: int, size: str) -> bool:
    """Return whether a named dimension of an input is the batch's."""
    if size == BATCH or _STATE.search(name):
        return True
    return axis == 0 and not is_image(port, batches=False) and not _SEQUENCE.search(size)


def with_sums(sizes: Mapping[str, int]) -> dict[str, int]:
    """Return sizes in which those that are named as a sum have its value: `past_plus_length`, and `total_length` if
    there is a `past_length`."""
    found = dict(sizes)
    for name in sizes:
        addends = name.split("_plus_")
        if name.startswith("total_") and f"past_{name[6:]}" in sizes:
            addends = [name[6:], f"past_{name[6:]}"]
        known = [int(one) if one.isdigit() else sizes.get(one) for one in addends]
        if len(known) > 1 and None not in known:
            found[name] = sum(one for one in known if one)
    return found


def is_image(port: Port, *, batches: bool = True) -> bool:
    """Return whether an input has the shape of images: height, width, and one, three or four colors, behind a batch
    or, if they are in the last axis, without one. Without `batches` only those without one count."""
    rank = len(port.shape)
    channels = {port.shape[1], port.shape[-1]} if rank == 4 and batches else set()
    if rank == 3 and not any(isinstance(size, int) and size < 8 for size in port.shape[:2]):
        channels = {port.shape[-1]} & {3, 4}
    return port.kind in "fu" and bool(channels & {1, 3, 4})


def states_of(inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> dict[str, str]:
    """Return the output that is the next step's value of an input, by the input: of its shape and with its name and
    an ending such as `n` or `_out` (`h0` and `hn`), or the only one of its shape if the input is named as a state."""
    found = {}
    for name, array in inputs.items():
        alike = [key for key, one in outputs.items() if one.shape == array.shape and one.dtype.kind == "f"]
        stem = _FIRST.sub("", name.lower()) or name.lower()
        inside = [key for key in alike if stem in key.lower()]
        named = [key for key in inside if _NEXT.fullmatch(key.lower().replace(stem, "", 1))]
        if array.dtype.kind == "f" and len(named) == 1:
            found[name] = named[0]
        elif array.dtype.kind == "f" and len(alike) == 1 and _STATE.search(name):
            found[name] = alike[0]
    return found if len(set(found.values())) == len(found) else {}


def _longest(shapes: Mapping[str, tuple[int | str, ...]], sizes: Mapping[str, int]) -> int | str:
    """Return the name or the value of the largest dimension behind a batch, which lengths count: a dynamic one, if
    there is any but a batch's."""
    every = [size for shape in shapes.values() for size in shape[1:] if size != BATCH]
    dynamic = [size for size in every if isinstance(size, str)]
    return max(dynamic or every, key=lambda size: sizes[size] if isinstance(size, str) else size, default=1)


def _is_sound(shape: tuple[int | str, ...], sizes: Mapping[str, int]) -> bool:
    """Return whether a shape is that of sounds: one long axis, and at most a batch and a channel besides."""
    lengths = sorted(sizes[size] if isinstance(size, str) else size for size in shape)
    return 0 < len(lengths) <= 3 and lengths[-1] >= _SHORTEST and (len(lengths) < 2 or lengths[-2] <= _MOST_ROWS)


def _spec(
    name: str,
    port: Port,
    shape: tuple[int | str, ...],
    how: _Way,
    longest: int | str,
    sizes: Mapping[str, int],
) -> GivenInput:
    def drawn(kind: str, first: float, second: float) -> GivenInput:
        return GivenInput(kind=kind, dtype=port.dtype, shape=shape, low=first, high=second)

    if port.kind == "?":
        raise ModelError(f"the input {echo(name)} has dtype {port.dtype}", why="random inputs need a dtype of NumPy")
    if port.kind == "b":
        return drawn("booleans", 0, 1)
    if port.kind == "f":
        if is_image(port):
            return drawn(how.pixels, 0, how.image)
        if len(shape) < 2 and (named := _FREQUENCY.fullmatch(name)):
            return drawn("normal", _RANGE_HZ[(named[1] or named[2]).lower()], 0)
        if how.is_positive:
            return drawn("uniform", 0, 1)
        if how.sound != "normal" and _is_sound(shape, sizes):
            return drawn(how.sound, 0, 1)
        return drawn("normal", 1, 0) if _FACTOR.search(name) and len(shape) < 2 else drawn("normal", 0, 1)
    if port.rows:
        return drawn("integers", 0, port.rows)
    if _RATE.search(name):
        return drawn("integers", RATE_HZ, RATE_HZ + 1)
    if len(shape) < 2 and _LENGTH.search(name):
        return GivenInput(kind="lengths", dtype=port.dtype, shape=shape, of=longest)
    if is_image(port):
        return drawn("integers", 0, 256)
    # Others are usually a mask: zeros and ones, or only ones if zeros spoil a row.
    return drawn("integers", how.mask, 2)
