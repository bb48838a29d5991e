"""A report as JSON, in the shape of `schemas/report.json`, in ASCII, so that it has no terminal commands."""

from __future__ import annotations

import functools
from typing import Any

from hwcompat.hardware.evidence.record import plain
from hwcompat.hardware.plain_text import json_text
from hwcompat.hardware.values import data_file

from ..finding import SCHEMA, SCHEMA_VERSION
from ..reason_text import with_texts
from ..reference_tests import reference_test_object
from ..report import Report
from ..speed_text import speeds
from . import Format


@functools.cache
def _check_fields() -> tuple[str, ...]:
    """Return the fields of an evidence line that a report has, as its schema names them."""
    known = data_file(SCHEMA)["$defs"]["check"]["properties"]
    return tuple(name for name in known if name not in ("evidence_id", "cell"))


def report_object(report: Report) -> dict[str, Any]:
    """Return the report as plain JSON values."""
    data: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "timestamp": report.timestamp,
        "error_counts": report.error_counts,
        "errors": [
            finding.to_dict() | ({"baseline": str(report.baseline.state(finding))} if report.baseline else {})
            for finding in report.findings
        ],
        "hardware_errors": report.hardware_errors,
        "models_tested": list(report.models_tested),
        "outcomes": report.outcomes,
        "verdicts": [cell.verdict.to_dict() for cell in report.cells],
        "checks": [
            {
                "evidence_id": line.evidence_id,
                "cell": line.cell_id,
                **{name: plain(getattr(line, name)) for name in _check_fields()},
            }
            for line in report.checks
        ],
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
    if measured := speeds(report.cells):
        data["speed"] = [one.to_dict() for one in measured]
    if report.model_checks:
        data["model_checks"] = list(report.model_checks)
    if report.second_opinions:
        data["second_opinions"] = [reference_test_object(one) for one in report.second_opinions]
    if report.project is not None:
        data["project"] = report.project.to_dict()
    if report.baseline is not None:
        data["baseline"] = report.baseline.to_dict()
    if report.matrix is not None:
        data["matrix"] = report.matrix
    return data


def json_report(report: Report) -> str:
    """Return a JSON report that ends in a newline."""
    return json_text(with_texts(report_object(report)), ascii_alone=True) + "\n"


FORMAT = Format(suffix="json", render=json_report)
