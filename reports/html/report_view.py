"""Values of a report's page for cells, checks, findings and machines, as text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hwcompat.generators.compatibility.verdict import Basis, Level, Reason, Verdict
from hwcompat.hardware.evidence.record import EDITED, CheckLine, Outcome, RunLine
from hwcompat.hardware.evidence.store import lines_by_cell
from hwcompat.hardware.testing.checks import all_checks

from ..cell_report import CellReport
from ..diagnose import command_again, error_types
from ..fact_labels import Facts, cell_facts
from ..failure_place import culprit_frames
from ..finding import Finding, Severity
from ..reason_text import explained
from ..report import Report
from . import charts
from .charts import Fared, past_of
from .page import moment

__all__ = ["culprit_frames"]  # templates call it

OUTCOME_WORDS: Mapping[Outcome, str] = {
    Outcome.PASSED: "computed on the requested target, and right",
    Outcome.PASSED_ON_FALLBACK: "right on another target: doesn't count as a pass on the requested one",
    Outcome.AMBIGUOUS: "the results decide neither way",
    Outcome.FAILED: "wrong, refused or an error",
    Outcome.CRASHED: "the process died",
    Outcome.TIMEOUT: "didn't end in its time limit",
    Outcome.OUT_OF_MEMORY: "ran out of memory",
    Outcome.SKIPPED: "doesn't apply, or the device is absent: its message says why",
    Outcome.NOT_RUN: "planned, and without a result",
}
"""What each outcome means, for a legend."""


@dataclass(frozen=True, kw_only=True)
class CellView:
    """One cell with its checks.

    `against` compares the verdict with the prediction. `machines` are those of its lines, `past` its earlier runs;
    `command` runs it again. `share` is its largest error relative to the tolerance, None if none was measured;
    `seconds` is the time of all checks. A cell that is `quiet` works, and no check says anything else.
    """

    cell: CellReport
    because: tuple[str, ...]
    against: str
    facts: Facts
    machines: tuple[str, ...]
    past: Sequence[Fared]
    command: str
    share: float | None
    seconds: float
    quiet: bool


def cell_views(report: Report) -> tuple[CellView, ...]:
    """Return the cells of a report, and those with lines and without a verdict: those that don't work first."""
    past = past_of(report.history)
    machine_of = {run.run_id: run.machine for run in report.history.runs}
    known = {cell.id for cell in report.cells}
    others = lines_by_cell([line for line in report.checks if line.cell_id not in known])
    cells = [*report.cells, *(CellReport(verdict=_not_judged(id_), lines=tuple(own)) for id_, own in others.items())]
    views = [
        CellView(
            cell=cell,
            because=explained(cell.verdict)[0],
            against=_compared_with_prediction(cell.predicted, cell.verdict),
            facts=[*cell_facts(cell), *_choice(cell.id, report.runs)],
            machines=tuple(filter(None, dict.fromkeys(machine_of.get(line.run_id, "") for line in cell.lines))),
            past=past(cell.id),
            command=command_again(cell.lines[0]) if cell.lines else "",
            share=max(charts.shares(cell.lines), default=None),
            seconds=sum(line.duration_s for line in cell.lines),
            quiet=works(cell)
            and all(line.outcome in _QUIET and EDITED not in line.conditions for line in cell.lines),
        )
        for cell in cells
    ]
    return tuple(sorted(views, key=lambda view: (works(view.cell), view.quiet)))


_QUIET = (Outcome.PASSED, Outcome.SKIPPED)


def works(cell: CellReport) -> bool:
    """Whether the verdict says that a cell works, perhaps under conditions."""
    return cell.verdict.level in (Level.HIGH, Level.MEDIUM)


def headline(cells: Sequence[CellView], findings: Sequence[Finding]) -> str:
    """Return how many cells work and why the others don't: `3 of 5 cells work; 2 don't (1 only in part): 1 cause`."""
    broken = [view.cell for view in cells if not works(view.cell)]
    good, ids = len(cells) - len(broken), {cell.id for cell in broken}
    head = f"{good:,} of {len(cells):,} cell{'' if len(cells) == 1 else 's'} work{'s' if good == 1 else ''}"
    if not broken:
        return f"{head}."
    counted = Counter(cell.verdict.level for cell in broken)
    named = ((counted[Level.LOW], "only in part"), (counted[Level.UNKNOWN], "unknown"))
    parts = ", ".join(f"{number:,} {words}" for number, words in named if number)
    number = sum(any(ids & set(one.cells) for one in cause.findings) for cause in causes(findings))
    why = f": {number} cause{'' if number == 1 else 's'}" if number else ""
    return f"{head}; {len(broken):,} do{'es' if len(broken) == 1 else ''}n't{f' ({parts})' if parts else ''}{why}."


@dataclass(frozen=True, kw_only=True)
class FailureCause:
    """Findings of one severity and error type, in `words`, and the recommendations that all of them share."""

    severity: Severity
    error_type: str
    words: str
    findings: Sequence[Finding]
    shared: tuple[str, ...]

    @property
    def id(self) -> str:
        """The cause's name in the page."""
        return f"{self.severity}-{self.error_type}"

    @property
    def cells(self) -> int:
        """The number of cells that it affects."""
        return len({cell for one in self.findings for cell in one.cells})


