"""What a report's page shows of cells and of what wasn't passed: words for values, no conclusions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from generators.compatibility.verdict import Verdict
from hardware.evidence.record import CheckLine, Outcome, RunLine

from ..cells import CellReport
from ..diagnosis import command_again
from ..report import Report
from ..wording import FAULT_WORDS, explained, texts
from .check_view import CheckView, check_view
from .history_view import CellHistories, Fared
from .page import Facts


@dataclass(frozen=True, kw_only=True)
class CellView:
    """One cell with its checks. `verdict` is None where lines are there that nobody concluded from.

    `against` says how the verdict lies to the prediction, `facts` are in the order in which they are read. `machines`
    are those that its lines are of, `past` its earlier runs.
    """

    id: str
    verdict: Verdict | None
    basis: str
    predicted: Verdict | None
    against: str
    outcomes: Mapping[str, int]
    because: tuple[str, ...]
    asked: str
    ran_on: str
    subjects: str
    facts: Facts
    command: str
    checks: tuple[CheckView, ...]
    machines: tuple[str, ...] = ()
    past: Sequence[Fared] = ()

    @property
    def level(self) -> str:
        """The verdict's level; empty where there is no verdict."""
        return str(self.verdict.level) if self.verdict else ""

    @property
    def is_open(self) -> bool:
        """Whether the cell is shown open: where something failed or has no line."""
        return any(check.is_failure or check.outcome == Outcome.NOT_RUN for check in self.checks)


@dataclass(frozen=True, kw_only=True)
class NotPassed:
    """Checks that are no pass for one reason."""

    outcome: str
    reason: str
    checks: tuple[str, ...]
    cells: tuple[str, ...]


def cell_views(report: Report) -> tuple[CellView, ...]:
    """The cells of a report, and those whose lines it holds without a verdict."""
    accepted = report.project.accepted if report.project else {}
    histories = CellHistories(report.history)
    machine_of = {run.run_id: run.machine for run in report.history.runs}
    cells = [
        replace(
            _cell(cell, report.runs, accepted),
            machines=tuple(filter(None, dict.fromkeys(machine_of.get(line.run_id, "") for line in cell.lines))),
            past=histories.of(cell.id),
        )
        for cell in report.cells
    ]
    known = {cell.id for cell in report.cells}
    others: dict[str, list[CheckLine]] = {}
    for line in report.checks:
        if line.cell_id not in known:
            others.setdefault(line.cell_id, []).append(line)
    return (*cells, *(_unconcluded(id_, lines, accepted) for id_, lines in others.items()))


def _cell(cell: CellReport, runs: Sequence[RunLine], accepted: Mapping[str, str]) -> CellView:
    verdict, predicted = cell.verdict, cell.predicted
    checks = tuple(check_view(line, accepted.get(line.evidence_id, "")) for line in cell.lines)
    device = f" ({cell.device})" if cell.device else ""
    said = " ".join(texts(verdict.reasons))
    because, conditions = explained(verdict)
    substituted = dict.fromkeys(line.substitution_reason for line in cell.lines)
    facts = [
        *([("fault", FAULT_WORDS[verdict.fault])] if verdict.fault else []),
        *(("because", reason) for reason in because),
        *(("condition", condition) for condition in conditions),
        ("predicted before the run", cell.prediction or "nothing was stored"),
        ("weights", cell.subjects or "–"),
        ("asked for", cell.requested or cell.id.split("/")[2]),
        ("ran on", f"{cell.actual}{device}" if cell.actual else "nothing ran"),
        *(("substituted", text) for text in substituted if text and text not in said),
        *_choice(cell.id, runs),
    ]
    return CellView(
        id=cell.id,
        verdict=verdict,
        basis=cell.basis,
        predicted=predicted,
        against=_against(predicted, verdict),
        outcomes=_counted(checks),
        because=because,
        asked=cell.requested,
        ran_on=cell.actual,
        subjects=cell.subjects,
        facts=facts,
        command=command_again(cell.lines[0]) if cell.lines else "",
        checks=checks,
    )


def _unconcluded(id_: str, lines: Sequence[CheckLine], accepted: Mapping[str, str]) -> CellView:
    checks = tuple(check_view(line, accepted.get(line.evidence_id, "")) for line in lines)
    asked, ran_on, subjects = (
        ", ".join(dict.fromkeys(text for text in texts if text))
        for texts in (
            (line.requested_target for line in lines),
            (line.actual_target for line in lines),
            (line.subject for line in lines),
        )
    )
    return CellView(
        id=id_,
        verdict=None,
        basis="",
        predicted=None,
        against="",
        outcomes=_counted(checks),
        because=(),
        asked=asked,
        ran_on=ran_on,
        subjects=subjects,
        facts=[("weights", subjects or "–"), ("asked for", asked), ("ran on", ran_on or "nothing ran")],
        command=command_again(lines[0]),
        checks=checks,
    )


def _against(predicted: Verdict | None, verdict: Verdict) -> str:
    if predicted is None or predicted.level.rank is None or verdict.level.rank is None:
        return ""
    if predicted.level is verdict.level:
        return "as predicted"
    return "better than predicted" if verdict.level.rank > predicted.level.rank else "worse than predicted"


def _choice(cell_id: str, runs: Sequence[RunLine]) -> Iterator[tuple[str, str]]:
    """What `auto` took and what it passed over, as the plan records it."""
    for run in runs:
        for planned in run.plan:
            if planned.cell_id != cell_id or planned.selection is None:
                continue
            steps = planned.selection.get("steps")
            for place, step in enumerate(steps if isinstance(steps, list) else ()):
                if isinstance(step, Mapping):
                    label = "chosen by auto" if place == len(steps or ()) - 1 else "passed over"
                    yield label, f"{step.get('target')}: {step.get('reason')}"


def _counted(checks: Sequence[CheckView]) -> Mapping[str, int]:
    names = [check.outcome for check in checks]
    return {str(outcome): names.count(outcome) for outcome in Outcome if outcome in names}


def not_passed(cells: Sequence[CellView]) -> tuple[NotPassed, ...]:
    """All checks that are no pass, by outcome and reason: failures first, then what was not proven."""
    grouped: dict[tuple[str, str], tuple[list[str], list[str]]] = {}
    for cell in cells:
        for check in cell.checks:
            if check.outcome != Outcome.PASSED or check.edited:
                reason = check.said.splitlines()[0] if check.said else "no reason was recorded"
                checks, ids = grouped.setdefault((check.outcome, reason), ([], []))
                checks.append(check.name)
                ids.append(cell.id)
    order = sorted(Outcome, key=lambda outcome: not outcome.is_failure)
    return tuple(
        NotPassed(
            outcome=outcome, reason=reason, checks=tuple(dict.fromkeys(checks)), cells=tuple(dict.fromkeys(ids))
        )
        for (outcome, reason), (checks, ids) in sorted(
            grouped.items(), key=lambda one: order.index(Outcome(one[0][0]))
        )
    )
