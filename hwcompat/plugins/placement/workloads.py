"""Workloads and placements as plain values, independent of models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from .placement_device import Figure


class WorkloadMode(StrEnum):
    """`together`: all are loaded at once, memory adds up. `in_turn`: one after the other, each with all memory."""

    TOGETHER = "together"
    IN_TURN = "in_turn"


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One workload. All mappings are by the name of a device.

    `memory_bytes` is its peak, `None` if unknown. `seconds` is its duration as a figure, with `None` for an unknown
    speed. `forbidden` has the reason why it may not run on a device, `doubtful` why it is unknown whether it works
    there: it is placed there only if no other device is left. `rank` prefers devices, the lowest first.
    """

    name: str
    memory_bytes: int | None
    seconds: Mapping[str, Figure] = field(default_factory=dict)
    forbidden: Mapping[str, str] = field(default_factory=dict)
    doubtful: Mapping[str, str] = field(default_factory=dict)
    rank: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """A workload on a device: its memory in bytes, its duration, and the reason for the choice."""

    workload: str
    device: str
    memory_bytes: int
    seconds: Figure
    reason: str


@dataclass(frozen=True, kw_only=True)
class Misfit:
    """A workload that fits no device, with the reason for each: how much is missing, or what forbids it."""

    workload: str
    reasons: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class DeviceLoad:
    """The workloads of one device in total. `memory_used` is the sum under `together`, else the largest; `seconds` is
    the sum of known durations, `unknown` counts the others."""

    device: str
    workloads: int
    memory_used: int
    memory_bytes: int | None
    seconds: float
    unknown: int


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The device of every workload.

    `makespan_s` is the longest known time of a device; `bound_s` is a lower bound for every placement of the same
    workloads. `method` is `exact` (optimal by branch and bound, or within the gap to the bound), or `greedy`.
    `cost` is that of one pass of each workload with a known time, None without prices. `remarks` are sentences.
    """

    mode: WorkloadMode
    method: str
    assignments: tuple[Assignment, ...]
    misfits: tuple[Misfit, ...]
    loads: tuple[DeviceLoad, ...]
    makespan_s: float
    bound_s: float
    remarks: tuple[str, ...] = ()
    cost: float | None = None

    @property
    def gap(self) -> float | None:
        """The distance of the makespan from the bound, as a share of the bound; None if no duration is known."""
        return self.makespan_s / self.bound_s - 1 if self.bound_s > 0 else None

    @property
    def unknown_speeds(self) -> int:
        """The number of assignments of unknown duration, which the makespan excludes."""
        return sum(one.seconds.value is None for one in self.assignments)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "mode": str(self.mode),
            "method": self.method,
            "makespan_s": self.makespan_s,
            "bound_s": self.bound_s,
            "gap": self.gap,
            "cost": self.cost,
            "unknown_speeds": self.unknown_speeds,
            "assignments": [
                vars(one) | {"seconds": one.seconds.value, "seconds_source": one.seconds.source or one.seconds.reason}
                for one in self.assignments
            ],
            "misfits": [{"workload": one.workload, "reasons": dict(one.reasons)} for one in self.misfits],
            "devices": [vars(one) for one in self.loads],
            "remarks": list(self.remarks),
        }
