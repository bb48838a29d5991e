"""Values of a report's page for cells, checks, findings and machines, as text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hwcompat.generators.compatibility.verdict import Basis, Level, Reason, Verdict
from hwcompat.hardware.evidence.record import EDITED, CheckLine, Outcome, RunLine
from hwcompat.hardware.evidence.store import lines_by_cell

from ..cell_report import CellReport
from ..diagnose import command_again, error_types
from ..fact_labels import Facts, cell_facts
from ..finding import Finding
from ..reason_text import explained
from ..report import Report
from .charts import Fared, past_of
from .page import moment


@dataclass(frozen=True, kw_only=True)
class CellView:
    """One cell with its checks.

    `against` compares the verdict with the prediction. `machines` are those of its lines, `past` its earlier runs;
    `command` runs it again. It is shown open if something failed or has no line.
    """

    cell: CellReport
    because: tuple[str, ...]
    against: str
    facts: Facts
    machines: tuple[str, ...]
    past: Sequence[Fared]
    command: str
    is_open: bool


def cell_views(report: Report) -> tuple[CellView, ...]:
    """Return the cells of a report, and those with lines and without a verdict."""
    past = past_of(report.history)
    machine_of = {run.run_id: run.machine for run in report.history.runs}
    known = {cell.id for cell in report.cells}
    others = lines_by_cell([line for line in report.checks if line.cell_id not in known])
    cells = [*report.cells, *(CellReport(verdict=_not_judged(id_), lines=tuple(own)) for id_, own in others.items())]
    return tuple(
        CellView(
            cell=cell,
            because=explained(cell.verdict)[0],
            against=_compared_with_prediction(cell.predicted, cell.verdict),
            facts=[*cell_facts(cell), *_choice(cell.id, report.runs)],
            machines=tuple(filter(None, dict.fromkeys(machine_of.get(line.run_id, "") for line in cell.lines))),
            past=past(cell.id),
            command=command_again(cell.lines[0]) if cell.lines else "",
            is_open=any(line.outcome.is_failure or line.outcome is Outcome.NOT_RUN for line in cell.lines),
        )
        for cell in cells
    )


def _not_judged(cell_id: str) -> Verdict:
    reason = Reason.of("text", text="not judged: see the findings")
    return Verdict(cell=cell_id, level=Level.UNKNOWN, basis=Basis.PREDICTED, reasons=(reason,))


def _compared_with_prediction(predicted: Verdict | None, verdict: Verdict) -> str:
    if predicted is None or predicted.level.rank is None or verdict.level.rank is None:
        return ""
    if predicted.level is verdict.level:
        return "as predicted"
    return "better than predicted" if verdict.level.rank > predicted.level.rank else "worse than predicted"


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


_NotPassed = tuple[str, str, tuple[str, ...], tuple[str, ...]]
"""Outcome and reason, then the checks and cells that didn't pass for that reason."""


def not_passed(cells: Sequence[CellView], accepted: Mapping[str, str]) -> tuple[_NotPassed, ...]:
    """Return all checks that didn't pass, by outcome and reason: failures first, then what was not proven."""
    grouped: dict[tuple[Outcome, str], tuple[list[str], list[str]]] = {}
    for view in cells:
        for line in view.cell.lines:
            if line.outcome is not Outcome.PASSED or line.conditions.get(EDITED):
                text = said(line, accepted.get(line.evidence_id, ""))
                key = line.outcome, text.splitlines()[0] if text else "no reason was recorded"
                checks, ids = grouped.setdefault(key, ([], []))
                checks.append(line.check_name)
                ids.append(view.cell.id)
    order = sorted(Outcome, key=lambda outcome: not outcome.is_failure)
    return tuple(
        (str(outcome), reason, tuple(dict.fromkeys(checks)), tuple(dict.fromkeys(ids)))
        for (outcome, reason), (checks, ids) in sorted(grouped.items(), key=lambda one: order.index(one[0][0]))
    )


def by_run_and_cell(ids: Sequence[str]) -> list[str]:
    """Return ids of lines, `<run id>/<cell>/<check>`, as `<run id>, <cell>: builds, backward`."""
    checks: dict[tuple[str, str], list[str]] = {}
    for id_ in ids:
        run, _, rest = id_.partition("/")
        cell, _, check = rest.rpartition("/")
        checks.setdefault((run, cell), []).append(check)
    return [f"{run}, {cell}: {', '.join(names)}" if cell else run for (run, cell), names in checks.items()]


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
