"""What a report's page shows of cells, checks, findings and machines: words for values, no conclusions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from generators.compatibility.verdict import Basis, Level, Verdict
from hardware.evidence.record import EDITED, CheckLine, Outcome, RunLine
from hardware.evidence.store import lines_by_cell

from ..cells import CellReport
from ..diagnosis import command_again, error_types
from ..finding import Finding, Severity
from ..report import Report
from ..wording import FAULT_WORDS, explained, texts
from .charts import CellHistories, Fared
from .page import Facts, moment

_GIB = 1024**3


@dataclass(frozen=True, kw_only=True)
class CellView:
    """One cell with its checks. `is_judged` says whether there is a verdict: lines may be there without one.

    `against` says how the verdict lies to the prediction, `facts` are in the order in which they are read. `machines`
    are those that its lines are of, `past` its earlier runs.
    """

    cell: CellReport
    is_judged: bool
    because: tuple[str, ...]
    against: str
    facts: Facts
    machines: tuple[str, ...]
    past: Sequence[Fared]

    @property
    def id(self) -> str:
        """The cell's id."""
        return self.cell.id

    @property
    def level(self) -> str:
        """The verdict's level; empty where there is no verdict."""
        return str(self.cell.verdict.level) if self.is_judged else ""

    @property
    def outcomes(self) -> Mapping[str, int]:
        """How many checks came to each outcome."""
        names = [line.outcome for line in self.cell.lines]
        return {str(outcome): names.count(outcome) for outcome in Outcome if outcome in names}

    @property
    def command(self) -> str:
        """The command that runs the cell again."""
        return command_again(self.cell.lines[0]) if self.cell.lines else ""

    @property
    def is_open(self) -> bool:
        """Whether the cell is shown open: where something failed or has no line."""
        return any(line.outcome.is_failure or line.outcome is Outcome.NOT_RUN for line in self.cell.lines)


def cell_views(report: Report) -> tuple[CellView, ...]:
    """The cells of a report, and those whose lines it holds without a verdict."""
    histories = CellHistories(report.history)
    machine_of = {run.run_id: run.machine for run in report.history.runs}
    known = {cell.id for cell in report.cells}
    others = lines_by_cell([line for line in report.checks if line.cell_id not in known])
    return (
        *(_judged(cell, report, histories, machine_of) for cell in report.cells),
        *(_not_judged(id_, lines) for id_, lines in others.items()),
    )


def _judged(cell: CellReport, report: Report, histories: CellHistories, machine_of: Mapping[str, str]) -> CellView:
    verdict = cell.verdict
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
        *_choice(cell.id, report.runs),
    ]
    return CellView(
        cell=cell,
        is_judged=True,
        because=because,
        against=_against(cell.predicted, verdict),
        facts=facts,
        machines=tuple(filter(None, dict.fromkeys(machine_of.get(line.run_id, "") for line in cell.lines))),
        past=histories.of(cell.id),
    )


def _not_judged(id_: str, lines: Sequence[CheckLine]) -> CellView:
    nothing = Verdict(cell=id_, level=Level.UNKNOWN, basis=Basis.PREDICTED)
    cell = CellReport(verdict=nothing, lines=tuple(lines))
    facts = [
        ("weights", cell.subjects or "–"),
        ("asked for", cell.requested),
        ("ran on", cell.actual or "nothing ran"),
    ]
    return CellView(cell=cell, is_judged=False, because=(), against="", facts=facts, machines=(), past=())


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


def error_shown(line: CheckLine) -> str:
    """The error of a check beside what is allowed; empty where none was measured."""
    if line.max_rel_error is None:
        return ""
    return f"{line.max_rel_error:.1e} / {'–' if line.tolerance is None else f'{line.tolerance:.0e}'}"


def is_beyond(line: CheckLine) -> bool:
    """Whether a check's error is larger than allowed."""
    return line.max_rel_error is not None and line.tolerance is not None and not line.max_rel_error <= line.tolerance


def said(line: CheckLine, accepted: str = "") -> str:
    """What a check left to say; `accepted` is why a project file accepts its failure, which it stays."""
    if line.conditions.get(EDITED):  # then even a pass proves nothing
        edited = f"{EDITED}: {error_types()['suite_edited'].says}"
        text = f"{edited}. {line.error_message}" if line.error_message else edited
    else:
        text = line.error_message or line.substitution_reason
    return f"accepted failure: {accepted}; {text}" if accepted else text


