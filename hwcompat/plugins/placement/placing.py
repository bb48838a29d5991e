"""`place`: workloads onto devices, exactly where that can be done, else by a heuristic, with a bound beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hardware.plain_text import size_text

from .device import Device, Figure
from .exact import exact, is_here
from .greedy import NOWHERE, bound_of, greedy
from .problem import Problem, problem_of, room_of
from .workloads import Assignment, Load, Misfit, Mode, Placement, Workload

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

SMALL = 400
"""Pairs of workload and device up to which the best placement is looked for: a second or two."""

LIMIT_S = 5.0
"""Seconds for each step of the solver. What it hasn't proved by then is shown with its bound."""


def place(
    workloads: Sequence[Workload],
    devices: Sequence[Device],
    *,
    mode: Mode = Mode.TOGETHER,
    pinned: Mapping[str, str] | None = None,
    forbidden: Sequence[tuple[str, str]] = (),
    small: int = SMALL,
    limit_s: float = LIMIT_S,
) -> Placement:
    """Put as many workloads as possible on devices, in as short a time as possible.

    What counts, in this order: how many are placed; how few of them in doubt (unknown speed, or unknown
    device); the makespan; the devices that are preferred. `pinned` says for a workload its device,
    `forbidden` lists pairs of workload and device. Questions of at most `small` pairs are solved exactly. The same
    question gives the same placement. Raises `UsageError`.
    """
    problem = problem_of(workloads, devices, mode=mode, pinned=pinned or {}, forbidden=forbidden)
    solved = exact(problem, limit_s=limit_s) if 0 < problem.allowed.sum() <= small else None
    rough = greedy(problem)
    if solved is not None and not problem.has_room(solved.column):
        solved = None  # the solver takes a sum for kept that is over by its own tolerance
    if solved is not None and (solved.proved or problem.worth(solved.column) <= problem.worth(rough)):
        method, column = "exact", solved.column
        remarks = () if solved.proved else ("The solver's time was up before it had proved this to be the best.",)
    else:
        missing = (
            "" if is_here() else "SciPy, which solves small questions exactly, isn't installed: pip install scipy"
        )
        method, column, remarks = "greedy", rough, (missing,) if missing else ()
    by_duality = _bound(problem, column)
    own = solved.bound_s if solved is not None and method == "exact" else 0.0
    return _placement(problem, column, method, max(own, by_duality), remarks, pinned or {})


def _bound(problem: Problem, column: Array) -> float:
    """Of the workloads that are placed in a known time, over all devices that they may be on as surely."""
    import numpy as np

    rows = np.array([row for row, j in enumerate(column) if j != NOWHERE and not np.isnan(problem.seconds[row, j])])
    if not len(rows):
        return 0.0
    own = problem.doubts[rows, column[rows]][:, None]
    may = problem.allowed[rows] & ~np.isnan(problem.seconds[rows]) & (problem.doubts[rows] <= own)
    return bound_of(np.where(may, problem.seconds[rows], np.inf))


def _placement(
    problem: Problem,
    column: Array,
    method: str,
    bound: float,
    remarks: Sequence[str],
    pinned: Mapping[str, str],
) -> Placement:
    assignments: list[Assignment] = []
    misfits: list[Misfit] = []
    for row, workload in enumerate(problem.workloads):
        if column[row] == NOWHERE:
            misfits.append(Misfit(workload=workload.name, reasons=_reasons(problem, column, row)))
            continue
        device = problem.devices[column[row]]
        assignments.append(
            Assignment(
                workload=workload.name,
                device=device.name,
                memory_bytes=workload.memory_bytes or 0,
                seconds=workload.seconds.get(device.name, Figure(reason="not measured there")),
                reason=_why(problem, column, row, pinned),
            )
        )
    loads = tuple(_load(problem, column, number) for number in range(len(problem.devices)))
    makespan = max((one.seconds for one in loads), default=0.0)
    told = list(remarks)
    if unknown := sum(one.seconds.value is None for one in assignments):
        told.append(f"Duration unknown for {unknown} workload(s); totals exclude them.")
    if misfits and method == "greedy":
        told.append("Placed by a heuristic; a workload left out may still fit.")
    return Placement(
        mode=problem.mode,
        method=method,
        assignments=tuple(assignments),
        misfits=tuple(misfits),
        loads=loads,
        makespan_s=makespan,
        bound_s=min(bound, makespan),
        remarks=tuple(told),
    )


def _load(problem: Problem, column: Array, number: int) -> Load:
    import numpy as np

    own = column == number
    memory = problem.memory[own]
    used = memory.sum() if problem.mode is Mode.TOGETHER else memory.max(initial=0.0)
    return Load(
        device=problem.devices[number].name,
        workloads=int(own.sum()),
        memory_used=int(used),
        memory_bytes=room_of(problem.devices[number]),
        seconds=problem.load_of(column, number),
        unknown=int(np.isnan(problem.seconds[own, number]).sum()),
    )


def _reasons(problem: Problem, column: Array, row: int) -> dict[str, str]:
    """Why a workload is on no device: what rules each out, or what others took."""
    workload = problem.workloads[row]
    found = {}
    for number, device in enumerate(problem.devices):
        why = problem.reasons.get((workload.name, device.name), "")
        if not why:
            load = _load(problem, column, number)
            left = int(problem.room[number]) - load.memory_used
            missing = (workload.memory_bytes or 0) - left
            why = f"{size_text(max(missing, 0))} missing beside {load.workloads} other(s): {size_text(left)} are left"
        found[device.name] = why
    return found


def _why(problem: Problem, column: Array, row: int, pinned: Mapping[str, str]) -> str:
    workload, chosen = problem.workloads[row], int(column[row])
    device = problem.devices[chosen].name
    if workload.name in pinned:
        return "pinned there"
    others = [number for number in problem.allowed[row].nonzero()[0] if number != chosen]
    if not others:
        return "no other device is eligible"
    if device in workload.doubtful:
        return f"in doubt: {workload.doubtful[device]}"
    own = problem.seconds[row, chosen]
    if own != own:
        return "by memory and rules alone: its speed isn't known"
    known = [one for one in problem.seconds[row, others] if one == one]
    if all(own <= one for one in known):
        return "fastest there" if known else "the only one whose speed is known"
    return "another is faster, and has more to do"
