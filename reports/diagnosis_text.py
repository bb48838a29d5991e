"""A diagnosis of a text as Markdown and as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hardware.plain_text import json_text

from .diagnosing import TextDiagnosis
from .finding import Finding, count
from .text import advice_markdown, markdown

SCHEMA_VERSION = 1
SCHEMA = Path(__file__).with_name("schemas") / "diagnosis.json"

_NOTHING = "Nothing in it looks like a failure."


def diagnosis_markdown(found: TextDiagnosis) -> str:
    """The text of a Markdown document, ending in a newline; what was pasted is escaped throughout."""
    counts = ", ".join(f"{number} {severity}" for severity, number in count(found.findings).items() if number)
    head = f"{found.lines:,} lines were read. {f'Findings: {counts}.' if counts else _NOTHING}"
    told = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    parts = [
        f"# Diagnosis of {markdown(found.source)}",
        head + (f" Versions that it tells: {markdown(told)}." if told else ""),
        *(_section(finding) for finding in found.findings),
    ]
    if found.not_understood:
        listed = "\n".join(f"- {markdown(line, longest=460)}" for line in found.not_understood)
        parts.append(
            f"## Not understood\n\nNo pattern knows these lines, so that their finding is a guess:\n\n{listed}"
        )
    return "\n\n".join(parts) + "\n"


def _section(finding: Finding) -> str:
    kind = markdown(finding.error_type.replace("_", " "))
    where = "" if finding.hardware_type == "any" else f" on {markdown(finding.hardware_type)}"
    advice = [f"{number}. {advice_markdown(text)}" for number, text in enumerate(finding.recommendations, 1)]
    parts = [
        f"## {finding.severity}: {kind}{where}",
        markdown(finding.message, longest=800, opens_block=True),
        f"Confidence: {finding.confidence}." + (f" Cells: {len(finding.cells)}." if finding.cells else ""),
    ]
    return "\n\n".join([*parts, *(["What to do:\n\n" + "\n".join(advice)] if advice else [])])


def diagnosis_object(found: TextDiagnosis, timestamp: str) -> dict[str, Any]:
    """The JSON object that `schemas/diagnosis.json` describes."""
    return {
        "schema_version": SCHEMA_VERSION,
        "timestamp": timestamp,
        "source": found.source,
        "lines": found.lines,
        "versions": dict(found.versions),
        "error_counts": count(found.findings),
        "errors": [finding.to_dict() for finding in found.findings],
        "not_understood": list(found.not_understood),
    }


def diagnosis_json(found: TextDiagnosis, timestamp: str) -> str:
    """The text of a JSON document in pure ASCII, ending in a newline."""
    return json_text(diagnosis_object(found, timestamp), ascii_alone=True) + "\n"
