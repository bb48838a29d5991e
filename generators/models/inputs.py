"""Inputs of a model as data: small specifications that Python builds arrays from and a template writes out.

The closed set of kinds, with `batch = len(lengths)` and `length = max(lengths)`:

| kind | array | fields |
|---|---|---|
| `tokens` | int64 (batch, length), uniform in [0, high) | `high`; `last`: id that ends every row (optional) |
| `decoder_tokens` | the same, for an encoder-decoder's decoder | `high`; `last`, `length` (both optional) |
| `mask` | int64 (batch, length), 1 where a row holds something | `side` of the padding: `right` or `left` |
| `positions` | int64 (batch, length), of rows padded on the left | none |
| `pixels`, `features` | float32 (batch, *shape), standard normal | `shape` |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Specs = Mapping[str, Mapping[str, Any]]

KINDS = ("tokens", "decoder_tokens", "mask", "positions", "pixels", "features")
LENGTHS = (16, 9)
"""Lengths of the rows of a batch. The second row is padded, so that a dropped mask shows."""


def padding_mask(lengths: Sequence[int], side: str) -> Array:
    """1 where a row holds a token and 0 where it is padded on `side`: int64 (batch, longest)."""
    columns = np.arange(max(lengths))
    rows = np.array(lengths)[:, None]
    kept = columns >= max(lengths) - rows if side == "left" else columns < rows
    return kept.astype(np.int64)


def make_inputs(specs: Specs, seed: int = 0, lengths: Sequence[int] = LENGTHS) -> dict[str, Array]:
    """The arrays that `specs` describe, drawn from `default_rng(seed)` in the order of the mapping.

    Raises `ValueError` for a kind outside the closed set.
    """
    rng = np.random.default_rng(seed)
    batch, length = len(lengths), max(lengths)
    arrays: dict[str, Array] = {}
    for name, spec in specs.items():
        kind = spec["kind"]
        if kind in ("tokens", "decoder_tokens"):
            arrays[name] = rng.integers(0, spec["high"], (batch, spec.get("length", length)))
            if "last" in spec:
                arrays[name][:, -1] = spec["last"]
        elif kind == "mask":
            arrays[name] = padding_mask(lengths, spec["side"])
        elif kind == "positions":
            arrays[name] = np.maximum(padding_mask(lengths, "left").cumsum(axis=1) - 1, 0)
        elif kind in ("pixels", "features"):
            arrays[name] = rng.standard_normal((batch, *spec["shape"])).astype(np.float32)
        else:
            raise ValueError(f"{kind!r} is not a kind of input; known: {', '.join(KINDS)}")
    return arrays
