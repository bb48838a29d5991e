"""A report in CTRF, the common test report format: https://github.com/ctrf-io/ctrf, schema/ctrf.schema.json."""

from __future__ import annotations

from typing import Any

from hwcompat.hardware.evidence.record import EDITED, CheckLine, Outcome
from hwcompat.hardware.evidence.versions import RELEASE
from hwcompat.hardware.plain_text import json_text

from ..finding import count
from ..report import Report
from ..text import moment_in_utc
from . import Format
from .junit import why_not_counted

_STATUSES = ("passed", "failed", "skipped", "pending", "other")


def ctrf_report(report: Report) -> str:
    """Return a CTRF report with a test for each check.

    Only `passed` of an unedited suite on which the verdict rests is a pass. A pass that doesn't count, a fallback, an
    ambiguous check, an accepted failure and a check that wasn't reached are `other`; `rawStatus` is the outcome.
    """
    cells = {cell.id: cell for cell in report.cells}
    accepted = report.project.accepted if report.project else {}
    tests = []
    for line in report.checks:
        excuse = accepted.get(line.evidence_id)
        why = why_not_counted(line, cells.get(line.cell_id)) or (EDITED if line.conditions.get(EDITED) else "")
        tests.append(_test(line, f"accepted failure: {excuse}" if excuse is not None else why))
    moments = [start for test in tests for start in (test["start"], test["stop"])] or [
        _milliseconds(report.timestamp)
    ]
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


def _test(line: CheckLine, excuse: str) -> dict[str, Any]:
    model, _, target, precision = line.cell_id.split("/")
    started = _milliseconds(line.started_at)
    duration = round(max(line.duration_s, 0.0) * 1000)
    message = excuse or line.error_message or line.substitution_reason or line.error_type
    extra = {"model": model, "target": target, "precision": precision, "evidence_id": line.evidence_id}
    return {
        "name": f"{line.cell_id}::{line.check_name}",
        "status": "other" if excuse else _status(line),
        "rawStatus": str(line.outcome),
        "duration": duration,
        "start": started,
        "stop": started + duration,
        "suite": [line.cell_id],
        **({"message": message} if message else {}),
        **({"device": line.accelerator} if line.accelerator else {}),
        "extra": extra,
    }


def _status(line: CheckLine) -> str:
    if line.outcome is Outcome.SKIPPED or (line.outcome is Outcome.NOT_RUN and line.error_type == "deselected"):
        return "skipped"
    if line.outcome.is_failure:
        return "failed"
    return "passed" if line.outcome is Outcome.PASSED else "other"


def _milliseconds(text: str) -> int:
    moment = moment_in_utc(text)
    return int(moment.timestamp() * 1000) if moment else 0


FORMAT = Format(suffix="ctrf.json", render=ctrf_report)
