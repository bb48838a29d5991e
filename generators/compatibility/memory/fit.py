"""Whether an estimate fits on a device, how much is missing, and the smallest change that makes it fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hardware.plain_text import size_text

from .changes import Change, changes
from .estimate import Anatomy, MemoryEstimate

TIGHT = 0.95
"""From this share of a device's memory on an estimate's own error decides: 5 % of it was the 95th percentile that was
asked of estimates. docs/MEMORY.md has what was measured."""


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
    change: Change | None = None

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


def fit(base: MemoryEstimate, others: Sequence[MemoryEstimate], anatomy: Anatomy, room: Room) -> Fit:
    """Whether `base` fits into `room`; `others` are estimates of the same model with something changed."""
    if room.available is None:
        return Fit(room=room, needed=base.total, fits=None)
    if base.total <= room.available:
        return Fit(room=room, needed=base.total, fits=True)
    possible = changes(base, others, anatomy, room.available, on_host=room.is_host)
    enough = (one for one in possible if one.needed <= room.available)
    missing = base.total - room.available
    return Fit(room=room, needed=base.total, fits=False, missing=missing, change=next(enough, None))
