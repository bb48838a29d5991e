"""Writes what a run leaves for people and for CI: one report in each format, of that run alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from generators.job import JobResult
from hardware.evidence.store import read_run

from .formats import FORMATS, SUFFIXES, report_text
from .reporter import HardwareCompatibilityReporter


def write_run_reports(result: JobResult, evidence: Path, folder: Path) -> Path:
    """Write `<run id>.md`, `.json` and `.xml` (JUnit) into `folder`; returns the path of the first.

    Raises `OutputError` where the folder can't be written.
    """
    reporter = HardwareCompatibilityReporter(read_run(evidence, result.run_id), output_folder=folder)
    reporter.collect_compatibility_test_errors()
    report = replace(reporter.report(), runs=reporter.evidence.runs)
    paths = {
        name: reporter.save_to_file(report_text(report, name), f"{result.run_id}.{SUFFIXES[name]}")
        for name in FORMATS
    }
    return paths["markdown"]
