"""Does a model fit into a device's memory, how much is missing, and what is the smallest change that makes it fit?

Arithmetic on estimates (`generators/recipes/memory` makes them); nothing is built here. A change is reckoned from
estimates that were made anyway and from the model's anatomy, and states what it assumes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from hardware.errors import UsageError, echo
from hardware.plain_text import size_text

PRECISIONS = ("float32", "bfloat16", "float16")
"""Precisions that models are run in to be counted. Others are arithmetic on weights, in `changes.py`."""
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*([A-Za-z]{0,3})")
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_GROUP = 128
"""Weights that share a scale in four bits."""
_SCALE_BYTES = 2
TIGHT = 0.95
"""From this share of a device's memory on an estimate's own error decides: 5 % of it was the 95th percentile that was
asked of estimates. docs/MEMORY.md has what was measured."""


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
class MemoryAnatomy:
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


@dataclass(frozen=True, kw_only=True)
class MemoryChange:
    """One change: its `kind`, what to do in words, what one device needs then in bytes, and what that assumes."""

    kind: str
    what: str
    needed: int
    assumes: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"kind": self.kind, "what": self.what, "needed_bytes": self.needed, "assumes": self.assumes}


def changes(
    base: MemoryEstimate,
    others: Sequence[MemoryEstimate],
    anatomy: MemoryAnatomy,
    available: int,
    *,
    on_host: bool = False,
) -> Iterator[MemoryChange]:
    """What could be changed, the smallest first, for a device with `available` bytes; not each of them is enough.

    The order is by what is given up: nothing but time (a smaller batch), digits that few models need (half
    precision), digits that are missed at times (eight bits, four bits), text (a shorter context); then what takes
    other hardware or much time: a second device, offloading. Behind them stand several at once, the fewest first.
    `others` are estimates of the same model with one thing or more changed. The memory may be the host's own.
    """
    yield from _smaller_batch(base, others, available)
    half = [one for one in others if one.request == replace(base.request, precision=one.request.precision)]
    for one in half:
        if one.request.precision != base.request.precision:
            yield MemoryChange(kind="precision", what=f"run it in {one.request.precision}", needed=one.total)
    narrow = min([base, *half], key=lambda one: one.total)
    if base.request.mode != "training":
        yield from _quantised(narrow, anatomy)
    shorter = [one for one in others if one.request == replace(base.request, context=one.request.context)]
    for one in sorted(shorter, key=lambda one: -one.request.context):
        if one.request.context < base.request.context:
            what = f"shorten the context to {one.request.context} tokens"
            yield MemoryChange(kind="context", what=what, needed=one.total)
    if not on_host:
        yield from _shared(base, narrow, anatomy)
    if base.request.mode != "training":
        yield _offloaded(narrow, anatomy, "disk" if on_host else "the host's memory or to disk")
    yield from _several(base, others, anatomy, on_host=on_host)


def _several(
    base: MemoryEstimate, others: Sequence[MemoryEstimate], anatomy: MemoryAnatomy, *, on_host: bool
) -> Iterator[MemoryChange]:
    """Changes that are made together, and these in fewer bits or on two devices."""
    together = [(one, what) for one in others if len(what := _differences(base.request, one.request)) > 1]
    for one, what in together:
        yield MemoryChange(kind="several", what=", ".join(what), needed=one.total)
    for one, what in together[-1:]:
        further = [] if base.request.mode == "training" else [*_quantised(one, anatomy)]
        further += [] if on_host else [*_shared(one, one, anatomy)]
        for last in further:
            yield replace(last, kind="several", what=", ".join([*what, last.what]))


def _differences(base: MemoryRequest, other: MemoryRequest) -> list[str]:
    """In words, what makes one request the other."""
    found = []
    if other.batch != base.batch:
        found.append(f"take a batch of {other.batch}")
    if other.precision != base.precision:
        found.append(f"run it in {other.precision}")
    if other.context != base.context:
        found.append(f"shorten the context to {other.context} tokens")
    return found


def as_quantised(estimate: MemoryEstimate, anatomy: MemoryAnatomy, bits: int) -> MemoryEstimate:
    """An estimate for weights of linear layers in so many bits, one of them widened at a time."""
    width = _BYTES[estimate.request.precision]
    scales = _SCALE_BYTES / _GROUP if bits < 8 else 0.0
    kept = estimate.weights - width * anatomy.linear + int(anatomy.linear * (bits / 8 + scales))
    return replace(estimate, weights=kept, workspace=estimate.workspace + width * anatomy.largest)


def _smaller_batch(base: MemoryEstimate, others: Sequence[MemoryEstimate], available: int) -> Iterator[MemoryChange]:
    """Between one example and the batch that was asked for, memory grows evenly."""
    one = next((o for o in others if o.request == replace(base.request, batch=1)), None)
    if one is None or base.request.batch == 1 or one.total > available:
        return
    a_row = (base.total - one.total) / (base.request.batch - 1)
    rows = min(int((available - one.total) / a_row) + 1, base.request.batch - 1) if a_row > 0 else 1
    yield MemoryChange(
        kind="batch",
        what=f"take a batch of {rows}",
        needed=one.total + int(a_row * (rows - 1)),
        assumes="each example takes the same" if rows > 1 else "",
    )


def _quantised(estimate: MemoryEstimate, anatomy: MemoryAnatomy) -> Iterator[MemoryChange]:
    computes = f"computed in {estimate.request.precision}"
    for bits in (8, 4):
        each = "" if bits == 8 else f" with a scale of {_SCALE_BYTES} bytes for each {_GROUP}"
        yield MemoryChange(
            kind=f"int{bits}",
            what=f"quantise the weights of linear layers to int{bits}, {computes}",
            needed=as_quantised(estimate, anatomy, bits).total,
            assumes=f"weights of linear layers alone{each}, the largest of them widened at a time",
        )


def _shared(base: MemoryEstimate, narrow: MemoryEstimate, anatomy: MemoryAnatomy) -> Iterator[MemoryChange]:
    """A model parted between two devices by its layers: each holds at most half and one layer more."""
    for estimate in dict.fromkeys((base, narrow)):
        held = estimate.weights + estimate.gradients + estimate.optimiser + estimate.cache
        passing = estimate.total - held
        layer = held * anatomy.block // max(anatomy.parameters, 1)
        precision = "" if estimate is base else f", in {estimate.request.precision}"
        yield MemoryChange(
            kind="two devices",
            what=f"part its layers between two such devices{precision}",
            needed=held // 2 + layer + passing,
            assumes="layers are shared out as evenly as whole layers can be, and each device holds all activations",
        )


def _offloaded(estimate: MemoryEstimate, anatomy: MemoryAnatomy, where: str) -> MemoryChange:
    width = _BYTES[estimate.request.precision]
    there = width * (2 * anatomy.block + anatomy.beside)
    return MemoryChange(
        kind="offload",
        what=f"offload its layers to {where}, in {estimate.request.precision}",
        needed=estimate.total - estimate.weights + min(there, estimate.weights),
        assumes="two layers are on the device at a time, and all that is in no layer stays there; it is slow",
    )


@dataclass(frozen=True, kw_only=True)
class Room:
    """A device, or a size of memory that somebody asks about: `available` in bytes, None where nothing tells.
    `is_host` is for the host's own memory: nothing can be moved from there to the host, and it has no second."""

    name: str
    available: int | None
    why_unknown: str = ""
    is_host: bool = False


