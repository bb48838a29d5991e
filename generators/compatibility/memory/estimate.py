"""`MemoryEstimate`: what one way to run a model takes, part by part, and `parse_size` for sizes that people write."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hardware.errors import UsageError, echo

PRECISIONS = ("float32", "bfloat16", "float16")
"""Precisions that models are run in to be counted. Others are arithmetic on weights, in `changes.py`."""
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*([A-Za-z]{0,3})")


@dataclass(frozen=True, kw_only=True)
class MemoryRequest:
    """How a model is to be run.

    `inference` is one forward pass without a cache; `generation` reads `context` tokens into a cache and decodes one
    more, with results for the last place alone where the model can; `training` is a step of AdamW in `precision`.
    `context` is a number of tokens, of a text or of a decoder's; models without a text ignore it.
    """

    mode: str
    precision: str
    batch: int
    context: int

    def __str__(self) -> str:
        return f"{self.mode} in {self.precision}, batch {self.batch}, context {self.context}"


@dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """Bytes at the peak of one request, by what they are there for; `total` is their sum.

    `workspace` is what kernels allocate inside themselves at that moment.
    """

    request: MemoryRequest
    weights: int
    gradients: int
    optimiser: int
    inputs: int
    cache: int
    activations: int
    workspace: int

    @property
    def total(self) -> int:
        """Bytes of all parts."""
        return sum(self.parts.values())

    @property
    def parts(self) -> dict[str, int]:
        """The parts by name, in the order in which they are shown."""
        return {name: value for name, value in vars(self).items() if name != "request"}

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**asdict(self.request), **self.parts, "total": self.total}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MemoryEstimate:
        """What `to_dict` wrote. Raises `KeyError` or `TypeError` for anything else."""
        asked = MemoryRequest(**{name: data[name] for name in MemoryRequest.__dataclass_fields__})
        names = [name for name in cls.__dataclass_fields__ if name != "request"]
        return cls(request=asked, **{name: int(data[name]) for name in names})


@dataclass(frozen=True, kw_only=True)
class Anatomy:
    """What changes to a model are reckoned with, as numbers of parameters.

    `linear` are those in the matrices of linear layers and experts but for the head that gives words, as far as they
    aren't kept in fewer bits already; `largest` the
    largest of these matrices; `block` the largest of the layers that repeat, and `beside` all that is in none of
    them.
    """

    parameters: int
    linear: int
    largest: int
    block: int
    beside: int


def parse_size(text: str) -> int:
    """Bytes of `24GiB`, `80 GB` or `1073741824`. Raises `UsageError`."""
    found = _SIZE.fullmatch(text.strip())
    if found is None or found[2].upper() not in _UNITS or not float(found[1]):
        raise UsageError(
            f"{echo(text)} is not a size of memory",
            why="a size is a number with an optional unit",
            fix="For example: --memory 24GiB, --memory 80GB.",
        )
    return int(float(found[1]) * _UNITS[found[2].upper()])
