"""A report as JSON, in the shape of `schemas/report.json`. Pure ASCII, so that no terminal is given a command."""

from __future__ import annotations

from typing import Any

from hardware.evidence.record import CheckLine, plain
from hardware.plain_text import json_text

from ..finding import SCHEMA_VERSION, Finding
from ..report import Report
from ..second_opinion import second_opinion_object
from ..wording import with_texts
from .base import Format

_CHECK_FIELDS = (
    "run_id",
    "check_name",
    "outcome",
    "subject",
    "requested_target",
    "actual_target",
    "substitution_reason",
    "accelerator",
    "precision",
    "actual_dtype",
    "conditions",
    "stage",
    "error_type",
    "error_message",
    "max_abs_error",
    "max_rel_error",
    "tolerance",
    "offloaded_ops",
    "latency_ms",
    "peak_memory_bytes",
    "started_at",
    "duration_s",
)


def report_object(report: Report) -> dict[str, Any]:
    """The report as plain JSON values."""
    data: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "timestamp": report.timestamp,
        "error_counts": report.error_counts,
        "errors": [_finding(finding, report) for finding in report.findings],
        "hardware_errors": report.hardware_errors,
        "models_tested": list(report.models_tested),
        "outcomes": report.outcomes,
        "verdicts": [cell.verdict.to_dict() for cell in report.cells],
        "checks": [_check(line) for line in report.checks],
        "components_available": {
            one.name: {
                "available": None if one.state == "unknown" else one.state == "available",
                **{name: getattr(one, name) for name in ("state", "version", "reason")},
            }
            for one in report.components
        },
        "hardware_stack": {
            one.target: {name: getattr(one, name) for name in ("state", "reason", "device_name", "duration_s")}
            for one in report.stack
        },
    }
    if report.model_checks:
        data["model_checks"] = list(report.model_checks)
    if report.second_opinions:
        data["second_opinions"] = [second_opinion_object(one) for one in report.second_opinions]
    if report.project is not None:
        data["project"] = report.project.to_dict()
    if report.baseline is not None:
        data["baseline"] = report.baseline.to_dict()
    if report.matrix is not None:
        data["matrix"] = report.matrix
    return data


def _finding(finding: Finding, report: Report) -> dict[str, Any]:
    against = {"baseline": str(report.baseline.state(finding))} if report.baseline else {}
    return {**finding.to_dict(), **against}


def _check(line: CheckLine) -> dict[str, Any]:
    found = {name: plain(getattr(line, name)) for name in _CHECK_FIELDS}
    return {"evidence_id": line.evidence_id, "cell": line.cell_id, **found}


def json_report(report: Report) -> str:
    """The text of a JSON report, ending in a newline."""
    return json_text(with_texts(report_object(report)), ascii_alone=True) + "\n"


FORMAT = Format(suffix="json", render=json_report)
