"""Writes what a run leaves for people and for CI: one report in each format, of that run alone."""

from __future__ import annotations

from pathlib import Path

from generators.job import JobResult
from hardware.evidence.store import read_run

from .formats import FORMATS, SUFFIXES
from .reporter import HardwareCompatibilityReporter


def write_run_reports(result: JobResult, evidence: Path, folder: Path) -> Path:
    """Write `<run id>.md`, `.json` and `.xml` (JUnit) into `folder`; returns the path of the first.

    Raises `OutputError` where the folder can't be written.
    """
    reporter = HardwareCompatibilityReporter(read_run(evidence, result.run_id), output_folder=folder)
    reporter.collect_compatibility_test_errors()
    paths = {
        name: reporter.save_to_file(reporter.generate_report(name), f"{result.run_id}.{SUFFIXES[name]}")
        for name in FORMATS
    }
    return paths["markdown"]
