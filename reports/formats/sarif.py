"""A report as SARIF 2.1.0: one result for each finding, in the suite that found it.

The format: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html. Results beyond GitHub's limits
(https://docs.github.com/code-security/code-scanning/troubleshooting-sarif/results-exceed-limit) are left out, with a
notification of the run.
"""

from __future__ import annotations

import functools
import gzip
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from hwcompat.hardware.evidence.versions import RELEASE
from hwcompat.hardware.plain_text import json_text

from ..diagnose import error_types
from ..finding import Finding, FindingState, Severity
from ..report import Report
from ..source_places import fingerprints, line_of, place_of
from ..text import moment_in_utc, plain_paragraphs
from . import Format

MOST_RESULTS = 5_000
"""GitHub shows this many results of a run, the worst ones, and refuses more than 25,000."""

MOST_LOCATIONS = 100
"""GitHub shows this many locations of a result, and refuses more than 1,000."""

LARGEST_PACKED = 10 * 1000 * 1000
"""GitHub accepts files of 10 MB, compressed with gzip."""

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0-rtm.5.json"
_LEVELS = {
    Severity.CRITICAL: "error",
    Severity.ERROR: "error",
    Severity.WARNING: "warning",
    Severity.INFO: "note",
}
_STATES = {FindingState.NEW: "new", FindingState.WORSE: "updated", FindingState.KNOWN: "unchanged"}
_READ_BY_PEOPLE = 500
_ROOT = "%SRCROOT%"
_NO_FILE = "HWCOMPAT"
_PLACEHOLDER = re.compile(r"\{\d+\}")


def sarif_report(report: Report) -> str:
    """Return a SARIF file that ends in a newline, in ASCII. Findings beyond the limits are left out."""
    kept = min(len(report.findings), MOST_RESULTS)
    while True:
        indent = 1 if kept <= _READ_BY_PEOPLE else None  # with an indent Python uses its slow writer
        text = json_text(_log(report, kept), indent=indent, ascii_alone=True) + "\n"
        # Compression takes time, and never makes text longer.
        if len(text) <= LARGEST_PACKED or not kept or len(gzip.compress(text.encode(), 6)) <= LARGEST_PACKED:
            return text
        kept = kept * 3 // 4