def causes(findings: Sequence[Finding]) -> list[FailureCause]:
    """Return the findings by cause: the worst first, then the ones that affect most cells."""
    grouped: dict[tuple[Severity, str], list[Finding]] = {}
    for one in findings:
        grouped.setdefault((one.severity, one.error_type), []).append(one)
    known = error_types()
    made = [
        FailureCause(
            severity=severity,
            error_type=type_,
            words=known[type_].says if type_ in known else type_.replace("_", " "),
            findings=own,
            shared=tuple(text for text in own[0].recommendations if all(text in one.recommendations for one in own)),
        )
        for (severity, type_), own in grouped.items()
    ]
    return sorted(made, key=lambda cause: (-cause.severity.rank, -cause.cells))


def in_page_order(grouped: Sequence[FailureCause], shown: int) -> list[tuple[Finding, FailureCause]]:
    """Return each finding with its cause, in order; of a list longer than `shown` some of each cause come first."""
    pairs = [(rank, one, cause) for cause in grouped for rank, one in enumerate(cause.findings)]
    if len(pairs) > shown:
        first = max(1, shown // len(grouped))
        pairs.sort(key=lambda pair: pair[0] >= first)
    return [(one, cause) for _, one, cause in pairs]


def _not_judged(cell_id: str) -> Verdict:
    reason = Reason.of("text", text="not judged: see the findings")
    return Verdict(cell=cell_id, level=Level.UNKNOWN, basis=Basis.PREDICTED, reasons=(reason,))


def _compared_with_prediction(predicted: Verdict | None, verdict: Verdict) -> str:
    if predicted is None or predicted.level.rank is None or verdict.level.rank is None:
        return ""
    if predicted.level is verdict.level:
        return ""
    return "better" if verdict.level.rank > predicted.level.rank else "worse"


def _choice(cell_id: str, runs: Sequence[RunLine]) -> Iterator[tuple[str, str]]:
    """Yield what `auto` selected and skipped, as the plan records it."""
    for run in runs:
        for planned in run.plan:
            if planned.cell_id != cell_id or planned.selection is None:
                continue
            steps = planned.selection.get("steps")
            for place, step in enumerate(steps if isinstance(steps, list) else ()):
                if isinstance(step, Mapping):
                    label = "selected by auto" if place == len(steps or ()) - 1 else "not selected by auto"
                    yield label, f"{step.get('target')}: {step.get('reason')}"


def is_beyond(line: CheckLine) -> bool:
    """Whether a check's error is larger than allowed."""
    return line.max_rel_error is not None and line.tolerance is not None and not line.max_rel_error <= line.tolerance


def said(line: CheckLine, accepted: str = "") -> str:
    """Return the message of a check; `accepted` is why a project file accepts its failure, which stays a failure."""
    if line.conditions.get(EDITED):  # then even a pass proves nothing
        edited = f"{EDITED}: {error_types()['suite_edited'].says}"
        text = f"{edited}. {line.error_message}" if line.error_message else edited
    else:
        text = line.error_message or line.substitution_reason
    return f"accepted failure: {accepted}; {text}" if accepted else text


def operators(counts: Mapping[str, int]) -> str:
    """Return operators with their counts in one text: there are too many for an element each."""
    return ", ".join(f"{name} × {number}" for name, number in sorted(counts.items()))


def check_facts(line: CheckLine) -> str:
    """Return all other measured facts of a line."""
    shapes = [
        f"batch {line.batch}" if line.batch else "",
        f"length {line.sequence_length}" if line.sequence_length else "",
    ]
    facts = (
        ("stage", str(line.stage or "")),
        ("error type", line.error_type),
        ("substituted", line.substitution_reason),
        ("device", line.accelerator or ""),
        ("computed in", line.actual_dtype or ""),
        ("inputs", ", ".join(filter(None, shapes))),
        ("conditions", ", ".join(f"{name} {value}" for name, value in sorted(line.conditions.items()))),
        ("largest absolute error", "" if line.max_abs_error is None else f"{line.max_abs_error:.2e}"),
        ("latency", "" if line.latency_ms is None else f"{line.latency_ms:.2f} ms per forward pass"),
        ("not verified", line.unseen),
        ("started", moment(line.started_at)),
        ("evidence", line.evidence_id),
    )
    return " · ".join(f"{label}: {text}" for label, text in facts if text)


def by_run_and_cell(ids: Sequence[str]) -> list[str]:
    """Return ids of lines, `<run id>/<cell>/<check>`, as `<run id>, <cell>: builds, backward`."""
    checks: dict[tuple[str, str], list[str]] = {}
    for id_ in ids:
        run, _, rest = id_.partition("/")
        cell, _, check = rest.rpartition("/")
        checks.setdefault((run, cell), []).append(check)
    return [f"{run}, {cell}: {', '.join(names)}" if cell else run for (run, cell), names in checks.items()]


def check_says(name: str) -> str:
    """Return what a check shows, as a sentence; empty for one that isn't known."""
    says = next((check.says for check in all_checks() if check.name == name), "")
    return f"{says[0].upper()}{says[1:]}." if says else ""


def index(findings: Sequence[Finding]) -> Mapping[str, Sequence[str]]:
    """Return the texts that findings are filtered by, one for each."""
    return {
        "id": [one.id for one in findings],
        "text": [
            " ".join((one.error_type, one.hardware_type, one.model_name or "", one.message, *one.cells[:1]))[:300]
            for one in findings
        ],
        "severity": [str(one.severity) for one in findings],
        "hardware": [one.hardware_type for one in findings],
        "type": [one.error_type for one in findings],
    }


def inventory_text(run: RunLine) -> str:
    """Return the whole inventory as it was recorded."""
    return json.dumps(run.inventory, indent=1, sort_keys=True, ensure_ascii=False, default=str)
