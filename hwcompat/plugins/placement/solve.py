"""A placement problem as arrays, and its solvers.

Small problems are solved exactly by mixed integer programming (HiGHS through SciPy), all others by a heuristic, with
a lower bound of the makespan.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hwcompat.hardware.errors import UsageError, did_you_mean, echo
from hwcompat.hardware.plain_text import size_text

from .placement_device import Device, Estimate
from .workloads import Workload, WorkloadMode

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

_ROUNDS = 300
UNPLACED = -1
"""The column of a workload that is on no device."""


@dataclass(frozen=True, kw_only=True)
class PlacementProblem:
    """Rows are workloads, columns devices.

    `seconds` is NaN for an unknown speed, `allowed` says which pairs are possible, `doubts` counts the unknowns of
    each pair (its speed, also if it is estimated, whether it works), which are minimized. `memory` is by workload,
    `room` by device, both in bytes. `price` is the cost of a second by device, or None if only time counts.
    `reasons` has the reason against each impossible pair, by the two names.
    """

    mode: WorkloadMode
    workloads: tuple[Workload, ...]
    devices: tuple[Device, ...]
    seconds: Array
    allowed: Array
    doubts: Array
    rank: Array
    memory: Array
    room: Array
    reasons: Mapping[tuple[str, str], str]
    price: Array | None = None

    def cost_of(self, column: Array) -> float:
        """Return the cost of one pass of each placed workload with a known time; 0 without prices."""
        if self.price is None:
            return 0.0
        return sum(self.load_of(column, number) * float(price) for number, price in enumerate(self.price))

    def load_of(self, column: Array, device: int) -> float:
        """Return the known seconds of work on a device; `column` has the device of each workload."""
        import numpy as np

        return float(np.nansum(self.seconds[column == device, device]))

    def worth(self, column: Array) -> tuple[int, int, float, float]:
        """Return how good a placement is, less is better: unplaced workloads (`UNPLACED`), doubts, cost, makespan."""
        placed = (column >= 0).nonzero()[0]
        doubts = int(self.doubts[placed, column[placed]].sum())
        makespan = max((self.load_of(column, number) for number in range(len(self.devices))), default=0.0)
        return len(column) - len(placed), doubts, self.cost_of(column), makespan

    def has_room(self, column: Array) -> bool:
        """Whether the memory of all workloads fits, in whole bytes."""
        if self.mode is not WorkloadMode.TOGETHER:
            return True
        return all(self.memory[column == number].sum() <= room for number, room in enumerate(self.room))


def problem_of(
    workloads: Sequence[Workload],
    devices: Sequence[Device],
    *,
    mode: WorkloadMode,
    pinned: Mapping[str, str],
    forbidden: Sequence[tuple[str, str]],
    prices: Mapping[str, float] | None = None,
) -> PlacementProblem:
    """Return the arrays of a problem; `prices` are costs of an hour by device. Raises `UsageError` for unknown or
    repeated names, and for a forbidden pin."""
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
            is_unsure = isinstance(figure, Estimate) or bool(np.isnan(seconds[row, column]))
            doubts[row, column] = (device.name in workload.doubtful) + is_unsure
    return PlacementProblem(
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
        price=np.array([prices[one.name] / 3600 for one in devices]) if prices is not None else None,
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
            raise UsageError(f"two {kind}s have the name {echo(twice)}", fix="Give each a name of its own.")
    for workload, device in (*pinned.items(), *forbidden):
        for name, known, kind in ((workload, names, "workload"), (device, places, "device")):
            if name not in known:
                fix = did_you_mean(name, known) or f"Known: {', '.join(known)}."
                raise UsageError(f"there is no {kind} {echo(name)}", fix=fix)
    by_name = {one.name: one for one in workloads}
    for workload, device in pinned.items():
        why = "it is forbidden there" if (workload, device) in forbidden else by_name[workload].forbidden.get(device)
        if why:
            raise UsageError(f"{echo(workload)} is pinned to {echo(device)}", why=why, fix="Pin it elsewhere.")


def _why_not(workload: Workload, device: Device, pin: str | None, forbidden: Sequence[tuple[str, str]]) -> str:
    if (workload.name, device.name) in forbidden:
        return "forbidden by --forbid"
    if pin is not None and pin != device.name:
        return f"pinned to {pin}"
    if why := workload.forbidden.get(device.name):
        return why
    if workload.memory_bytes is None:
        return "memory need unknown"
    if device.room is None:
        return f"device memory of {device.name} unknown"
    missing = workload.memory_bytes - device.room
    if missing > 0:
        return (
            f"{size_text(missing)} missing: it needs {size_text(workload.memory_bytes)} of {size_text(device.room)}"
        )
    return ""


@dataclass(frozen=True, kw_only=True)
class Solved:
    """The column of each workload, and a lower bound of the makespan. `proved`: the solver ended, so that no
    placement has more workloads, or the same in less time."""

    column: Array
    bound_s: float
    proved: bool


def exact(problem: PlacementProblem, *, limit_s: float) -> Solved | None:
    """Solve in steps, each keeping the results before: most workloads and fewest doubts, then (with prices) the
    lowest cost, then the shortest makespan, then preferred devices. Return None if the solver found no solution
    within its time limit."""
    import numpy as np
    from scipy.optimize import Bounds, LinearConstraint, milp

    # Variables: one for each possible pair, one for each workload on no device, the makespan in `unit`s.
    rows, columns = np.nonzero(problem.allowed)
    pairs, count = len(rows), len(problem.workloads)
    known = np.nan_to_num(problem.seconds[rows, columns])
    unit = float(known.max(initial=0.0)) or 1.0
    constraints = _limits(problem, known / unit)
    doubts = problem.doubts[rows, columns]
    steps = [
        np.r_[doubts, np.full(count, 2 * count + 1.0), 0.0],
        np.r_[np.zeros(pairs + count), 1.0],
        np.r_[problem.rank[rows, columns], np.zeros(count + 1)],
    ]
    if problem.price is not None:
        paid = known * problem.price[columns]
        steps.insert(1, np.r_[paid / (paid.max(initial=0.0) or 1.0), np.zeros(count + 1)])
    judged = len(steps) - 1
    answers: list[Any] = []
    for costs in steps:
        with _without_output():
            answer = milp(
                costs,
                constraints=constraints,
                integrality=np.r_[np.ones(pairs + count), 0],
                bounds=Bounds(0, np.r_[np.ones(pairs + count), np.inf]),
                options={"time_limit": limit_s, "mip_rel_gap": 1e-6},
            )
        if answer.x is None:
            break
        most = answer.fun * (1 + 1e-6) + 1e-12 if answers else round(answer.fun) + 0.5
        constraints.append(LinearConstraint(costs[None, :], -np.inf, most))
        answers.append(answer)
    if not answers:
        return None
    column = np.full(count, UNPLACED)
    chosen = answers[-1].x[:pairs] > 0.5
    column[rows[chosen]] = columns[chosen]
    # A bound under the condition of the lowest cost isn't one for all placements.
    bound = (answers[1].mip_dual_bound or 0.0) * unit if len(answers) > 1 and problem.price is None else 0.0
    proved = len(answers) >= judged and all(one.status == 0 for one in answers[:judged])
    return Solved(column=column, bound_s=max(0.0, bound), proved=proved)


def _limits(problem: PlacementProblem, times: Array) -> list[Any]:
    """Return the constraints: one device or none for each workload, no device beyond the makespan, memory."""
    import numpy as np
    from scipy.optimize import LinearConstraint
    from scipy.sparse import coo_array, eye_array, hstack

    rows, columns = np.nonzero(problem.allowed)
    pairs, count, devices = len(rows), len(problem.workloads), len(problem.devices)
    pair = np.arange(pairs)

    def matrix(values: Array, of: Array, height: int) -> Any:
        return coo_array((values, (of, pair)), shape=(height, pairs))

    once = hstack([matrix(np.ones(pairs), rows, count), eye_array(count), coo_array((count, 1))])
    loads = hstack([matrix(times, columns, devices), coo_array((devices, count)), -np.ones((devices, 1))])
    limits = [LinearConstraint(once, 1, 1), LinearConstraint(loads, -np.inf, 0)]
    if problem.mode is WorkloadMode.TOGETHER:
        scale = float(problem.room.max(initial=0.0)) or 1.0
        memory = hstack([matrix(problem.memory[rows] / scale, columns, devices), coo_array((devices, count + 1))])
        limits.append(LinearConstraint(memory, -np.inf, problem.room / scale))
    return limits


@contextlib.contextmanager
def _without_output() -> Iterator[None]:
    """Discard what HiGHS prints directly to file descriptors (`HighsMipSolverData::…`)."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def bound_and_prices(seconds: Array) -> tuple[float, Array]:
    """Return a lower bound of the makespan in seconds, and the price of a second of each device at which it was
    found: high for devices in demand. `seconds` has a row for each workload and infinity for impossible pairs.

    For any weights of devices that add up to 1, the makespan is at least the sum over workloads of the least weighted
    time (the dual of the linear relaxation of scheduling on unrelated machines: Lenstra, Shmoys and Tardos 1990,
    https://doi.org/10.1007/BF01585745). Subgradient steps improve the weights; each step yields a bound. The least
    time of a single workload is also a bound. Memory is ignored: it can only increase the makespan.
    """
    import numpy as np

    if not seconds.size:
        return 0.0, np.zeros(seconds.shape[1])
    alone = float(seconds.min(axis=1).max(initial=0.0))
    count = seconds.shape[1]
    usable = np.isfinite(seconds).any(axis=0)
    weights = usable / max(int(usable.sum()), 1)
    best, prices = 0.0, weights
    costs = np.where(np.isfinite(seconds), seconds, 0.0)
    for step in range(_ROUNDS):
        weighted = np.where(np.isfinite(seconds), costs * weights, np.inf)
        chosen = weighted.argmin(axis=1)
        rows = np.arange(len(seconds))
        if (value := float(weighted[rows, chosen].sum())) > best:
            best, prices = value, weights
        loads = np.bincount(chosen, weights=costs[rows, chosen], minlength=count)
        if loads.max() <= best * (1 + 1e-9):
            break
        scale = loads.max() - loads.min() or 1.0
        weights = weights * np.exp((loads - loads.mean()) / scale * (0.5 / (1 + step / 20)))
        weights = np.where(usable, weights, 0.0)
        weights /= weights.sum()
    return max(alone, best), np.asarray(prices)


