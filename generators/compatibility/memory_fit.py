"""Decide whether a model fits into a device's memory, how much is missing, and the smallest change with which it
fits.

Arithmetic on estimates (`generators/recipes/memory`); nothing is built here. A change is computed from other
estimates and from the model's anatomy, and states what it assumes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hwcompat.hardware.errors import UsageError, echo
from hwcompat.hardware.plain_text import size_text
from hwcompat.hardware.values import data_file

PRECISIONS = ("float32", "bfloat16", "float16")
"""Precisions with estimates of their own. Others are computed from the weights."""
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*([A-Za-z]{0,3})")
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_GROUP = 128
"""Number of weights that share a scale in four bits."""
_SCALE_BYTES = 2
TIGHT = 0.95
"""Above this share of a device's memory the error of an estimate decides: 5 % is the target for its 95th percentile
(docs/measured/memory.md)."""
BESIDE = Path(__file__).with_name("device_memory.toml")
"""What torch takes on a device beside a model."""


@dataclass(frozen=True, kw_only=True)
class MemoryRequest:
    """How a model is to be run.

    `inference` is one forward pass without a cache; `generation` reads `context` tokens into a cache and decodes one
    more, with logits for the last position only if the model can; `training` is a step of AdamW in `precision`.
    `context` is a number of tokens, those of a decoder included; models without text ignore it.
    """

    mode: str
    precision: str
    batch: int
    context: int

    def __str__(self) -> str:
        context = f", context {self.context}" if self.context else ""
        return f"{self.mode} in {self.precision}, batch {self.batch}{context}"


@dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """Bytes at the peak of one request, by purpose; `total` is their sum.

    `workspace` is what kernels allocate internally at that moment.
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
        """The parts by name, in display order."""
        return {name: value for name, value in vars(self).items() if name != "request"}

    @property
    def on_accelerator(self) -> MemoryEstimate:
        """The estimate for a device on which AdamW updates all parameters at once, torch's default except on a CPU
        and on MPS: its step then holds a temporary copy of the trained parameters beside gradients and two moments.

        Source: `foreach` in https://docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html.
        """
        trained = self.optimiser // 2
        step = replace(self, gradients=trained, optimiser=3 * trained, cache=0, activations=0, workspace=0)
        return max(self, step, key=lambda one: one.total)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**asdict(self.request), **self.parts, "total": self.total}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MemoryEstimate:
        """Read what `to_dict` wrote. Raises `KeyError` or `TypeError` for anything else."""
        asked = MemoryRequest(**{name: data[name] for name in MemoryRequest.__dataclass_fields__})
        names = [name for name in cls.__dataclass_fields__ if name != "request"]
        return cls(request=asked, **{name: int(data[name]) for name in names})


@dataclass(frozen=True, kw_only=True)
class MemoryAnatomy:
    """Numbers of parameters that changes are computed from.

    `linear` are those in the matrices of linear layers and experts, without the output head and without those already
    in fewer bits; `largest` is the largest of these matrices, `block` the largest repeated layer, and `beside`
    everything outside repeated layers. Of a file (`is_file`) only the parameters are known.
    """

    parameters: int
    linear: int
    largest: int
    block: int
    beside: int
    is_file: bool = False


def parse_size(text: str) -> int:
    """Return the bytes of `24GiB`, `80 GB` or `1073741824`. Raises `UsageError`."""
    found = _SIZE.fullmatch(text.strip())
    if found is None or found[2].upper() not in _UNITS or not float(found[1]):
        raise UsageError(
            f"{echo(text)} isn't a memory size",
            why="a size is a number above 0 with a unit",
            fix="For example: --memory 24GiB or --memory 80GB.",
        )
    return int(float(found[1]) * _UNITS[found[2].upper()])


@dataclass(frozen=True, kw_only=True)
class BesideModel:
    """Bytes that torch takes on a device beside a model, and how far estimates are from measured peaks there.

    `context` and `workspace` are the ends of a range; `over_estimate` has such ends for each mode, as factors, and
    `reserved` those of what torch's allocator reserves, of the peak.
    """

    context: tuple[int, int]
    workspace: tuple[int, int]
    over_estimate: Mapping[str, tuple[float, float]]
    reserved: tuple[float, float]
    device: str

    @property
    def ends(self) -> tuple[int, int]:
        """The least and the most bytes together."""
        return self.context[0] + self.workspace[0], self.context[1] + self.workspace[1]

    @property
    def text(self) -> str:
        """The parts with their ranges."""
        ranges = [f"{size_text(low)} to {size_text(high)}" for low, high in (self.context, self.workspace)]
        return f"{ranges[0]} for CUDA's context and {ranges[1]} for workspaces of kernels, as on an {self.device}"