def operators(counts: Mapping[str, int]) -> str:
    """Operators with their counts in one text: there are too many for an element each."""
    return ", ".join(f"{name} × {number}" for name, number in sorted(counts.items()))


def check_facts(line: CheckLine) -> str:
    """Everything else that a line holds and that was measured."""
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
        ("latency", "" if line.latency_ms is None else f"{line.latency_ms:.2f} ms a forward pass"),
        ("the proof did not see", line.unseen),
        ("started", moment(line.started_at)),
        ("evidence", line.evidence_id),
    )
    return " · ".join(f"{label}: {text}" for label, text in facts if text)


_NotPassed = tuple[str, str, tuple[str, ...], tuple[str, ...]]
"""Outcome and reason, then the checks and the cells that are no pass for that."""


def not_passed(cells: Sequence[CellView], accepted: Mapping[str, str]) -> tuple[_NotPassed, ...]:
    """All checks that are no pass, by outcome and reason: failures first, then what was not proven."""
    grouped: dict[tuple[Outcome, str], tuple[list[str], list[str]]] = {}
    for view in cells:
        for line in view.cell.lines:
            if line.outcome is not Outcome.PASSED or line.conditions.get(EDITED):
                text = said(line, accepted.get(line.evidence_id, ""))
                key = line.outcome, text.splitlines()[0] if text else "no reason was recorded"
                checks, ids = grouped.setdefault(key, ([], []))
                checks.append(line.check_name)
                ids.append(view.id)
    order = sorted(Outcome, key=lambda outcome: not outcome.is_failure)
    return tuple(
        (str(outcome), reason, tuple(dict.fromkeys(checks)), tuple(dict.fromkeys(ids)))
        for (outcome, reason), (checks, ids) in sorted(grouped.items(), key=lambda one: order.index(one[0][0]))
    )


def by_run_and_cell(ids: Sequence[str]) -> list[str]:
    """Lines of evidence, whose ids are `<run id>/<cell>/<check>`, as `<run id>, <cell>: builds, backward`."""
    checks: dict[tuple[str, str], list[str]] = {}
    for id_ in ids:
        run, _, rest = id_.partition("/")
        cell, _, check = rest.rpartition("/")
        checks.setdefault((run, cell), []).append(check)
    return [f"{run}, {cell}: {', '.join(names)}" if cell else run for (run, cell), names in checks.items()]


def choices(findings: Sequence[Finding]) -> Mapping[str, Sequence[str]]:
    """What findings can be filtered by: those values that there are."""
    severities = {finding.severity for finding in findings}
    return {
        "severity": [str(one) for one in Severity if one in severities],
        "hardware": sorted({finding.hardware_type for finding in findings}),
        "type": sorted({finding.error_type for finding in findings}),
    }


def index(findings: Sequence[Finding]) -> Mapping[str, Sequence[str]]:
    """The texts that findings are filtered by, one for each."""
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


def machine_facts(run: RunLine) -> Facts:
    """The machine of a run in a few words. Evidence may come from anywhere: what has another shape is left out."""
    inventory = run.inventory
    host, cpu, memory = (_mapping(inventory.get(name)) for name in ("host", "cpu", "memory"))
    system = " ".join(str(host[name]) for name in ("system", "release", "machine") if host.get(name))
    cores = f", {cpu['cores']} cores, {cpu['threads']} threads" if cpu.get("cores") and cpu.get("threads") else ""
    total = memory.get("total_bytes")
    devices = inventory.get("accelerators")
    accelerators = [_accelerator(_mapping(device)) for device in (devices if isinstance(devices, list) else [])]
    facts = (
        ("machine", run.machine),
        ("system", system),
        ("processor", f"{cpu['model']}{cores}" if cpu.get("model") else ""),
        ("memory", f"{total / _GIB:.1f} GiB" if isinstance(total, int) else ""),
        ("accelerators", ", ".join(accelerators) if accelerators else "none" if "accelerators" in inventory else ""),
    )
    return tuple((label, text or "not recorded") for label, text in facts)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _accelerator(device: Mapping[str, Any]) -> str:
    return f"{device.get('vendor') or ''} {device.get('model') or 'unnamed'}".strip()


def inventory_text(run: RunLine) -> str:
    """The whole inventory as it was recorded."""
    return json.dumps(run.inventory, indent=1, sort_keys=True, ensure_ascii=False, default=str)
