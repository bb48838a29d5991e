"""Whether a model fits into the memory of the devices here, as text and as JSON (`hwcompat report --model`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hwcompat.generators.compatibility.memory_fit import AvailableMemory, Fit, MemoryEstimate, fit, parse_size
from hwcompat.generators.models.basic_classification import classify
from hwcompat.generators.recipes.memory_answer import memory_answer
from hwcompat.generators.recipes.memory_variants import room_of
from hwcompat.hardware.backends.factory import resolve_target
from hwcompat.hardware.errors import ModelError
from hwcompat.hardware.plain_text import size_text

if TYPE_CHECKING:
    from hwcompat.hardware.expected_targets import TargetStatus

_NOT_COUNTED = (
    "the estimate counts allocations of torch's CPU allocator. Workspaces of other devices' kernels, and memory of "
    "the driver or runtime (a CUDA context, code), come on top"
)
_SHOWN = {"optimiser": "optimizer state", "cache": "KV cache"}


@dataclass(frozen=True, kw_only=True)
class MemoryCheck:
    """An estimate, and whether it fits on each device. Without an estimate `unknown` says why."""

    estimate: MemoryEstimate | None = None
    fits: tuple[Fit, ...] = ()
    notes: tuple[str, ...] = ()
    unknown: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "estimate": self.estimate.to_dict() if self.estimate else None,
            "devices": [one.to_dict() for one in self.fits],
            "notes": list(self.notes),
            "unknown": self.unknown,
            "lines": list(self.lines),
        }

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the estimate with its parts, then a line for each device."""
        if self.estimate is None:
            return (f"memory: unknown. {self.unknown}",)
        sizes = [f"{_SHOWN.get(name, name)} {size_text(size)}" for name, size in self.estimate.parts.items() if size]
        first = f"memory: {size_text(self.estimate.total)} for {self.estimate.request}: {', '.join(sizes)}"
        return (first, *(f"memory on {one.text}" for one in self.fits), *(f"memory note: {n}" for n in self.notes))


def memory_check(
    name: str, device: str | None, question: Mapping[str, Any], statuses: Sequence[TargetStatus]
) -> MemoryCheck:
    """Return the memory that `name` needs on `device`, or (None, `auto`) on each target of `statuses` that is here,
    and in each requested size.

    The `question` is how the model is to be run: mode, precision, batch and context, None for the usual value, and
    `sizes` of devices that aren't here. Raises `UsageError` for an invalid size.
    """
    asked = dict(question)
    rooms = [
        *_devices(device, statuses),
        *(AvailableMemory(name=f"a device of {size}", available=parse_size(size)) for size in asked.pop("sizes")),
    ]
    asked["least_room"] = min((room.available for room in rooms if room.available is not None), default=None)
    try:
        found = memory_answer(classify(name), asked)
    except ModelError as error:
        parts = [error.what + (f": {error.why}" if error.why else ""), error.fix]
        return MemoryCheck(unknown=" ".join(f"{part.rstrip('.')}." for part in parts if part))
    base, *others = found.estimates
    fits = tuple(fit(base, others, found.anatomy, room) for room in rooms)
    left_out = tuple(f"left out of the memory of {one.name}: {one.beside.text}" for one in rooms if one.beside)
    beside = () if found.anatomy.is_file else (*left_out, _NOT_COUNTED)
    return MemoryCheck(estimate=base, fits=fits, notes=(*found.notes, *beside))


def _devices(device: str | None, statuses: Iterable[TargetStatus]) -> Iterable[AvailableMemory]:
    """Return the devices in question: those of the named target, else all that may be here."""
    for status in statuses:
        named = device not in (None, "auto") and status.target == resolve_target(str(device)).name
        if not named and (device not in (None, "auto") or not status.expected):
            continue
        label = f"{status.target} ({status.device_name})" if status.device_name else status.target
        why = status.reason if not status.expected else "device memory unknown"
        yield room_of(status, name=label, why_unknown=why)
