"""Size of a model: the parameters in its files, and the tier that their number belongs to (`size_tiers.toml`)."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

from hwcompat.hardware.values import data_file

_FILE = Path(__file__).with_name("size_tiers.toml")
_LONGEST_HEADER = 100_000_000
"""In bytes; the limit of the format. Source: https://github.com/huggingface/safetensors, "Format"."""


def size_tier(parameters: int | None) -> str:
    """Return `tiny`, `small`, `base`, `large` or `xl`; an empty string if the number of parameters isn't known."""
    if parameters is None:
        return ""
    return str(next(one["name"] for one in data_file(_FILE)["tier"] if parameters < one.get("below", math.inf)))


def parameters_of(files: Sequence[Path]) -> int | None:
    """Return the number of elements of all tensors in safetensors files, from their headers; None without files, or
    if a header can't be read."""
    try:
        return sum(map(_elements, files)) if files else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _elements(file: Path) -> int:
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if length > _LONGEST_HEADER:
            raise ValueError("the header is too long")
        header = json.loads(opened.read(length))
    return sum(math.prod(one["shape"]) for name, one in header.items() if name != "__metadata__")
