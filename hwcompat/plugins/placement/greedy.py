"""A placement in a moment: the longest first, each where it ends earliest, then moved while that helps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .bound import bound_and_prices
from .problem import Problem
from .workloads import Mode

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

NOWHERE = -1
_MOVES = 20_000
_CAP = 1.03
"""How far above the bound a device may be filled while prices decide; what is left goes where it ends earliest."""


def greedy(problem: Problem) -> Array:
    """The column of each workload, `NOWHERE` where none is left with room. Deterministic.

    Three ways are tried: by time, by time at the prices that the bound found for devices, and by memory; the one that
    places more, with fewer doubts and a shorter makespan, is kept.
    """
    import numpy as np

    best = _Loads(problem).seconds_or(0.0)
    shortest = np.where(np.isfinite(best), best, np.inf).min(axis=1, initial=np.inf)
    shortest = np.where(np.isfinite(shortest), shortest, 0.0)
    places = problem.allowed.sum(axis=1)
    by_time, by_memory = np.lexsort((places, -shortest)), np.lexsort((-shortest, -problem.memory, places))
    bound, prices = bound_and_prices(_Loads(problem).seconds_or(0.0)[problem.allowed.any(axis=1)])
    ways: list[tuple[Array, Array | None]] = [(by_time, None), (by_time, prices)]
    if problem.mode is Mode.TOGETHER:
        ways.append((by_memory, None))
    found = []
    for order, priced in ways:
        loads = _Loads(problem)
        loads.fill(order, priced, bound * _CAP)
        loads.improve()
        found.append(loads)
    return min(found, key=lambda one: one.worth()).column


class _Loads:
    """Where everything is so far, with what is left of each device."""

    def __init__(self, problem: Problem) -> None:
        import numpy as np

        self.problem = problem
        self.column = np.full(len(problem.workloads), NOWHERE)
        self.seconds = np.zeros(len(problem.devices))
        self.left = problem.room.copy()
        self.adds_up = problem.mode is Mode.TOGETHER

    def seconds_or(self, unknown: float) -> Array:
        """Times of all pairs: `unknown` where nobody knows, infinity where it may not be."""
        import numpy as np

        own = self.problem.seconds
        return np.where(self.problem.allowed, np.where(np.isnan(own), unknown, own), np.inf)

    def fill(self, order: Array, prices: Array | None, most: float) -> None:
        """Place every workload in an order: where it ends earliest or, with prices, where it is cheapest of what ends
        before `most`."""
        import numpy as np

        times, problem = self.seconds_or(0.0), self.problem
        for row in order:
            room = problem.allowed[row] & (problem.memory[row] <= self.left)
            if room.any():
                room &= problem.doubts[row] == problem.doubts[row][room].min()
                ends = np.where(room, self.seconds + times[row], np.inf)
                if prices is not None and (early := ends <= most).any():
                    ends = np.where(early, np.where(early, times[row], 0.0) * prices, np.inf)
                ties = np.flatnonzero(ends <= ends.min() * (1 + 1e-12))
                self._put(int(row), int(ties[problem.rank[row, ties].argmin()]))

    def _put(self, row: int, column: int) -> None:
        self.column[row] = column
        self._count(row, column, 1)

    def _count(self, row: int, column: int, sign: int) -> None:
        value = self.problem.seconds[row, column]
        if value == value:
            self.seconds[column] += sign * value
        if self.adds_up:
            self.left[column] -= sign * self.problem.memory[row]

    def improve(self) -> None:
        """Move workloads off the longest device, and exchange them, while that makes the longest shorter."""
        if not len(self.column) or not len(self.seconds):
            return
        for _ in range(_MOVES):
            if not (self._move() or self._exchange()):
                return

    def _candidates(self, longest: int) -> tuple[Array, Array]:
        """The workloads of a device whose time there is known, and where each could go with no more doubts than
        now."""
        import numpy as np

        problem = self.problem
        rows = np.flatnonzero((self.column == longest) & ~np.isnan(problem.seconds[:, longest]))
        may = problem.allowed[rows] & (problem.doubts[rows] <= problem.doubts[rows, longest][:, None])
        may &= ~np.isnan(problem.seconds[rows])
        may[:, longest] = False
        return rows, may

    def _move(self) -> bool:
        import numpy as np

        longest = int(self.seconds.argmax())
        rows, may = self._candidates(longest)
        may = may & (self.problem.memory[rows][:, None] <= self.left)
        if not may.any():
            return False
        own = self.problem.seconds[rows, longest][:, None]
        after = np.maximum(self.seconds[None, :] + self.problem.seconds[rows], self.seconds[longest] - own)
        after = np.where(may, after, np.inf)
        row, column = divmod(int(after.argmin()), after.shape[1])
        if not after[row, column] < self.seconds[longest] * (1 - 1e-9):
            return False
        self._count(int(rows[row]), longest, -1)
        self._put(int(rows[row]), column)
        return True

    def _exchange(self) -> bool:
        """Exchange a workload of the longest device with one of another, the best of all pairs with the least loaded
        few."""
        import numpy as np

        problem, longest = self.problem, int(self.seconds.argmax())
        rows, may = self._candidates(longest)
        best: tuple[float, int, int, int] | None = None
        for other in np.argsort(self.seconds, kind="stable")[:4]:
            other = int(other)
            theirs, back = self._candidates(other)
            if other == longest or not len(rows) or not len(theirs):
                continue
            fits = may[:, other][:, None] & back[:, longest][None, :]
            difference = problem.memory[rows][:, None] - problem.memory[theirs][None, :]
            if self.adds_up:
                fits &= (difference <= self.left[other]) & (-difference <= self.left[longest])
            if not fits.any():
                continue
            mine_after = (
                self.seconds[longest]
                - problem.seconds[rows, longest][:, None]
                + problem.seconds[theirs, longest][None]
            )
            theirs_after = (
                self.seconds[other] + problem.seconds[rows, other][:, None] - problem.seconds[theirs, other][None]
            )
            after = np.where(fits, np.maximum(mine_after, theirs_after), np.inf)
            place = int(after.argmin())
            value = float(after.flat[place])
            if value < self.seconds[longest] * (1 - 1e-9) and (best is None or value < best[0]):
                row, their = divmod(place, after.shape[1])
                best = value, int(rows[row]), int(theirs[their]), other
        if best is None:
            return False
        _, row, their, other = best
        for moved, source, target in ((row, longest, other), (their, other, longest)):
            self._count(moved, source, -1)
            self._put(moved, target)
        return True

    def worth(self) -> tuple[int, int, float]:
        """Less is better: how many are nowhere, how many in doubt, the makespan."""
        placed = self.column != NOWHERE
        doubts = self.problem.doubts[placed.nonzero()[0], self.column[placed]].sum()
        return int((~placed).sum()), int(doubts), float(self.seconds.max(initial=0.0))
