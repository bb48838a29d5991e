"""A report in CTRF, the common test report format: https://github.com/ctrf-io/ctrf, schema/ctrf.schema.json."""

from __future__ import annotations

from typing import Any

from hwcompat.hardware.cell import parsed
from hwcompat.hardware.evidence.record import EDITED, CheckLine, Outcome
from hwcompat.hardware.evidence.store import lines_by_cell
from hwcompat.hardware.evidence.versions import RELEASE
from hwcompat.hardware.plain_text import json_text

from ..cell_report import CellReport
from ..finding import Severity, count
from ..reason_text import explained
from ..report import Report
from ..text import moment_in_utc
from . import Format
from .junit import is_open, is_unreached, why_not_counted

_STATUSES = ("passed", "failed", "skipped", "pending", "other")


def ctrf_report(report: Report) -> str:
    """Return a CTRF report with a test for each check, for each cell that is unknown although no check failed, and
    for each error without evidence: the same tests fail as in JUnit.

    Only `passed` of an unedited suite on which the verdict rests is a pass. A pass that doesn't count, a fallback, an
    ambiguous check and an accepted failure are `other`; `rawStatus` is the outcome.
    """
    cells = {cell.id: cell for cell in report.cells}
    accepted = report.project.accepted if report.project else {}
    tests = []
    for cell_id, own in lines_by_cell(report.checks).items():
        cell = cells.get(cell_id)
        found = [_test(line, *status_of(line, cell, accepted.get(line.evidence_id))) for line in own]
        if cell is not None and is_open(cell) and all(test["status"] != "failed" for test in found):
            message = f"unknown: {'; '.join(explained(cell.verdict)[0])}"
            found.append({**_failed(f"{cell_id}::verdict", message), "suite": [cell_id]})
        tests += found
    errors = (one for one in report.findings if not one.evidence_ids and one.severity.rank >= Severity.ERROR.rank)
    tests += [_failed(f"finding::{one.id}", one.message) for one in errors]
    moments = [test[name] for test in tests for name in ("start", "stop") if name in test]
    moments = moments or [milliseconds(report.timestamp)]
    summary = {name: sum(test["status"] == name for test in tests) for name in _STATUSES}
    times = {"start": min(moments), "stop": max(moments)}
    data = {
        "reportFormat": "CTRF",
        "specVersion": "0.1.0",
        "generatedBy": "hwcompat",
        "results": {
            "tool": {"name": "hwcompat", "version": RELEASE},
            "summary": {"tests": len(tests), **summary, **times, "extra": {"findings": count(report.findings)}},
            "tests": tests,
        },
    }
    return json_text(data)


def _failed(name: str, message: str) -> dict[str, Any]:
    return {"name": name, "status": "failed", "duration": 0, "message": message}


def _test(line: CheckLine, status: str, why: str) -> dict[str, Any]:
    cell = parsed(line.cell_id)  # None is reported as broken evidence
    started = milliseconds(line.started_at)
    duration = round(max(line.duration_s, 0.0) * 1000)
    message = why or line.error_message or line.substitution_reason or line.error_type
    facts = {"model": cell.model, "target": str(cell.target), "precision": cell.precision} if cell else {}
    return {
        "name": f"{line.cell_id}::{line.check_name}",
        "status": status,
        "rawStatus": str(line.outcome),
        "duration": duration,
        **({"start": started, "stop": started + duration} if started else {}),
        "suite": [line.cell_id],
        **({"message": message} if message else {}),
        **({"device": line.accelerator} if line.accelerator else {}),
        "extra": {**facts, "evidence_id": line.evidence_id},
    }


def status_of(line: CheckLine, cell: CellReport | None, accepted: str | None) -> tuple[str, str]:
    """Return the status of a check, and why it isn't that of its outcome."""
    if line.outcome is Outcome.PASSED:
        why = EDITED if line.conditions.get(EDITED) else why_not_counted(line, cell)
        return ("other" if why else "passed"), why
    if line.outcome.is_failure or is_unreached(line):
        return ("failed", "") if accepted is None else ("other", f"accepted failure: {accepted}")
    return ("skipped" if line.outcome in (Outcome.SKIPPED, Outcome.NOT_RUN) else "other"), ""


def milliseconds(text: str) -> int:
    """Return a moment in milliseconds since 1970; 0 if the text is none."""
    moment = moment_in_utc(text)
    return int(moment.timestamp() * 1000) if moment else 0


FORMAT = Format(suffix="ctrf.json", render=ctrf_report)
