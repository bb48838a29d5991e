"""Test spans in OTLP's JSON: a trace for each run, with a span for each cell and check. A file, which nothing sends.

Names of attributes: https://opentelemetry.io/docs/specs/semconv/registry/attributes/test/. The shape is that of
`ExportTraceServiceRequest` (https://github.com/open-telemetry/opentelemetry-proto), which collectors read by lines.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from hwcompat.hardware.evidence.record import CheckLine
from hwcompat.hardware.evidence.store import lines_by_cell
from hwcompat.hardware.evidence.versions import RELEASE
from hwcompat.hardware.plain_text import json_text

from ..cell_report import CellReport
from ..report import Report
from . import Format
from .ctrf import milliseconds, status_of
from .junit import is_open

_INTERNAL = 1
_OK, _ERROR = 1, 2
_MILLION = 1_000_000
_PASSED, _FAILED = "passed", "failed"


def otlp_traces(report: Report) -> str:
    """Return one export request. A check has the result `pass` or `fail` as in CTRF; other checks have no result."""
    cells = {cell.id: cell for cell in report.cells}
    accepted = report.project.accepted if report.project else {}
    spans: list[dict[str, Any]] = []
    for cell_id, lines in lines_by_cell(report.checks).items():
        cell = cells.get(cell_id)
        for run_id in dict.fromkeys(line.run_id for line in lines):
            own = [line for line in lines if line.run_id == run_id]
            results = [status_of(line, cell, accepted.get(line.evidence_id))[0] for line in own]
            spans += _spans(run_id, cell_id, own, results, cell)
    scope = {"scope": {"name": "hwcompat", "version": RELEASE}, "spans": spans}
    resource = {"attributes": _attributes({"service.name": "hwcompat", "service.version": RELEASE})}
    return json_text({"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}) + "\n"


def _spans(
    run_id: str, cell_id: str, lines: Sequence[CheckLine], results: Sequence[str], cell: CellReport | None
) -> list[dict[str, Any]]:
    suite = _id(f"{run_id}/{cell_id}", 16)
    times = [_times(line) for line in lines]
    failed = _FAILED in results or (cell is not None and is_open(cell))  # an unknown cell is no success
    success = _PASSED in results and set(results) <= {_PASSED, "skipped"}
    state = "failure" if failed else "success" if success else "skipped"
    facts = {"test.suite.name": cell_id, "test.suite.run.status": state}
    whole = {
        "traceId": _id(run_id, 32),
        "spanId": suite,
        "name": cell_id,
        "kind": _INTERNAL,
        "startTimeUnixNano": str(min(start for start, _ in times)),
        "endTimeUnixNano": str(max(end for _, end in times)),
        "attributes": _attributes(
            {**facts, "hwcompat.level": str(cell.verdict.level) if cell else "", "hwcompat.run_id": run_id}
        ),
        "status": {"code": _ERROR} if failed else {"code": _OK} if success else {},
    }
    checks = [
        {
            "traceId": whole["traceId"],
            "spanId": _id(line.evidence_id, 16),
            "parentSpanId": suite,
            "name": line.check_name,
            "kind": _INTERNAL,
            "startTimeUnixNano": str(start),
            "endTimeUnixNano": str(end),
            "attributes": _attributes(_facts(line, result)),
            "status": _status(line, result),
        }
        for line, result, (start, end) in zip(lines, results, times, strict=True)
    ]
    return [whole, *checks]


def _facts(line: CheckLine, result: str) -> dict[str, str]:
    return {
        "test.case.name": line.evidence_id,
        "test.suite.name": line.cell_id,
        "test.case.result.status": {_PASSED: "pass", _FAILED: "fail"}.get(result, ""),
        "hwcompat.outcome": str(line.outcome),
        "hwcompat.ran_on": line.actual_target or "",
        "hwcompat.device": line.accelerator or "",
        "error.type": line.error_type,
    }


def _status(line: CheckLine, result: str) -> dict[str, Any]:
    if result == _FAILED:
        return {"code": _ERROR, "message": line.error_message}
    return {"code": _OK} if result == _PASSED else {}


def _times(line: CheckLine) -> tuple[int, int]:
    """Return start and end in nanoseconds since 1970."""
    start = milliseconds(line.started_at) * _MILLION
    return start, start + round(max(line.duration_s, 0.0) * 1000) * _MILLION


def _id(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


def _attributes(facts: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"key": name, "value": {"stringValue": value}} for name, value in facts.items() if value]


FORMAT = Format(suffix="otlp.json", render=otlp_traces)
