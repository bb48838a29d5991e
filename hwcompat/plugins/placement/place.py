"""`place`: assign workloads to devices, exactly for small problems, else by a heuristic, with a bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hwcompat.hardware.plain_text import size_text
from hwcompat.hardware.software import is_installed

from .placement_device import Device, Figure
from .solve import UNPLACED, PlacementProblem, bound_and_prices, exact, greedy, problem_of
from .workloads import Assignment, DeviceLoad, Misfit, Placement, Workload, WorkloadMode

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

SMALL = 400
"""Pairs of workload and device up to which a problem is solved exactly, which takes a second or two."""

LIMIT_S = 5.0
"""The time limit of each step of the solver in seconds. An unproven result is reported with its bound."""


def place(
    workloads: Sequence[Workload],
    devices: Sequence[Device],
    *,
    mode: WorkloadMode = WorkloadMode.TOGETHER,
    pinned: Mapping[str, str] | None = None,
    forbidden: Sequence[tuple[str, str]] = (),
    prices: Mapping[str, float] | None = None,
    small: int = SMALL,
    limit_s: float = LIMIT_S,
) -> Placement:
    """Place as many workloads as possible on devices, in as short a time as possible.

    Criteria, in this order: the number that is placed; the fewest in doubt (unknown or estimated speed, or unknown
    whether it works); with `prices` (the cost of an hour by device) the cost of a pass of each; the makespan;
    preferred devices. `pinned` maps a workload to its device, `forbidden` lists pairs of workload and device.
    Problems of at most `small` pairs are solved exactly. The result is deterministic. Raises `UsageError`.
    """
    pins = pinned or {}
    problem = problem_of(workloads, devices, mode=mode, pinned=pins, forbidden=forbidden, prices=prices)
    has_solver = is_installed("scipy")
    solved = exact(problem, limit_s=limit_s) if has_solver and 0 < problem.allowed.sum() <= small else None
    column, method, remarks, bound = greedy(problem), "greedy", list[str](), 0.0
    # The solver's tolerance allows a sum of memory that is slightly too large.
    if (
        solved is not None
        and problem.has_room(solved.column)
        and (solved.proved or problem.worth(solved.column) <= problem.worth(column))
    ):
        column, method, bound = solved.column, "exact", solved.bound_s
        if not solved.proved:
            remarks.append("The solver reached its time limit before it proved that this is the best.")
    elif not has_solver:
        remarks.append("SciPy isn't installed, so small problems aren't solved exactly: pip install scipy")
    return _placement(problem, column, method, max(bound, _bound(problem, column)), remarks, pins)


def _bound(problem: PlacementProblem, column: Array) -> float:
    """Return the bound over workloads placed with a known time, on all devices with at most the same doubts."""
    import numpy as np

    rows = np.array([row for row, j in enumerate(column) if j != UNPLACED and not np.isnan(problem.seconds[row, j])])
    if not len(rows):
        return 0.0
    own = problem.doubts[rows, column[rows]][:, None]
    may = problem.allowed[rows] & ~np.isnan(problem.seconds[rows]) & (problem.doubts[rows] <= own)
    return bound_and_prices(np.where(may, problem.seconds[rows], np.inf))[0]


def _placement(
    problem: PlacementProblem, column: Array, method: str, bound: float, remarks: list[str], pinned: Mapping[str, str]
) -> Placement:
    loads = tuple(_load(problem, column, number) for number in range(len(problem.devices)))
    assignments: list[Assignment] = []
    misfits: list[Misfit] = []
    for row, workload in enumerate(problem.workloads):
        if column[row] == UNPLACED:
            misfits.append(Misfit(workload=workload.name, reasons=_reasons(problem, loads, row)))
            continue
        device = problem.devices[column[row]]
        assignments.append(
            Assignment(
                workload=workload.name,
                device=device.name,
                memory_bytes=workload.memory_bytes or 0,
                seconds=workload.seconds.get(device.name, Figure(reason="not measured there")),
                reason="pinned there" if workload.name in pinned else _reason_for(problem, column, row),
            )
        )
    makespan = max((one.seconds for one in loads), default=0.0)
    if unknown := sum(one.seconds.value is None for one in assignments):
        remarks.append(f"Duration unknown for {unknown} workload(s); totals exclude them.")
    if misfits and method == "greedy":
        remarks.append("Placed by a heuristic; an unplaced workload may still fit.")
    return Placement(
        mode=problem.mode,
        method=method,
        assignments=tuple(assignments),
        misfits=tuple(misfits),
        loads=loads,
        makespan_s=makespan,
        bound_s=min(bound, makespan),
        remarks=tuple(remarks),
        cost=None if problem.price is None else problem.cost_of(column),
    )


def _load(problem: PlacementProblem, column: Array, number: int) -> DeviceLoad:
    import numpy as np

    own = column == number
    memory = problem.memory[own]
    used = memory.sum() if problem.mode is WorkloadMode.TOGETHER else memory.max(initial=0.0)
    return DeviceLoad(
        device=problem.devices[number].name,
        workloads=int(own.sum()),
        memory_used=int(used),
        memory_bytes=problem.devices[number].room,
        seconds=problem.load_of(column, number),
        unknown=int(np.isnan(problem.seconds[own, number]).sum()),
    )


def _reasons(problem: PlacementProblem, loads: Sequence[DeviceLoad], row: int) -> dict[str, str]:
    """Return why a workload is unplaced, by device: why the device is impossible, or how much memory is missing."""
    workload = problem.workloads[row]
    found = {}
    for load in loads:
        why = problem.reasons.get((workload.name, load.device), "")
        if not why:
            left = (load.memory_bytes or 0) - load.memory_used
            missing = max((workload.memory_bytes or 0) - left, 0)
            why = f"{size_text(missing)} missing: {load.workloads} other(s) leave {size_text(left)}"
        found[load.device] = why
    return found


def _reason_for(problem: PlacementProblem, column: Array, row: int) -> str:
    workload, chosen = problem.workloads[row], int(column[row])
    device = problem.devices[chosen].name
    others = [number for number in problem.allowed[row].nonzero()[0] if number != chosen]
    if not others:
        return "no other device is eligible"
    if device in workload.doubtful:
        return f"in doubt: {workload.doubtful[device]}"
    others = [number for number in others if problem.doubts[row, number] <= problem.doubts[row, chosen]]
    if not others:
        return "the surest: other devices are in doubt, or of unknown speed"
    own = problem.seconds[row, chosen]
    if problem.price is not None and own == own:
        paid = problem.seconds[row, others] * problem.price[others]
        known = [one for one in paid if one == one]
        cheapest = all(own * problem.price[chosen] <= one for one in known)
        return "lowest cost" if cheapest else "a cheaper device has no room"
    if own != own:
        return "by memory and rules only: speed unknown"
    known = [one for one in problem.seconds[row, others] if one == one]
    if all(own <= one for one in known):
        return "fastest" if known else "the only device with a known speed"
    return "a faster device has more work"
