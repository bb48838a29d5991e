"""The best placement, by mixed integer programming (HiGHS through SciPy), for questions that are small enough."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hardware.software import is_installed

from .greedy import NOWHERE
from .problem import Problem
from .workloads import Mode

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, kw_only=True)
class Solved:
    """The column of each workload, and what the makespan can't be under. `proved` says that the solver came to its
    end: nothing places more, or the same in less time."""

    column: Array
    bound_s: float
    proved: bool


def is_here() -> bool:
    """Whether SciPy, which has the solver, is installed."""
    return is_installed("scipy")


def exact(problem: Problem, *, limit_s: float) -> Solved | None:
    """Solve in three steps, each holding what came before: most workloads and fewest doubts, then the shortest
    makespan, then the devices that are preferred. None where the solver found nothing in its time, or isn't here."""
    if not is_here():
        return None
    model = _Model(problem)
    first = model.solve(model.count_costs(), limit_s)
    if first is None:
        return None
    model.hold(model.count_costs(), round(first.value) + 0.5)
    second = model.solve(model.time_costs(), limit_s)
    if second is None:
        return Solved(column=model.columns(first.x), bound_s=0.0, proved=False)
    model.hold(model.time_costs(), second.value * (1 + 1e-6) + 1e-12)
    third = model.solve(model.rank_costs(), limit_s)
    best = third or second
    return Solved(
        column=model.columns(best.x),
        bound_s=max(0.0, second.bound) * model.unit,
        proved=first.proved and second.proved,
    )


@contextlib.contextmanager
def _unheard() -> Iterator[None]:
    """What HiGHS prints of itself past Python (`HighsMipSolverData::…`) must not stand in what a command prints."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


@dataclass(frozen=True, kw_only=True)
class _Solution:
    x: Array
    value: float
    bound: float
    proved: bool


class _Model:
    """Variables: one for each pair that may be, one for each workload that is nowhere, the makespan in `unit`s."""

    def __init__(self, problem: Problem) -> None:
        import numpy as np
        from scipy.optimize import LinearConstraint
        from scipy.sparse import coo_array

        self.problem = problem
        self.rows, self.cols = np.nonzero(problem.allowed)
        self.pairs, self.count = len(self.rows), len(problem.workloads)
        known = problem.seconds[self.rows, self.cols]
        self.unit = float(np.nanmax(known, initial=0.0)) or 1.0
        self.times = np.where(np.isnan(known), 0.0, known) / self.unit
        size = self.pairs + self.count + 1
        pair = np.arange(self.pairs)
        once = coo_array(
            (
                np.ones(self.pairs + self.count),
                (np.r_[self.rows, np.arange(self.count)], np.r_[pair, self.pairs + np.arange(self.count)]),
            ),
            shape=(self.count, size),
        )
        devices = len(problem.devices)
        loads = coo_array(
            (
                np.r_[self.times, -np.ones(devices)],
                (np.r_[self.cols, np.arange(devices)], np.r_[pair, np.full(devices, size - 1)]),
            ),
            shape=(devices, size),
        )
        self.constraints = [LinearConstraint(once, 1, 1), LinearConstraint(loads, -np.inf, 0)]
        if problem.mode is Mode.TOGETHER:
            scale = float(problem.room.max(initial=0.0)) or 1.0
            memory = coo_array((problem.memory[self.rows] / scale, (self.cols, pair)), shape=(devices, size))
            self.constraints.append(LinearConstraint(memory, -np.inf, problem.room / scale))
        self.size = size

    def count_costs(self) -> Array:
        import numpy as np

        doubts = self.problem.doubts[self.rows, self.cols].astype(float)
        costs: Array = np.r_[doubts, np.full(self.count, 2 * self.count + 1.0), 0.0]
        return costs

    def time_costs(self) -> Array:
        import numpy as np

        costs: Array = np.r_[np.zeros(self.size - 1), 1.0]
        return costs

    def rank_costs(self) -> Array:
        import numpy as np

        costs: Array = np.r_[self.problem.rank[self.rows, self.cols], np.zeros(self.count + 1)]
        return costs

    def hold(self, costs: Array, most: float) -> None:
        """From now on these costs are at most so much."""
        from scipy.optimize import LinearConstraint

        self.constraints.append(LinearConstraint(costs[None, :], -float("inf"), most))

    def solve(self, costs: Array, limit_s: float) -> _Solution | None:
        import numpy as np
        from scipy.optimize import Bounds, milp

        integer = np.r_[np.ones(self.pairs + self.count), 0]
        bounds = Bounds(np.zeros(self.size), np.r_[np.ones(self.pairs + self.count), np.inf])
        options = {"time_limit": limit_s, "mip_rel_gap": 1e-6}
        with _unheard():
            found = milp(costs, constraints=self.constraints, integrality=integer, bounds=bounds, options=options)
        if found.x is None:
            return None
        bound = found.mip_dual_bound if found.mip_dual_bound is not None else 0.0
        return _Solution(x=found.x, value=float(found.fun), bound=float(bound), proved=found.status == 0)

    def columns(self, x: Array) -> Array:
        import numpy as np

        column = np.full(self.count, NOWHERE)
        chosen = x[: self.pairs] > 0.5
        column[self.rows[chosen]] = self.cols[chosen]
        return column