def greedy(problem: PlacementProblem) -> Array:
    """Return the column of each workload, `UNPLACED` if no device has memory for it. Deterministic.

    The longest workload comes first, each on the cheapest device at the prices of the bound. If memory adds up, the
    order by memory is tried too, and the better placement is kept.
    """
    import numpy as np

    seconds = np.where(problem.allowed, np.nan_to_num(problem.seconds), np.inf)
    bound, prices = bound_and_prices(seconds[problem.allowed.any(axis=1)])
    shortest = seconds.min(axis=1, initial=np.inf)
    shortest = np.where(np.isfinite(shortest), shortest, 0.0)
    places = problem.allowed.sum(axis=1)
    orders = [np.lexsort((places, -shortest))]
    if problem.mode is WorkloadMode.TOGETHER:
        orders.append(np.lexsort((-shortest, -problem.memory, places)))
    return min((_place_in_order(problem, order, seconds, prices, bound) for order in orders), key=problem.worth)


def _place_in_order(problem: PlacementProblem, order: Array, seconds: Array, prices: Array, bound: float) -> Array:
    """Place workloads in an order, among the devices with the fewest doubts: on the cheapest that ends before the
    bound, otherwise on the one that ends earliest; with prices, on the one with the lowest cost."""
    import numpy as np

    column = np.full(len(problem.workloads), UNPLACED)
    loads, left = np.zeros(len(problem.devices)), problem.room.copy()
    for row in order:
        may = problem.allowed[row] & (problem.memory[row] <= left)
        if not may.any():
            continue
        may &= problem.doubts[row] == problem.doubts[row][may].min()
        worth = ends = np.where(may, loads + seconds[row], np.inf)
        if (early := ends <= bound).any():
            worth = np.where(early, np.where(early, seconds[row], 0.0) * prices, np.inf)
        if problem.price is not None:
            worth = np.where(may, seconds[row] * problem.price, np.inf)
            worth = np.where(worth <= worth.min() * (1 + 1e-12), ends, np.inf)
        ties = np.flatnonzero(worth <= worth.min() * (1 + 1e-12))
        chosen = int(ties[problem.rank[row, ties].argmin()])
        column[row] = chosen
        loads[chosen] += seconds[row, chosen]
        if problem.mode is WorkloadMode.TOGETHER:
            left[chosen] -= problem.memory[row]
    return column