def _log(report: Report, kept: int) -> dict[str, Any]:
    findings = report.findings[:kept]
    rules = list(dict.fromkeys(finding.error_type for finding in findings))
    names = fingerprints(findings)
    results = [_result(one, name, rules, report) for one, name in zip(findings, names, strict=True)]
    run = {
        "tool": {
            "driver": {
                "name": "hwcompat",
                "semanticVersion": RELEASE,
                "rules": [_rule(name, findings) for name in rules],
            }
        },
        "automationDetails": {"id": _automation_id(report)},
        "originalUriBaseIds": {
            _ROOT: {"description": {"text": "The folder in which the command was run."}},
            _NO_FILE: {"description": {"text": "Not a folder: such a location names what was examined, not a file."}},
        },
        "invocations": [_invocation(report, kept)],
        "columnKind": "unicodeCodePoints",
        "results": results,
        "properties": {
            "findings": len(report.findings),
            "error_counts": report.error_counts,
            "outcomes": report.outcomes,
        },
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _automation_id(report: Report) -> str:
    """Return `hwcompat/<machine>/<run>`: GitHub takes the part before the last slash as a series of analyses."""
    machines = {run.machine for run in report.runs}
    machine = quote(machines.pop(), safe="") if len(machines) == 1 else ""
    run = quote(report.runs[0].run_id, safe="") if len(report.runs) == 1 else ""
    return "/".join(["hwcompat", *([machine] if machine else []), run])


def _invocation(report: Report, kept: int) -> dict[str, Any]:
    cut = []
    if kept < len(report.findings):
        text = (
            f"{kept} of {len(report.findings)} findings are in this file, the worst ones: servers take no more than "
            f"{MOST_RESULTS} results and {LARGEST_PACKED // 1_000_000} MB. The JSON report holds all of them."
        )
        cut = [{"level": "warning", "message": {"text": text}}]
    moment = moment_in_utc(report.timestamp)
    return {
        "executionSuccessful": True,
        **({"endTimeUtc": f"{moment:%Y-%m-%dT%H:%M:%SZ}"} if moment else {}),
        **({"toolExecutionNotifications": cut} if cut else {}),
    }


def _rule(name: str, findings: Sequence[Finding]) -> dict[str, Any]:
    kind = error_types().get(name)
    says = kind.says if kind else name.replace("_", " ")
    own = [finding for finding in findings if finding.error_type == name]
    worst = own[0]
    # Advice for every finding of the rule; advice for one target is in its finding.
    advice = [text for text in worst.recommendations if all(text in finding.recommendations for finding in own)]
    help_text = "\n".join(["What to do:", *(f"- {text}" for text in advice)]) if advice else says
    return {
        "id": name,
        "name": "".join(part.capitalize() for part in name.split("_")),
        "shortDescription": {"text": _message(says)},
        "fullDescription": {"text": _message(says)},
        "help": {"text": _message(help_text)},
        "defaultConfiguration": {"level": _LEVELS[worst.severity]},
        "properties": {"tags": ["hardware-compatibility", *([kind.group] if kind and kind.group else [])]},
    }


def _result(finding: Finding, fingerprint: str, rules: Sequence[str], report: Report) -> dict[str, Any]:
    place = place_of(finding, report.suites)
    state = {"baselineState": _STATES[report.baseline.state(finding)]} if report.baseline else {}
    others = _related(finding, report)
    return {
        "ruleId": finding.error_type,
        "ruleIndex": rules.index(finding.error_type),
        "level": _LEVELS[finding.severity],
        "message": {"text": _message(_result_text(finding))},
        "locations": [
            {
                "physicalLocation": _physical(place.path, place.line, is_file=place.is_file),
                **({"logicalLocations": [_logical(finding.cells[0])]} if finding.cells else {}),
            }
        ],
        **({"relatedLocations": others} if others else {}),
        "partialFingerprints": {"hwcompatFinding/v1": fingerprint, "primaryLocationLineHash": f"{fingerprint}:1"},
        **state,
        "properties": _properties(finding),
    }


def _physical(path: str, line: int, *, is_file: bool) -> dict[str, Any]:
    return {
        "artifactLocation": {"uri": quote(path, safe="/"), "uriBaseId": _ROOT if is_file else _NO_FILE},
        "region": {"startLine": line},
    }


def _logical(cell: str) -> dict[str, Any]:
    return {"fullyQualifiedName": _message(cell), "kind": "cell"}


def _related(finding: Finding, report: Report) -> list[dict[str, Any]]:
    """Return the finding's other cells, with their suites if these are here."""
    related = []
    for number, cell in enumerate(finding.cells[1:MOST_LOCATIONS], 1):
        suite = report.suites.get(cell)
        logical = _logical(cell)
        related.append(
            {
                "id": number,
                **(
                    {"physicalLocation": _physical(suite.file, line_of(finding, suite), is_file=True)}
                    if suite
                    else {}
                ),
                "logicalLocations": [logical],
                "message": {"text": logical["fullyQualifiedName"]},
            }
        )
    return related


def _result_text(finding: Finding) -> str:
    """Return what, where and what to do, as text."""
    left = f" The first {MOST_LOCATIONS} are named here." if len(finding.cells) > MOST_LOCATIONS else ""
    where = [f"In: {finding.where}.{left}"] if finding.cells else []
    advice = ["What to do:", *(f"- {text}" for text in finding.recommendations)] if finding.recommendations else []
    return "\n".join([f"{finding.severity}: {finding.message}", *where, *advice])


@functools.lru_cache(maxsize=8192)  # cells are in many findings
def _message(text: str) -> str:
    """Return text without links and placeholders, which messages of SARIF may have."""
    shown = plain_paragraphs(text).replace("](", "] (")
    return shown.replace("{", "{{").replace("}", "}}") if _PLACEHOLDER.search(shown) else shown


def _properties(finding: Finding) -> Mapping[str, Any]:
    values = {
        "severity": str(finding.severity),
        "confidence": str(finding.confidence),
        "hardware_type": finding.hardware_type,
        "component": finding.component,
        "model_name": finding.model_name,
        "first_seen": finding.timestamp,
        "cell_count": len(finding.cells),
        "cells": list(finding.cells[:MOST_LOCATIONS]),
        "checks": list(finding.checks),
        "recommendations": list(finding.recommendations),
        "evidence_ids": list(finding.evidence_ids[:MOST_LOCATIONS]),
    }
    return {name: value for name, value in values.items() if value not in (None, "", [])}


FORMAT = Format(suffix="sarif", render=sarif_report)
