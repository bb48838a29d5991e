"""What could be changed so that a model fits, and what it would take then.

A change is reckoned from estimates that were made anyway and from the model's anatomy. Each states what it assumes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .estimate import Anatomy, MemoryEstimate, MemoryRequest

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_GROUP = 128
"""Weights that share a scale in four bits."""
_SCALE_BYTES = 2


@dataclass(frozen=True, kw_only=True)
class Change:
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
    anatomy: Anatomy,
    available: int,
    *,
    on_host: bool = False,
) -> Iterator[Change]:
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
            yield Change(kind="precision", what=f"run it in {one.request.precision}", needed=one.total)
    narrow = min([base, *half], key=lambda one: one.total)
    if base.request.mode != "training":
        yield from _quantised(narrow, anatomy)
    shorter = [one for one in others if one.request == replace(base.request, context=one.request.context)]
    for one in sorted(shorter, key=lambda one: -one.request.context):
        if one.request.context < base.request.context:
            what = f"shorten the context to {one.request.context} tokens"
            yield Change(kind="context", what=what, needed=one.total)
    if not on_host:
        yield from _shared(base, narrow, anatomy)
    if base.request.mode != "training":
        yield _offloaded(narrow, anatomy, "disk" if on_host else "the host's memory or to disk")
    yield from _several(base, others, anatomy, on_host=on_host)


def _several(
    base: MemoryEstimate, others: Sequence[MemoryEstimate], anatomy: Anatomy, *, on_host: bool
) -> Iterator[Change]:
    """Changes that are made together, and these in fewer bits or on two devices."""
    together = [(one, what) for one in others if len(what := _differences(base.request, one.request)) > 1]
    for one, what in together:
        yield Change(kind="several", what=", ".join(what), needed=one.total)
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


def as_quantised(estimate: MemoryEstimate, anatomy: Anatomy, bits: int) -> MemoryEstimate:
    """An estimate for weights of linear layers in so many bits, one of them widened at a time."""
    width = _BYTES[estimate.request.precision]
    scales = _SCALE_BYTES / _GROUP if bits < 8 else 0.0
    kept = estimate.weights - width * anatomy.linear + int(anatomy.linear * (bits / 8 + scales))
    return replace(estimate, weights=kept, workspace=estimate.workspace + width * anatomy.largest)


def _smaller_batch(base: MemoryEstimate, others: Sequence[MemoryEstimate], available: int) -> Iterator[Change]:
    """Between one example and the batch that was asked for, memory grows evenly."""
    one = next((o for o in others if o.request == replace(base.request, batch=1)), None)
    if one is None or base.request.batch == 1 or one.total > available:
        return
    a_row = (base.total - one.total) / (base.request.batch - 1)
    rows = min(int((available - one.total) / a_row) + 1, base.request.batch - 1) if a_row > 0 else 1
    yield Change(
        kind="batch",
        what=f"take a batch of {rows}",
        needed=one.total + int(a_row * (rows - 1)),
        assumes="each example takes the same" if rows > 1 else "",
    )


def _quantised(estimate: MemoryEstimate, anatomy: Anatomy) -> Iterator[Change]:
    computes = f"computed in {estimate.request.precision}"
    for bits in (8, 4):
        each = "" if bits == 8 else f" with a scale of {_SCALE_BYTES} bytes for each {_GROUP}"
        yield Change(
            kind=f"int{bits}",
            what=f"quantise the weights of linear layers to int{bits}, {computes}",
            needed=as_quantised(estimate, anatomy, bits).total,
            assumes=f"weights of linear layers alone{each}, the largest of them widened at a time",
        )


def _shared(base: MemoryEstimate, narrow: MemoryEstimate, anatomy: Anatomy) -> Iterator[Change]:
    """A model parted between two devices by its layers: each holds at most half and one layer more."""
    for estimate in dict.fromkeys((base, narrow)):
        held = estimate.weights + estimate.gradients + estimate.optimiser + estimate.cache
        passing = estimate.total - held
        layer = held * anatomy.block // max(anatomy.parameters, 1)
        precision = "" if estimate is base else f", in {estimate.request.precision}"
        yield Change(
            kind="two devices",
            what=f"part its layers between two such devices{precision}",
            needed=held // 2 + layer + passing,
            assumes="layers are shared out as evenly as whole layers can be, and each device holds all activations",
        )


def _offloaded(estimate: MemoryEstimate, anatomy: Anatomy, where: str) -> Change:
    width = _BYTES[estimate.request.precision]
    there = width * (2 * anatomy.block + anatomy.beside)
    return Change(
        kind="offload",
        what=f"offload its layers to {where}, in {estimate.request.precision}",
        needed=estimate.total - estimate.weights + min(there, estimate.weights),
        assumes="two layers are on the device at a time, and all that is in no layer stays there; it is slow",
    )
