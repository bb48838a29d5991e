"""What no placement can be under: a bound on the makespan, by duality."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

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
