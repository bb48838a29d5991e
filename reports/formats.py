"""The formats that a report can have, by name: one file each."""

from __future__ import annotations

from collections.abc import Callable

from hardware.errors import UsageError, did_you_mean, echo

from .github_report import github_report
from .gitlab_report import gitlab_report
from .html.html_report import html_report
from .json_report import json_report
from .junit_report import junit_report
from .markdown_report import markdown_report
from .report import Report
from .sarif_report import sarif_report

FORMATS: dict[str, Callable[[Report], str]] = {
    "markdown": markdown_report,
    "json": json_report,
    "html": html_report,
    "junit": junit_report,
    "sarif": sarif_report,
    "github": github_report,
    "gitlab": gitlab_report,
}

SUFFIXES = {
    "markdown": "md",
    "json": "json",
    "html": "html",
    "junit": "xml",
    "sarif": "sarif",
    "github": "github.md",
    "gitlab": "gitlab.json",
}

OF_A_RUN = ("markdown", "json", "html", "junit", "sarif")
"""What every run writes; the others are for a server that runs it, and are asked for."""


def report_text(report: Report, format: str = "markdown") -> str:
    """The report in a format. Raises `UsageError` for an unknown one."""
    if format not in FORMATS:
        fix = did_you_mean(format, FORMATS) or f"Known: {', '.join(FORMATS)}."
        raise UsageError(f"{echo(format)} is not a format of a report", fix=fix)
    return FORMATS[format](report)
