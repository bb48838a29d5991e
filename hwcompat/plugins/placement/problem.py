"""A question of placement as arrays: which pairs may be, how long they take, and why the others may not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hardware.errors import UsageError, did_you_mean, echo
from hardware.plain_text import size_text

from .device import Device
from .workloads import Mode, Workload

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]


NOWHERE = -1
"""The column of a workload that is on no device."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Rows are workloads, columns devices.

    `seconds` is NaN where the speed isn't known, `allowed` says which pairs may be, `doubts` counts what isn't known
    of each (its speed, whether it works): the fewest are taken. `memory` is by workload, `room` by device, both in
    bytes. `reasons` says of each pair that may not be why, by the two names.
    """

    mode: Mode
    workloads: tuple[Workload, ...]
    devices: tuple[Device, ...]
    seconds: Array
    allowed: Array
    doubts: Array
    rank: Array
    memory: Array
    room: Array
    reasons: Mapping[tuple[str, str], str]

    def load_of(self, column: Array, device: int) -> float:
        """Seconds that a device is busy for, of what is known, where `column` says the device of each workload."""
        import numpy as np

        return float(np.nansum(self.seconds[column == device, device]))

    def worth(self, column: Array) -> tuple[int, int, float]:
        """What a placement is judged by, less is better: how many workloads are on no device (`NOWHERE`), how
        many doubts there are, the makespan."""
        placed = (column >= 0).nonzero()[0]
        doubts = int(self.doubts[placed, column[placed]].sum())
        makespan = max((self.load_of(column, number) for number in range(len(self.devices))), default=0.0)
        return len(column) - len(placed), doubts, makespan

    def has_room(self, column: Array) -> bool:
        """Whether all memory that adds up is there, in whole bytes."""
        if self.mode is not Mode.TOGETHER:
            return True
        return all(self.memory[column == number].sum() <= room for number, room in enumerate(self.room))


def problem_of(
    workloads: Sequence[Workload],
    devices: Sequence[Device],
    *,
    mode: Mode,
    pinned: Mapping[str, str],
    forbidden: Sequence[tuple[str, str]],
) -> Problem:
    """The arrays of a question. Raises `UsageError` for names that aren't there or stand twice, and for a pin that
    something forbids."""
    import numpy as np

    _check(workloads, devices, pinned, forbidden)
    shape = (len(workloads), len(devices))
    seconds, rank = np.full(shape, np.nan), np.zeros(shape)
    allowed, doubts = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=int)
    reasons: dict[tuple[str, str], str] = {}
    for row, workload in enumerate(workloads):
        for column, device in enumerate(devices):
            why = _why_not(workload, device, pinned.get(workload.name), forbidden)
            if why:
                reasons[workload.name, device.name] = why
                continue
            allowed[row, column] = True
            rank[row, column] = workload.rank.get(device.name, len(devices))
            figure = workload.seconds.get(device.name)
            if figure is not None and figure.value is not None:
                seconds[row, column] = figure.value
            doubts[row, column] = (device.name in workload.doubtful) + bool(np.isnan(seconds[row, column]))
    return Problem(
        mode=mode,
        workloads=tuple(workloads),
        devices=tuple(devices),
        seconds=seconds,
        allowed=allowed,
        doubts=doubts,
        rank=rank,
        memory=np.array([float(one.memory_bytes or 0) for one in workloads]),
        room=np.array([float(one.room or 0) for one in devices]),
        reasons=reasons,
    )


def _check(
    workloads: Sequence[Workload],
    devices: Sequence[Device],
    pinned: Mapping[str, str],
    forbidden: Sequence[tuple[str, str]],
) -> None:
    names, places = [one.name for one in workloads], [one.name for one in devices]
    for kind, every in (("workload", names), ("device", places)):
        if twice := next((one for one in every if every.count(one) > 1), ""):
            raise UsageError(f"{echo(twice)} is the name of two {kind}s", fix="Give each a name of its own.")
    for workload, device in (*pinned.items(), *forbidden):
        for name, known, kind in ((workload, names, "workload"), (device, places, "device")):
            if name not in known:
                fix = did_you_mean(name, known) or f"There are: {', '.join(known)}."
                raise UsageError(f"{echo(name)} is no {kind} here", fix=fix)
    by_name = {one.name: one for one in workloads}
    for workload, device in pinned.items():
        why = "it is forbidden there" if (workload, device) in forbidden else by_name[workload].forbidden.get(device)
        if why:
            raise UsageError(f"{echo(workload)} is pinned to {echo(device)}", why=why, fix="Pin it elsewhere.")


def _why_not(workload: Workload, device: Device, pin: str | None, forbidden: Sequence[tuple[str, str]]) -> str:
    if (workload.name, device.name) in forbidden:
        return "you forbid it there"
    if pin is not None and pin != device.name:
        return f"it is pinned to {pin}"
    if why := workload.forbidden.get(device.name):
        return why
    if workload.memory_bytes is None:
        return "memory need unknown"
    if device.room is None:
        return f"device memory of {device.name} unknown"
    missing = workload.memory_bytes - device.room
    if missing > 0:
        return (
            f"{size_text(missing)} missing: it takes {size_text(workload.memory_bytes)} of {size_text(device.room)}"
        )
    return ""
