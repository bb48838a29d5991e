"""Deliver a report: print or write it, with pseudonyms if requested, and pass it to a CI server's step."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hwcompat.hardware.command_line import note
from hwcompat.hardware.files import writing

from .formats.github import LARGEST_SUMMARY, github_annotations, github_summary
from .pseudonyms import Pseudonyms, names_in_command
from .saved_reports import keep

if TYPE_CHECKING:
    from hwcompat.hardware.evidence.store import Evidence

    from .report import Report
    from .reporter import HardwareCompatibilityReporter

SUFFIXES = {"text": "txt", "markdown": "md", "json": "json", "html": "html"}
SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
SUMMARY_FILE = "job_summary.md"


def print_or_write(text: str, folder: Path | None, name: str) -> None:
    """Print a text, or write it completely into a folder under that name. Raises `OutputError`."""
    if folder is None:
        click.echo(text, nl=False)
    else:
        note(f"written: {keep(text, folder, name)}")


def pseudonyms_for(evidence: Evidence, asked: Iterable[str] = ()) -> Pseudonyms:
    """Return pseudonyms for all models in the evidence and in the request."""
    names = [*asked]
    for line in (*evidence.checks, *evidence.other_checks):
        names += [line.cell_id.partition("/")[0], line.model]
    for run in (*evidence.runs, *evidence.other_runs):
        names += [planned.cell_id.partition("/")[0] for planned in run.plan]
        names += names_in_command(run.command)
    return Pseudonyms(names)


def deliver_to_github(report: Report, reporter: HardwareCompatibilityReporter, *, to_files: bool) -> None:
    """Print annotations; write the summary into GitHub's step file or the output folder, else print it before them.

    Raises `OutputError` if the summary can't be written.
    """
    named = os.environ.get(SUMMARY_VARIABLE)
    if named:
        _append(Path(named), report)
    elif to_files:
        note(f"written: {reporter.save_to_file(github_summary(report), SUMMARY_FILE)}")
    else:
        click.echo(github_summary(report))
    click.echo(github_annotations(report), nl=False)


def _append(path: Path, report: Report) -> None:
    """Append the summary to what the step has written, within the remaining size."""
    with writing(f"the job's summary can't be written to {path}", f"Unset {SUMMARY_VARIABLE} to print it."):
        there = path.stat().st_size if path.exists() else 0
        text = "\n" * bool(there) + github_summary(report, room=LARGEST_SUMMARY - there - 1)
        if there + len(text.encode()) > LARGEST_SUMMARY:
            note(f"the summary was not added: with the step's other summaries it exceeds {LARGEST_SUMMARY} bytes")
            return
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    note(f"the summary was added to ${SUMMARY_VARIABLE}")
