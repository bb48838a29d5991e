"""A report as GitLab's Code Quality artifact: a list with an entry for each finding.

The format: https://docs.gitlab.com/ci/testing/code_quality/ (description, check_name, fingerprint, severity, and a
location of a path and a line). GitLab uses the fingerprints to find what is new in a merge request.
"""

from __future__ import annotations

import hashlib
from typing import Any

from hwcompat.hardware.plain_text import json_text

from ..finding import Finding, Severity
from ..report import Report
from ..source_places import fingerprints, place_of
from ..text import plain_paragraphs
from . import Format

_SEVERITIES = {
    Severity.CRITICAL: "blocker",
    Severity.ERROR: "critical",
    Severity.WARNING: "minor",
    Severity.INFO: "info",
}


def gitlab_report(report: Report) -> str:
    """Return the artifact, ending in a newline, in ASCII."""
    names = fingerprints(report.findings)
    entries = [_entry(one, name, report) for one, name in zip(report.findings, names, strict=True)]
    return json_text(entries, indent=1, ascii_alone=True) + "\n"


def _entry(finding: Finding, fingerprint: str, report: Report) -> dict[str, Any]:
    place = place_of(finding, report.suites)
    where = f" ({finding.where})" if finding.cells else ""
    advice = "".join(f" What to do: {text}" for text in finding.recommendations[:1])
    return {
        "description": plain_paragraphs(f"{finding.severity}: {finding.message}{where}{advice}").replace("\n", " "),
        "check_name": finding.error_type,
        "fingerprint": hashlib.sha256(fingerprint.encode(errors="replace")).hexdigest(),
        "severity": _SEVERITIES[finding.severity],
        "location": {"path": place.path, "lines": {"begin": place.line}},
    }


FORMAT = Format(suffix="gitlab.json", render=gitlab_report)
