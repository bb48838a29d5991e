"""Inputs of a model as data: small specifications from which Python builds arrays and a template writes code.

The closed set of kinds, with `batch = len(lengths)` and `length = max(lengths)`:

| kind | array | fields |
|---|---|---|
| `tokens` | int64 (batch, length), uniform in [0, high) | `high`; optional: `last`, the id in the last column; \
`end`, the id of each row's last token, before its padding on the right; `rows`; `choices`; `streams`, the \
size of a last axis, if codes of a sound are read side by side; `places`, a list of [id, start, stop]: columns \
for placeholder tokens of an image, a video or a sound; `neighbours`, if each token is read together with those \
beside it, padding or not; `padding`, the id of padding on the left |
| `decoder_tokens` | the same, for an encoder-decoder's decoder | `high`; optional: `last`, `length`, `rows` |
| `mask` | int64 (batch, length), 1 for tokens, 0 for padding | `side` of the padding: `right` or `left`; `rows`; \
`choices` |
| `padded` | bool (batch, step * length), true for the frames of a sound that pad a row on the right | `step` |
| `heard` | int64 (batch, step * length + extra), 0 for the padding of a sound on the right | `step`, `extra`; \
optional: `boolean` |
| `shown` | int64 (batch, *shape), 1; in every row but the first, the second half of the last axis is 0: a narrower \
picture, which keeps its height so that more than one place of it is left | `shape`; optional: `boolean` |
| `positions` | int64 (batch, length), counting the unmasked tokens of the text, or all without a mask | \
optional: `start`, the first |
| `places` | int64 (batch, length), 1 where `input_ids` is `token` | `token`; optional: `elsewhere`, 1 elsewhere |
| `boxes` | int64 (batch, length, 4), left, top, right, bottom in [0, high); shares of a page in \
float32 if `divisor` divides them | `high`; optional: `divisor` |
| `token_categories` | int64 (batch, length, columns), each column uniform in [0, its number of `high`) | `high`; \
optional: `low`, other numbers to start from |
| `categories` | int64 (batch, *shape), uniform in [0, high); float32 if `divisor` divides them | `shape`, \
`high`; optional: `divisor` |
| `pixels`, `features` | float32 (batch, *shape), standard normal | `shape`, of numbers, and of [step, per] for \
`step` times every `per` of the length; optional: `side_by_side`, if the last axis is of all examples, one after \
the other, and the first has a size of 1 |
| `cells` | float32 (batch, rows * columns, width), standard normal: a picture as a sequence | `rows`, `columns` as \
in a shape; `width` |
| `places_of_cells` | float32 (rows * columns, axes): where each cell lies | `rows`, `columns`; `axes`, each \
"row", "column" or "" for 0 |
| `points` | float32 (batch, *shape), uniform in [0, high) | `shape`, `high` |
| `regions` | float32 (batch, count, 4), left, top, right, bottom, uniform in [0, high) | `count`, `high` |
| `waveform` | float32 (batch, step * length + extra), standard normal | `step`, `extra`; optional: `channels`, the \
size of an axis behind the batch |
| `frames` | float32 (batch, step * length, bins), standard normal | `step`, `bins`; optional: `bins_first`, \
if the last two axes are swapped |
| `patches` | float32 (batch * patches, width), standard normal; `grid` is (time, rows, columns) | `grid`, `shape` |
| `flattened` | float32 (batch, side**2, 2 + width): row and column of a patch, from 1, then standard normal | \
`side`, `width` |
| `sizes` | int64 (batch, 1, n), `value` in every row: the sizes of one picture, as in a shape | `value` |
| `constant` | int64 (batch, ...), `value` (a list, also of lists) in every row | `value`; `rows`; optional: \
`apart`, added from one row to the next, as to numbers of patches that are counted through all examples |
| `ones` | int64 (batch, *shape), 1; `boolean`, optional: true instead | `shape` |
| `seen` | int64 (batch, length, *shape), 0 in the first column, then 1: the text behind an image | `shape`; \
optional: `elsewhere`, the other way round |
| `observed` | float32 (batch, *shape), 1 for about nine of ten, else 0: as numbers, because sums of them keep the \
dtype of the series, and sums of booleans don't | `shape` |

With `rows`, each example has that many rows: (batch * rows, length). With `choices`, it has
that many texts on an axis of their own: (batch, choices, length). The places of images, videos and sounds come on top
of `lengths`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # rendering reads the kinds alone, and an import of NumPy costs more than all that it does
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[Any]
Specs = Mapping[str, Mapping[str, Any]]

DRAWN = (
    *("tokens", "decoder_tokens", "boxes", "token_categories", "categories", "points", "regions"),
    *("pixels", "features", "waveform", "frames", "patches", "flattened", "cells", "observed"),
)
"""Kinds that are drawn at random; the others follow from lengths or other inputs."""
KINDS = (
    *(*DRAWN, "mask", "padded", "heard", "shown", "positions", "places", "constant", "ones", "seen"),
    *("places_of_cells", "sizes"),
)
LENGTHS = (16, 9)
"""Lengths of the rows of a batch. The second row is padded, so that a dropped mask shows."""
OTHER_DRAWS: tuple[tuple[int, tuple[int, ...] | None], ...] = ((1, None), (2, (5, 12, 7)), (3, (11, 11)))
"""Seeds and lengths (None: the recipe's own) that a suite compares too; the last has no padding."""


def other_draws(lengths: Sequence[int]) -> tuple[tuple[int, tuple[int, ...] | None], ...]:
    """Return `OTHER_DRAWS` for a recipe with these lengths, shortened in the same proportion."""
    share = max(lengths) / LENGTHS[0]
    return tuple((seed, rows and tuple(max(1, int(length * share)) for length in rows)) for seed, rows in OTHER_DRAWS)


def padding_mask(lengths: Sequence[int], side: str) -> Array:
    """Return 1 for tokens and 0 for padding on `side`: int64 (batch, longest)."""
    import numpy as np

    columns = np.arange(max(lengths))
    rows = np.array(lengths)[:, None]
    kept = columns >= max(lengths) - rows if side == "left" else columns < rows
    return kept.astype(np.int64)


def placeholders(specs: Specs) -> int:
    """Return the number of columns of a text that its images, videos and sounds take."""
    taken = [[stop - start for _, start, stop in spec.get("places", ())] for spec in specs.values()]
    return max(map(sum, taken), default=0)


def sizes(shape: Sequence[int | Sequence[int]], length: int) -> list[int]:
    """Return the sizes of axes; [step, per] means `step` times for every `per` of the length."""
    return [one if isinstance(one, int) else one[0] * (length // one[1]) for one in shape]


def covered_by(mask: str, specs: Specs) -> str:
    """Return the input that a mask covers: tokens, else an input with a frame for each; "" if there is none."""
    tokens = mask.replace("attention_mask", "input_ids")
    if tokens != mask and tokens in specs:
        return tokens
    steps = [name for name, spec in specs.items() if spec["kind"] == "frames" and spec["step"] == 1]
    return next((name for name in steps if "bins_first" not in specs[name]), "")


def make_inputs(
    specs: Specs, seed: int = 0, lengths: Sequence[int] = LENGTHS, rng: np.random.Generator | None = None
) -> dict[str, Array]:
    """Return the arrays that `specs` describe, drawn from `default_rng(seed)`, or from `rng`, in the mapping's order.

    Raises `ValueError` for an unknown kind.
    """
    import numpy as np

    rng = rng or np.random.default_rng(seed)
    lengths = [length + placeholders(specs) for length in lengths]
    arrays: dict[str, Array] = {}
    for name, spec in specs.items():
        kind = spec["kind"]
        if kind == "mask":
            arrays[name] = padding_mask(lengths, spec["side"]).repeat(spec.get("rows", 1), axis=0)
            if "choices" in spec:
                arrays[name] = arrays[name][:, None].repeat(spec["choices"], axis=1)
        elif kind == "padded":
            arrays[name] = padding_mask([spec["step"] * length for length in lengths], "right") == 0
        elif kind == "heard":
            steps = [spec["step"] * length + spec["extra"] for length in lengths]
            arrays[name] = padding_mask(steps, "right").astype(bool if spec.get("boolean") else np.int64)
        elif kind == "shown":
            arrays[name] = _shown(spec, len(lengths))
        elif kind == "positions":
            mask = arrays.get("attention_mask", np.ones((len(lengths), max(lengths)), dtype=np.int64))
            arrays[name] = np.maximum(mask.cumsum(axis=1) - 1, 0) + spec.get("start", 0)
        elif kind == "places":
            there = arrays["input_ids"] == spec["token"]
            arrays[name] = (~there if spec.get("elsewhere") else there).astype(np.int64)
        elif kind == "constant":
            arrays[name] = _constant(spec, len(lengths))
        elif kind == "ones":
            arrays[name] = np.ones((len(lengths), *spec["shape"]), dtype=bool if spec.get("boolean") else np.int64)
        elif kind == "seen":
            first = int("elsewhere" in spec)
            arrays[name] = np.full((len(lengths), max(lengths), *spec["shape"]), 1 - first, dtype=np.int64)
            arrays[name][:, 0] = first
        elif kind == "sizes":
            arrays[name] = np.array([[sizes(spec["value"], max(lengths))]] * len(lengths))
        elif kind == "places_of_cells":
            arrays[name] = _places_of_cells(spec, max(lengths))
        elif kind in DRAWN:
            arrays[name] = _drawn(spec, rng, len(lengths), max(lengths))
            if "end" in spec:
                arrays[name][np.arange(len(lengths)), np.array(lengths) - 1] = spec["end"]
            if "padding" in spec:
                arrays[name][padding_mask(lengths, "left") == 0] = spec["padding"]
        else:
            raise ValueError(f"{kind!r} isn't a kind of input; known: {', '.join(KINDS)}")
    return arrays


def _constant(spec: Mapping[str, Any], batch: int) -> Array:
    import numpy as np

    if "apart" in spec:
        return np.array([np.array(spec["value"]) + spec["apart"] * row for row in range(batch)])
    return np.array([spec["value"]] * (batch * spec.get("rows", 1)))


def _shown(spec: Mapping[str, Any], batch: int) -> Array:
    import numpy as np

    shown = np.ones((batch, *spec["shape"]), dtype=bool if spec.get("boolean") else np.int64)
    shown[1:, ..., (shown.shape[-1] + 1) // 2 :] = 0
    return shown


def _places_of_cells(spec: Mapping[str, Any], length: int) -> Array:
    import numpy as np

    rows, columns = np.indices(sizes([spec["rows"], spec["columns"]], length)).reshape(2, -1)
    axes = {"row": rows, "column": columns, "": np.zeros_like(rows)}
    return np.stack([axes[one] for one in spec["axes"]], axis=1).astype(np.float32)


def _drawn(spec: Mapping[str, Any], rng: np.random.Generator, batch: int, length: int) -> Array:
    import numpy as np

    kind = spec["kind"]
    if kind in ("tokens", "decoder_tokens"):
        choices = [spec["choices"]] if "choices" in spec else []
        shape = [batch * spec.get("rows", 1), *choices, spec.get("length", length)]
        tokens = rng.integers(0, spec["high"], [*shape, spec["streams"]] if "streams" in spec else shape)
        for token, start, stop in spec.get("places", ()):
            tokens[:, start:stop] = token
        if "last" in spec:
            tokens[..., -1] = spec["last"]
        return tokens
    if kind == "boxes":
        corners = rng.integers(0, spec["high"], (batch, length, 2, 2))
        boxes = np.sort(corners, axis=2).reshape(batch, length, 4)
        return (boxes / spec["divisor"]).astype(np.float32) if "divisor" in spec else boxes
    if kind == "token_categories":
        return rng.integers(spec.get("low", 0), spec["high"], (batch, length, len(spec["high"])))
    if kind == "categories":
        numbers = rng.integers(0, spec["high"], (batch, *spec["shape"]))
        return (numbers / spec["divisor"]).astype(np.float32) if "divisor" in spec else numbers
    if kind == "flattened":
        cells = np.indices((spec["side"], spec["side"])).reshape(2, -1).T + 1
        values = rng.standard_normal((batch, len(cells), spec["width"]))
        return np.concatenate([np.tile(cells, (batch, 1, 1)), values], axis=2).astype(np.float32)
    if kind == "points":
        return rng.uniform(0, spec["high"], (batch, *spec["shape"])).astype(np.float32)
    if kind == "regions":
        between = rng.uniform(0, spec["high"], (batch, spec["count"], 2, 2))
        return np.sort(between, axis=2).reshape(batch, -1, 4).astype(np.float32)
    if kind == "observed":
        return (rng.random((batch, *spec["shape"])) < 0.9).astype(np.float32)
    if kind == "waveform":
        channels = [spec["channels"]] if "channels" in spec else []
        shape = [batch, *channels, spec["step"] * length + spec["extra"]]
    elif kind == "frames":
        axes = [spec["step"] * length, spec["bins"]]
        shape = [batch, *(reversed(axes) if "bins_first" in spec else axes)]
    elif kind == "patches":
        shape = [batch * math.prod(spec["grid"]), *spec["shape"]]
    elif kind == "cells":
        shape = [batch, math.prod(sizes([spec["rows"], spec["columns"]], length)), spec["width"]]
    else:
        shape = [batch, *sizes(spec["shape"], length)]
        if "side_by_side" in spec:
            shape = [1, *shape[1:-1], batch * shape[-1]]
    return rng.standard_normal(shape).astype(np.float32)
