"""What came of one suite that was run with a break, or without one. Pure: lines of evidence in, a judgement out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from hardware.evidence.record import CheckLine, Outcome

from .made import Made

_CAUGHT = frozenset({"numerical_mismatch", "non_finite", "silent_offload"})
"""Error types of a check that looked and disagreed. Anything else that fails says nothing about the break."""


class Status(StrEnum):
    """How a run ended. Only `killed` (with a break) and `clean` (without one, every check passed) are good."""

    KILLED = "killed"
    SURVIVED = "survived"
    EQUIVALENT = "equivalent"
    CLEAN = "clean"
    RAISED = "raised"
    ERROR = "error"

    @property
    def is_good(self) -> bool:
        """Whether this is what a good suite and a good harness give."""
        return self in (Status.KILLED, Status.CLEAN)


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The status, the check that didn't pass first, the error that it measured, and a message where one is needed."""

    status: Status
    caught_by: str = ""
    error: float | None = None
    message: str = ""


def judge_clean(checks: Sequence[str], lines: Sequence[CheckLine]) -> Judgement:
    """A suite that nothing was done to: every one of its checks has to be there and to pass.

    A check that the loaded model can't do on any target (`not_applicable`) may be skipped.
    """
    odd = [line for line in lines if not _is_fine(line)]
    missing = sorted(set(checks) - {line.check_name for line in lines})
    if not checks:
        return Judgement(status=Status.ERROR, message="it holds no check")
    if missing:
        return Judgement(status=Status.ERROR, message=f"nothing is known of {', '.join(missing)}")
    if odd:
        return Judgement(status=Status.RAISED, caught_by=odd[0].check_name, message=_said(odd[0]))
    return Judgement(status=Status.CLEAN)


def _is_fine(line: CheckLine) -> bool:
    return line.outcome is Outcome.PASSED or line.error_type == "not_applicable"


def judge_mutant(checks: Sequence[str], lines: Sequence[CheckLine], made: Made, *, least: float) -> Judgement:
    """A suite whose model was broken: killed only if the break moved the outputs by more than `least` and a check
    looked and disagreed. Checks behind the first that fails needn't have run."""
    run = [line for line in lines if line.outcome is not Outcome.NOT_RUN]
    odd = sorted((one for one in run if not _is_fine(one)), key=lambda one: one.outcome is not Outcome.FAILED)
    first = odd[0] if odd else None
    if made.mutant is None or made.change is None:
        return Judgement(status=Status.ERROR, message=f"nothing was broken: {made}")
    if not made.change > least:
        return Judgement(status=Status.EQUIVALENT, message=f"the outputs changed by {made.change:.1e} of their scale")
    if first is None:
        complete = {line.check_name for line in run} == set(checks)
        message = "every check passed" if complete else "not every check ran, and none failed"
        return Judgement(status=Status.SURVIVED if complete else Status.ERROR, message=message)
    caught = first.outcome is Outcome.FAILED and first.error_type in _CAUGHT
    return Judgement(
        status=Status.KILLED if caught else Status.ERROR,
        caught_by=first.check_name,
        error=None if first.max_rel_error is None else float(first.max_rel_error),
        message="" if caught else _said(first),
    )


def _said(line: CheckLine) -> str:
    return f"{line.check_name} {line.outcome}: {line.error_message.partition(chr(10))[0]}"