def beside_model(target: str) -> BesideModel | None:
    """Return what torch takes on a target's devices beside a model; None if that was never measured."""
    found = data_file(BESIDE).get(target)
    if found is None:
        return None
    low_high = {name: tuple(2**20 * one for one in found[f"{name}_mib"]) for name in ("context", "workspace")}
    ratios = {mode: tuple(ends) for mode, ends in found["measured_over_estimate"].items()}
    reserved = tuple(found["reserved_over_peak"])
    return BesideModel(**low_high, over_estimate=ratios, reserved=reserved, device=found["device"])


@dataclass(frozen=True, kw_only=True)
class MemoryChange:
    """A change: its `kind`, what to do, the bytes that one device then needs, and what that assumes."""

    kind: str
    what: str
    needed: int
    assumes: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"kind": self.kind, "what": self.what, "needed_bytes": self.needed, "assumes": self.assumes}


def changes(
    base: MemoryEstimate,
    others: Sequence[MemoryEstimate],
    anatomy: MemoryAnatomy,
    available: int,
    *,
    on_host: bool = False,
) -> Iterator[MemoryChange]:
    """Return possible changes for a device with `available` bytes, the smallest first; one may not be enough.

    They are sorted by their cost: time (a smaller batch), digits that few models need (half precision), digits that
    some need (eight bits, four bits), text (a shorter context), then other hardware or much time: a second device,
    offloading. Combinations follow, the smallest first. `others` are estimates of the same model with something
    changed. With `on_host` the memory is the host's own.
    """
    yield from _smaller_batch(base, others, available)
    if anatomy.is_file:
        return
    half = [one for one in others if one.request == replace(base.request, precision=one.request.precision)]
    for one in half:
        if one.request.precision != base.request.precision:
            yield MemoryChange(kind="precision", what=f"run it in {one.request.precision}", needed=one.total)
    narrow = min([base, *half], key=lambda one: one.total)
    if base.request.mode != "training":
        yield from _quantized(narrow, anatomy)
    shorter = [one for one in others if one.request == replace(base.request, context=one.request.context)]
    for one in sorted(shorter, key=lambda one: -one.request.context):
        if one.request.context < base.request.context:
            what = f"shorten the context to {one.request.context} tokens"
            yield MemoryChange(kind="context", what=what, needed=one.total)
    if not on_host:
        yield from _split_in_two(base, narrow, anatomy)
    if base.request.mode != "training":
        yield _offloaded(narrow, anatomy, "disk" if on_host else "the host's memory or to disk")
    yield from _several(base, others, anatomy, on_host=on_host)


def _several(
    base: MemoryEstimate, others: Sequence[MemoryEstimate], anatomy: MemoryAnatomy, *, on_host: bool
) -> Iterator[MemoryChange]:
    """Return combinations of changes, also in fewer bits or on two devices."""
    together = [(one, what) for one in others if len(what := _differences(base.request, one.request)) > 1]
    for one, what in together:
        yield MemoryChange(kind="several", what=", ".join(what), needed=one.total)
    for one, what in together[-1:]:
        further = [] if base.request.mode == "training" else [*_quantized(one, anatomy)]
        further += [] if on_host else [*_split_in_two(one, one, anatomy)]
        for last in further:
            yield replace(last, kind="several", what=", ".join([*what, last.what]))


def _differences(base: MemoryRequest, other: MemoryRequest) -> list[str]:
    """Return the differences between two requests as text."""
    found = []
    if other.batch != base.batch:
        found.append(f"reduce the batch to {other.batch}")
    if other.precision != base.precision:
        found.append(f"run it in {other.precision}")
    if other.context != base.context:
        found.append(f"shorten the context to {other.context} tokens")
    return found


def as_quantized(estimate: MemoryEstimate, anatomy: MemoryAnatomy, bits: int) -> MemoryEstimate:
    """Return the estimate for linear layers in this many bits, with one of them widened at a time."""
    width = _BYTES[estimate.request.precision]
    scales = _SCALE_BYTES / _GROUP if bits < 8 else 0.0
    kept = estimate.weights - width * anatomy.linear + int(anatomy.linear * (bits / 8 + scales))
    return replace(estimate, weights=kept, workspace=estimate.workspace + width * anatomy.largest)


def _smaller_batch(base: MemoryEstimate, others: Sequence[MemoryEstimate], available: int) -> Iterator[MemoryChange]:
    """Interpolate: memory grows linearly between one example and the requested batch."""
    one = next((o for o in others if o.request == replace(base.request, batch=1)), None)
    if one is None or base.request.batch == 1 or one.total > available:
        return
    a_row = (base.total - one.total) / (base.request.batch - 1)
    rows = min(int((available - one.total) / a_row) + 1, base.request.batch - 1) if a_row > 0 else 1
    yield MemoryChange(
        kind="batch",
        what=f"reduce the batch to {rows}",
        needed=one.total + int(a_row * (rows - 1)),
        assumes="each example needs the same memory" if rows > 1 else "",
    )


