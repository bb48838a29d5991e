"""What could be changed so that a model fits, and what it would take then.

A change is reckoned from estimates that were made anyway and from the model's anatomy. Each states what it assumes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .estimate import Anatomy, MemoryEstimate

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
    base: MemoryEstimate, others: Sequence[MemoryEstimate], anatomy: Anatomy, available: int
) -> Iterator[Change]:
    """What could be changed, the smallest first, for a device with `available` bytes; not each of them is enough.

    The order is by what is given up: nothing but time (a smaller batch), digits that few models need (half
    precision), digits that are missed at times (eight bits, four bits), text (a shorter context); then what takes
    other hardware or much time: a second device, offloading. `others` are estimates of the same model with one thing
    changed.
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
    yield from _shared(base, narrow, anatomy)
    if base.request.mode != "training":
        yield _offloaded(narrow, anatomy)


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
    width = _BYTES[estimate.request.precision]
    kept = estimate.total - width * anatomy.linear + width * anatomy.largest
    computes = f"computed in {estimate.request.precision}"
    for bits, scales in ((8, 0.0), (4, _SCALE_BYTES / _GROUP)):
        weights = int(anatomy.linear * (bits / 8 + scales))
        each = "" if bits == 8 else f" with a scale of {_SCALE_BYTES} bytes for each {_GROUP}"
        yield Change(
            kind=f"int{bits}",
            what=f"quantise the weights of linear layers to int{bits}, {computes}",
            needed=kept + weights,
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


def _offloaded(estimate: MemoryEstimate, anatomy: Anatomy) -> Change:
    width = _BYTES[estimate.request.precision]
    there = width * (2 * anatomy.block + anatomy.beside)
    return Change(
        kind="offload",
        what=f"offload its layers to the host's memory or to disk, in {estimate.request.precision}",
        needed=estimate.total - estimate.weights + min(there, estimate.weights),
        assumes="two layers are on the device at a time, and all that is in no layer stays there; it is slow",
    )
