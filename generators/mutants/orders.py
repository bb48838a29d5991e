"""Orders to the pytest plugin about each suite, its answer, and the result of the run."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from hwcompat.hardware.evidence.record import CheckLine, Outcome

from .model_anatomy import SMALLEST_CHANGE
from .mutation_operators import Mutant

ORDERS_VARIABLE = "HWCOMPAT_MUTANTS"
"""The environment variable with the path of the file that `write_orders` wrote."""
_CAUGHT = frozenset({"numerical_mismatch", "non_finite", "silent_offload"})
"""Error types of a check that compared and disagreed. Other failures don't count as detection of the break."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What to do with one suite.

    Of `mutants`, each `<operator>@<seed>`, the first is applied for which the model has a site and that moves its
    outputs by more than `least`, relative to their scale; none if the list is empty. The result is written to the
    file `report`. `on_cpu` runs the suite on the CPU whatever target its cell names, and `threads` is the number of
    torch's threads, 0 for its default.
    """

    mutants: tuple[str, ...] = ()
    report: str = ""
    least: float = SMALLEST_CHANGE
    on_cpu: bool = False
    threads: int = 0


def write_orders(path: Path, orders: Mapping[Path, Order]) -> None:
    """Write the order for each suite, by its file."""
    text = json.dumps({str(suite.resolve()): asdict(order) for suite, order in orders.items()})
    path.write_text(text, encoding="utf-8")


def read_orders(path: Path) -> dict[Path, Order]:
    """Return the orders by suite. Raises `ValueError` or `OSError` if the file is invalid."""
    read = json.loads(path.read_text(encoding="utf-8"))
    return {Path(suite): Order(**{**order, "mutants": tuple(order["mutants"])}) for suite, order in read.items()}


@dataclass(frozen=True, kw_only=True)
class Made:
    """The applied break, or None, as `mutant`. `change` is relative to the outputs' scale, infinite for NaN.

    `refused` says, by `<operator>@<seed>`, why others weren't applied: no site for them, or too little change.
    """

    mutant: Mutant | None = None
    change: float | None = None
    refused: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; an infinite change is the text `inf`, for JSON has no such number."""
        change = self.change
        return {
            "mutant": asdict(self.mutant) if self.mutant else None,
            "change": "inf" if change is not None and not math.isfinite(change) else change,
            "refused": dict(self.refused),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the object that `to_dict` wrote."""
        return cls(
            mutant=Mutant(**values["mutant"]) if values["mutant"] else None,
            change=None if values["change"] is None else float(values["change"]),
            refused=values["refused"],
        )

    def __str__(self) -> str:
        if self.mutant is None or self.change is None:
            return "; ".join(f"no {name}: {why}" for name, why in self.refused.items()) or "no model was loaded"
        return (
            f"{self.mutant.name}: {self.mutant.describe}; side {self.mutant.side}; {self.mutant.site}; "
            f"outputs changed by {self.change:.2g} of their scale"
        )


class MutantStatus(StrEnum):
    """The result of a run. Only `killed` (with a break) and `clean` (without one, every check passed) are good."""

    KILLED = "killed"
    SURVIVED = "survived"
    EQUIVALENT = "equivalent"
    CLEAN = "clean"
    RAISED = "raised"
    ERROR = "error"

    @property
    def is_good(self) -> bool:
        """Whether a good suite and a good harness give this."""
        return self in (MutantStatus.KILLED, MutantStatus.CLEAN)


@dataclass(frozen=True, kw_only=True)
class MutantJudgement:
    """The status, the first check that didn't pass, the error that it measured, and a message if one is needed."""

    status: MutantStatus
    caught_by: str = ""
    error: float | None = None
    message: str = ""


def judge_clean(checks: Sequence[str], lines: Sequence[CheckLine]) -> MutantJudgement:
    """Judge an unbroken suite: each of its checks must be there and pass.

    A check that the loaded model can't do on any target (`not_applicable`) may be skipped.
    """
    odd = [line for line in lines if not _is_fine(line)]
    missing = sorted(set(checks) - {line.check_name for line in lines})
    if not checks:
        return MutantJudgement(status=MutantStatus.ERROR, message="it has no checks")
    if missing:
        return MutantJudgement(status=MutantStatus.ERROR, message=f"no result for {', '.join(missing)}")
    if odd:
        return MutantJudgement(status=MutantStatus.RAISED, caught_by=odd[0].check_name, message=_message(odd[0]))
    return MutantJudgement(status=MutantStatus.CLEAN)


def _is_fine(line: CheckLine) -> bool:
    return line.outcome is Outcome.PASSED or line.error_type == "not_applicable"


def judge_mutant(checks: Sequence[str], lines: Sequence[CheckLine], made: Made, *, least: float) -> MutantJudgement:
    """Judge a suite whose model was broken: killed only if the break moved the outputs by more than `least` and a
    check compared and disagreed. Checks after the first failure needn't have run."""
    run = [line for line in lines if line.outcome is not Outcome.NOT_RUN]
    odd = sorted((one for one in run if not _is_fine(one)), key=lambda one: one.outcome is not Outcome.FAILED)
    first = odd[0] if odd else None
    if made.mutant is None or made.change is None:
        return MutantJudgement(status=MutantStatus.ERROR, message=f"the model was not broken: {made}")
    if not made.change > least:
        return MutantJudgement(
            status=MutantStatus.EQUIVALENT, message=f"the outputs changed by {made.change:.1e} of their scale"
        )
    if first is None:
        complete = {line.check_name for line in run} == set(checks)
        message = "every check passed" if complete else "some checks did not run, and none failed"
        return MutantJudgement(status=MutantStatus.SURVIVED if complete else MutantStatus.ERROR, message=message)
    caught = first.outcome is Outcome.FAILED and first.error_type in _CAUGHT
    return MutantJudgement(
        status=MutantStatus.KILLED if caught else MutantStatus.ERROR,
        caught_by=first.check_name,
        error=None if first.max_rel_error is None else float(first.max_rel_error),
        message="" if caught else _message(first),
    )


def _message(line: CheckLine) -> str:
    return f"{line.check_name} {line.outcome}: {line.error_message.partition(chr(10))[0]}"