def _quantized(estimate: MemoryEstimate, anatomy: MemoryAnatomy) -> Iterator[MemoryChange]:
    computes = f"compute in {estimate.request.precision}"
    for bits in (8, 4):
        each = "" if bits == 8 else f" with a scale of {_SCALE_BYTES} bytes per {_GROUP} weights"
        yield MemoryChange(
            kind=f"int{bits}",
            what=f"quantize the weights of linear layers to int{bits}, {computes}",
            needed=as_quantized(estimate, anatomy, bits).total,
            assumes=f"only weights of linear layers{each}; one layer at a time is dequantized",
        )


def on_devices(estimate: MemoryEstimate, anatomy: MemoryAnatomy, devices: int) -> int:
    """Return the bytes that each of several devices needs at most if whole layers are split evenly over them: its
    share of what is held and one more layer, and all activations."""
    if devices == 1:
        return estimate.total
    held = estimate.weights + estimate.gradients + estimate.optimiser + estimate.cache
    layer = held * anatomy.block // max(anatomy.parameters, 1)
    return held // devices + layer + estimate.total - held


def _split_in_two(base: MemoryEstimate, narrow: MemoryEstimate, anatomy: MemoryAnatomy) -> Iterator[MemoryChange]:
    """Return the change for a model split by layers over two devices."""
    for estimate in dict.fromkeys((base, narrow)):
        precision = "" if estimate is base else f", in {estimate.request.precision}"
        yield MemoryChange(
            kind="two devices",
            what=f"split the layers over two such devices{precision}",
            needed=on_devices(estimate, anatomy, 2),
            assumes="whole layers are split evenly, and each device holds all activations",
        )


def _offloaded(estimate: MemoryEstimate, anatomy: MemoryAnatomy, where: str) -> MemoryChange:
    width = _BYTES[estimate.request.precision]
    there = width * (2 * anatomy.block + anatomy.beside)
    return MemoryChange(
        kind="offload",
        what=f"offload the layers to {where}, in {estimate.request.precision}",
        needed=estimate.total - estimate.weights + min(there, estimate.weights),
        assumes="the device holds two layers at a time, and all weights outside layers; this is slow",
    )


@dataclass(frozen=True, kw_only=True)
class AvailableMemory:
    """A device, or a size of memory: `available` bytes, None if unknown. `is_host` marks the host's own memory, from
    which nothing can be offloaded to the host and of which there is no second. `beside` is what `available` already
    leaves out of the device's memory, and `used` what programs hold there now, None if unknown."""

    name: str
    available: int | None
    why_unknown: str = ""
    is_host: bool = False
    beside: BesideModel | None = None
    used: int | None = None


@dataclass(frozen=True, kw_only=True)
class Fit:
    """The answer for one device: `fits` is None if unknown; `change` is the smallest one that is enough, None if none
    is needed or none is enough; `missing` is in bytes."""

    room: AvailableMemory
    needed: int
    fits: bool | None
    mode: str = ""
    missing: int = 0
    change: MemoryChange | None = None

    @property
    def is_tight(self) -> bool:
        """Whether so little is left that the error of an estimate decides."""
        factor = 1 / TIGHT
        if self.room.beside:
            factor = max(factor, self.room.beside.over_estimate.get(self.mode, (1.0, 1.0))[1])
        return bool(self.fits and self.room.available and self.needed * factor > self.room.available)

    @property
    def missing_now(self) -> int:
        """Bytes that are missing until other programs release theirs, 0 if none or unknown."""
        left = (self.room.available or 0) - (self.room.used or 0)
        return max(self.needed - left, 0) if self.fits else 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
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
        """The answer as a sentence."""
        needed = size_text(self.needed)
        if self.fits is None:
            return f"{self.room.name}: unknown: {needed} needed, {self.room.why_unknown}"
        there = f"{needed} needed, {size_text(self.room.available)} available"
        if self.fits:
            return f"{self.room.name}: {'fits tightly' if self.is_tight else 'fits'}: {there}"
        said = f"{self.room.name}: doesn't fit: {there}, {size_text(self.missing)} missing."
        if self.change is None:
            return f"{said} No known change makes it fit."
        return f"{said} Smallest change: {self.change.what} ({size_text(self.change.needed)})."


def fit(base: MemoryEstimate, others: Sequence[MemoryEstimate], anatomy: MemoryAnatomy, room: AvailableMemory) -> Fit:
    """Return whether `base` fits into `room`; `others` are estimates of the same model with something changed."""
    if not room.is_host:
        base, others = base.on_accelerator, [one.on_accelerator for one in others]
    if room.available is None:
        return Fit(room=room, needed=base.total, fits=None)
    if base.total <= room.available:
        return Fit(room=room, needed=base.total, fits=True, mode=base.request.mode)
    possible = changes(base, others, anatomy, room.available, on_host=room.is_host)
    enough = (one for one in possible if one.needed <= room.available)
    missing = base.total - room.available
    return Fit(room=room, needed=base.total, fits=False, missing=missing, change=next(enough, None))
