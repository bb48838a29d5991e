"""Rows for the pages about targets: the evidence of each cell of a target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hardware.backends.factory import backend_class
from hardware.cell import Cell
from hardware.evidence.record import CheckLine, Outcome
from hardware.evidence.shipped_evidence import last_checks
from hardware.target import Target


@dataclass(frozen=True, kw_only=True)
class Row:
    """The results of one cell in the last run of each of its checks.

    `error` is the largest error of all comparing checks, relative to the output's scale. `nearest` and `allowed` are
    error and tolerance of the check with the largest ratio of both. `native` counts operators in the execution proof,
    `offloaded` operators that must not run on the host. `conditions` are those of the proof. `failed` is the first
    check that didn't pass.
    """

    cell: Cell
    passed: int
    checks: int
    error: float | None
    nearest: float | None
    allowed: float | None
    native: int
    offloaded: int
    dtypes: tuple[str, ...]
    conditions: Mapping[str, str]
    failed: CheckLine | None

    @property
    def works(self) -> bool:
        """Whether every check passed and no operator ran on the host without permission."""
        return self.passed == self.checks and not self.offloaded and self.native > 0


def rows_of(lines: Sequence[CheckLine], target: Target) -> Iterator[Row]:
    """Yield a row for each cell of a target, sorted by id; of all variants if the target names none."""
    for name, checks in last_checks(lines, target).items():
        yield _row(Cell.parse(name), list(checks.values()), checks["runs_natively"])


def _row(cell: Cell, checks: Sequence[CheckLine], proof: CheckLine) -> Row:
    allowed_there = backend_class(cell.target.name).HOST_ALLOWED
    failed = [one for one in checks if one.outcome is not Outcome.PASSED]
    compared = [(one.max_rel_error, one.tolerance) for one in checks if one.max_rel_error is not None]
    held = [(error, limit) for error, limit in compared if limit]
    nearest, allowed = max(held, key=lambda pair: pair[0] / pair[1], default=(None, None))
    return Row(
        cell=cell,
        passed=len(checks) - len(failed),
        checks=len(checks),
        error=max((error for error, _ in compared), default=None),
        nearest=nearest,
        allowed=allowed,
        native=sum(proof.native_ops.values()),
        offloaded=sum(n for name, n in proof.offloaded_ops.items() if name not in allowed_there),
        dtypes=tuple(sorted({one.actual_dtype for one in checks if one.actual_dtype})),
        conditions=proof.conditions,
        failed=failed[0] if failed else None,
    )
