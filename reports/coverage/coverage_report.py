"""A coverage report as a JSON object: written, read, and kept as the last report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hwcompat.hardware.errors import BrokenInput, echo
from hwcompat.hardware.plain_text import json_text
from hwcompat.hardware.plain_values import from_values, json_values

from ..saved_reports import keep, read_kept
from .coverage_changes import CoverageChanges, changes_between
from .coverage_facts import (
    RAN,
    SUBJECT,
    VIEWS,
    Coverage,
    CoverageCounts,
    TargetCoverage,
    by_task,
    grouped,
    percent,
)

SCHEMA = Path(__file__).parents[1] / "schemas" / "coverage.json"
SCHEMA_VERSION = 1

TRANSFORMERS = "transformers"


@dataclass(frozen=True, kw_only=True)
class CoverageReport:
    """A coverage with the `versions` of this installation and the label of the `machine` that made the report."""

    timestamp: str
    command: str
    machine: str
    versions: Mapping[str, str]
    coverage: Coverage
    changes: CoverageChanges | None = None

    @property
    def transformers(self) -> str:
        """The version of transformers that the types are from."""
        return self.versions[TRANSFORMERS]

    def compared(self, earlier: CoverageReport, *, go_on: bool) -> CoverageReport:
        """Return the report with its differences from an earlier one.

        If nothing differs and `go_on`, it is compared with what the earlier one was compared with, so that a report
        that is made twice has the same news.
        """
        changes = changes_between(
            earlier.coverage, self.coverage, since=earlier.timestamp, transformers=earlier.transformers
        )
        if go_on and earlier.changes is not None and changes.is_empty(self.transformers):
            changes = earlier.changes
        return replace(self, changes=changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that `schemas/coverage.json` describes: facts and counts."""
        excluded = len(self.coverage.excluded)
        return {
            "schema_version": SCHEMA_VERSION,
            "timestamp": self.timestamp,
            "command": self.command,
            "machine": self.machine,
            "versions": dict(sorted(self.versions.items())),
            "precision": self.coverage.precision,
            "subject": SUBJECT,
            "types": json_values(self.coverage.types),
            "excluded": {"types": excluded, "percent_of_types": percent(excluded, len(self.coverage.types))},
            "targets": {one.target: _target_object(self.coverage, one) for one in self.coverage.targets},
            "changes": json_values(self.changes),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CoverageReport:
        """Read what `to_dict` wrote, from its facts only. Expects an object that fits the schema."""
        counts = ("counts", "by", "tasks")
        targets = [
            {"target": target, **{name: part for name, part in one.items() if name not in counts}}
            for target, one in data["targets"].items()
        ]
        coverage = {"precision": data["precision"], "types": data["types"], "targets": targets}
        own = {name: data[name] for name in ("timestamp", "command", "machine", "versions", "changes")}
        return from_values(cls, {**own, "coverage": coverage})


def _target_object(coverage: Coverage, target: TargetCoverage) -> dict[str, Any]:
    facts = {name: value for name, value in json_values(target).items() if name != "target"}
    return {
        "counts": CoverageCounts.of(target.results).to_dict(),
        "by": {
            view: {name: counts.to_dict() for name, counts in grouped(coverage, target, view).items()}
            for view in VIEWS
        },
        "tasks": {name: counts.to_dict("mapped", RAN) for name, counts in by_task(coverage, target).items()},
        **facts,
    }


def coverage_json(report: CoverageReport) -> str:
    """Return a JSON report that ends in a newline, in ASCII, so that it has no terminal commands."""
    return json_text(report.to_dict(), indent=1, ascii_alone=True) + "\n"


def read_report(path: Path) -> CoverageReport:
    """Read a JSON report. Raises `BrokenInput` if it isn't one."""
    fix = "hwcompat coverage --format json writes one. You can delete the stored last report."
    data = read_kept(path, SCHEMA, "coverage report", fix)
    types = [one["model_type"] for one in data["types"]]
    if any([one["model_type"] for one in target["results"]] != types for target in data["targets"].values()):
        why = "its results don't match its types"
        raise BrokenInput(f"{echo(path.name)} is not a coverage report", why=why, fix=fix)
    return CoverageReport.from_dict(data)


def last_report(folder: Path, coverage: Coverage) -> Path:
    """Return the path of the last report of the same targets and precision."""
    targets = "-".join(one.target.replace(":", "_") for one in coverage.targets)
    return folder / f"coverage-last-{targets}-{coverage.precision}.json"


def keep_report(report: CoverageReport, folder: Path) -> Path:
    """Keep a report as the last one. Raises `OutputError`."""
    return keep(coverage_json(report), folder, last_report(folder, report.coverage).name, "--report-dir")