@dataclass(frozen=True, kw_only=True)
class Fit:
    """The answer for one device. `fits` is None where it isn't known. `change` is the smallest one that is enough,
    None where none is needed, or none is enough; `missing` is in bytes."""

    room: Room
    needed: int
    fits: bool | None
    missing: int = 0
    change: MemoryChange | None = None

    @property
    def is_tight(self) -> bool:
        """Whether so little is left that the error of an estimate decides."""
        return bool(self.fits and self.room.available and self.needed > TIGHT * self.room.available)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "device": self.room.name,
            "needed_bytes": self.needed,
            "available_bytes": self.room.available,
            "fits": self.fits,
            "tight": self.is_tight,
            "missing_bytes": self.missing,
            "change": self.change.to_dict() if self.change else None,
            "why_unknown": self.room.why_unknown,
        }

    @property
    def text(self) -> str:
        """The answer in a sentence."""
        needed = size_text(self.needed)
        if self.fits is None:
            return f"{self.room.name}: unknown, {needed} needed: {self.room.why_unknown}"
        there = f"{needed} needed, {size_text(self.room.available)} there"
        if self.fits:
            return f"{self.room.name}: {'fits, with little to spare' if self.is_tight else 'fits'}: {there}"
        said = f"{self.room.name}: does not fit: {there}, {size_text(self.missing)} missing."
        if self.change is None:
            return f"{said} No change that is known here makes it fit."
        return f"{said} Smallest change: {self.change.what} ({size_text(self.change.needed)})."


def fit(base: MemoryEstimate, others: Sequence[MemoryEstimate], anatomy: MemoryAnatomy, room: Room) -> Fit:
    """Whether `base` fits into `room`; `others` are estimates of the same model with something changed."""
    if room.available is None:
        return Fit(room=room, needed=base.total, fits=None)
    if base.total <= room.available:
        return Fit(room=room, needed=base.total, fits=True)
    possible = changes(base, others, anatomy, room.available, on_host=room.is_host)
    enough = (one for one in possible if one.needed <= room.available)
    missing = base.total - room.available
    return Fit(room=room, needed=base.total, fits=False, missing=missing, change=next(enough, None))
