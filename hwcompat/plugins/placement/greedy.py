"""A placement in a moment, and a bound that no placement can be under, both by the prices of devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .problem import Problem
from .workloads import Mode

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

NOWHERE = -1
_ROUNDS = 300


def bound_of(seconds: Array) -> float:
    """Seconds that the longest of some devices takes at least; `seconds` has a row for each workload and infinity
    where it may not be. 0.0 where there is nothing to do."""
    return bound_and_prices(seconds)[0]


def bound_and_prices(seconds: Array) -> tuple[float, Array]:
    """The bound, and the price of a second of each device at which it was found: dear where much wants to be.

    For any weights of devices that add up to 1, the makespan is at least the sum over workloads of the least weighted
    time (the dual of the linear relaxation of scheduling on unrelated machines: Lenstra, Shmoys and Tardos 1990,
    https://doi.org/10.1007/BF01585745). Weights are improved by subgradient steps; every one of them gives a bound.
    A workload alone takes its least time, too. Memory is left out: it can only make the makespan longer.
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


def greedy(problem: Problem) -> Array:
    """The column of each workload, `NOWHERE` where none is left with room. Deterministic.

    The longest goes first, each where it is cheapest at the prices of the bound. Where memory adds up, the largest
    goes first as well, and what places more, with fewer doubts and a shorter makespan, is kept.
    """
    import numpy as np

    seconds = np.where(problem.allowed, np.nan_to_num(problem.seconds), np.inf)
    bound, prices = bound_and_prices(seconds[problem.allowed.any(axis=1)])
    shortest = seconds.min(axis=1, initial=np.inf)
    shortest = np.where(np.isfinite(shortest), shortest, 0.0)
    places = problem.allowed.sum(axis=1)
    orders = [np.lexsort((places, -shortest))]
    if problem.mode is Mode.TOGETHER:
        orders.append(np.lexsort((-shortest, -problem.memory, places)))
    return min((_filled(problem, order, seconds, prices, bound) for order in orders), key=problem.worth)


def _filled(problem: Problem, order: Array, seconds: Array, prices: Array, bound: float) -> Array:
    """Place every workload in an order, among the devices in the fewest doubts: where it is cheapest of what ends
    before the bound, else where it ends earliest."""
    import numpy as np

    column = np.full(len(problem.workloads), NOWHERE)
    loads, left = np.zeros(len(problem.devices)), problem.room.copy()
    for row in order:
        may = problem.allowed[row] & (problem.memory[row] <= left)
        if not may.any():
            continue
        may &= problem.doubts[row] == problem.doubts[row][may].min()
        worth = ends = np.where(may, loads + seconds[row], np.inf)
        if (early := ends <= bound).any():
            worth = np.where(early, np.where(early, seconds[row], 0.0) * prices, np.inf)
        ties = np.flatnonzero(worth <= worth.min() * (1 + 1e-12))
        chosen = int(ties[problem.rank[row, ties].argmin()])
        column[row] = chosen
        loads[chosen] += seconds[row, chosen]
        if problem.mode is Mode.TOGETHER:
            left[chosen] -= problem.memory[row]
    return column
