"""A coverage with what has to be said of it, as one JSON object: written, read again, and kept as the last report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hardware.errors import BrokenInput, OutputError, echo
from hardware.plain_text import json_text, one_line
from hardware.untrusted import read_json, reason_of
from hardware.whole_file import write_whole

from ..text import json_values
from .changes import Changes, changes_between
from .facts import (
    SUBJECT,
    VIEWS,
    Counts,
    Coverage,
    Result,
    Standing,
    TargetCoverage,
    TypeFacts,
    by_task,
    grouped,
    percent,
)

SCHEMA = Path(__file__).parents[1] / "schemas" / "coverage.json"
SCHEMA_VERSION = 1

TRANSFORMERS = "transformers"

_LARGEST = 64 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class CoverageReport:
    """`versions` are those of this installation, `machine` the label of the machine that made the report."""

    timestamp: str
    command: str
    machine: str
    versions: Mapping[str, str]
    coverage: Coverage
    changes: Changes | None = None

    @property
    def transformers(self) -> str:
        """The version of transformers whose types these are."""
        return self.versions[TRANSFORMERS]

    def compared(self, earlier: CoverageReport, *, go_on: bool) -> CoverageReport:
        """The same report with what differs from an earlier one.

        Where nothing differs and `go_on`, it is compared with what the earlier one was compared with: a report that
        is made twice says twice what is new.
        """
        changes = changes_between(
            earlier.coverage, self.coverage, since=earlier.timestamp, transformers=earlier.transformers
        )
        if go_on and earlier.changes is not None and changes.is_empty(self.transformers):
            changes = earlier.changes
        return replace(self, changes=changes)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that `schemas/coverage.json` describes: facts, and the counts that follow from them."""
        excluded = len(self.coverage.excluded)
        return {
            "schema_version": SCHEMA_VERSION,
            "timestamp": self.timestamp,
            "command": self.command,
            "machine": self.machine,
            "versions": dict(sorted(self.versions.items())),
            "precision": self.coverage.precision,
            "subject": SUBJECT,
            "types": [_type_object(one) for one in self.coverage.types],
            "excluded": {"types": excluded, "percent_of_types": percent(excluded, len(self.coverage.types))},
            "targets": {one.target: _target_object(self.coverage, one) for one in self.coverage.targets},
            "changes": json_values(self.changes),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CoverageReport:
        """The report that `to_dict` wrote, from its facts alone; the counts follow. Expects what fits the schema."""
        types = tuple(_type_facts(one) for one in data["types"])
        return cls(
            timestamp=data["timestamp"],
            command=data["command"],
            machine=data["machine"],
            versions=data["versions"],
            coverage=Coverage(
                precision=data["precision"],
                types=types,
                targets=tuple(_target_coverage(name, one) for name, one in data["targets"].items()),
            ),
            changes=None if data["changes"] is None else Changes.from_dict(data["changes"]),
        )


def _type_object(facts: TypeFacts) -> dict[str, Any]:
    excluded = {"obstacle": facts.obstacle, "reason": facts.reason} if facts.obstacle else None
    return {
        "model_type": facts.model_type,
        "family": facts.family,
        "architecture": facts.architecture or None,
        "traits": list(facts.traits),
        "task": facts.task or None,
        "tasks": list(facts.tasks),
        "excluded": excluded,
        "tried": facts.tried,
    }


def _type_facts(data: Mapping[str, Any]) -> TypeFacts:
    excluded = data["excluded"] or {}
    return TypeFacts(
        model_type=data["model_type"],
        family=data["family"],
        architecture=data["architecture"] or "",
        traits=tuple(data["traits"]),
        task=data["task"] or "",
        tasks=tuple(data["tasks"]),
        obstacle=excluded.get("obstacle", ""),
        reason=excluded.get("reason", ""),
        tried=data["tried"],
    )


def _target_object(coverage: Coverage, target: TargetCoverage) -> dict[str, Any]:
    return {
        "counts": Counts.of(target.results).to_dict(),
        "by": {
            view: {name: counts.to_dict() for name, counts in grouped(coverage, target, view).items()}
            for view in VIEWS
        },
        "tasks": {name: counts.to_dict() for name, counts in by_task(coverage, target).items()},
        "checks": {name: dict(outcomes) for name, outcomes in target.checks.items()},
        "devices": list(target.devices),
        "machines": list(target.machines),
        "results": [_result_object(one) for one in target.results],
        "other_tasks": [_result_object(one) for one in target.other_tasks],
    }


def _target_coverage(name: str, data: Mapping[str, Any]) -> TargetCoverage:
    return TargetCoverage(
        target=name,
        results=tuple(_result(one) for one in data["results"]),
        other_tasks=tuple(_result(one) for one in data["other_tasks"]),
        checks=data["checks"],
        devices=tuple(data["devices"]),
        machines=tuple(data["machines"]),
    )


def _result_object(result: Result) -> dict[str, Any]:
    return {
        "model_type": result.model_type,
        "task": result.task or None,
        "standing": str(result.standing),
        "level": result.level or None,
        "error_types": list(result.error_types),
        "reason": result.reason,
    }


def _result(data: Mapping[str, Any]) -> Result:
    return Result(
        model_type=data["model_type"],
        task=data["task"] or "",
        standing=Standing(data["standing"]),
        level=data["level"] or "",
        error_types=tuple(data["error_types"]),
        reason=data["reason"],
    )


def schema() -> dict[str, Any]:
    """The published JSON Schema."""
    loaded: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return loaded


def coverage_json(report: CoverageReport) -> str:
    """The text of a JSON report, ending in a newline. Pure ASCII, so that no terminal is given a command."""
    return json_text(report.to_dict(), indent=1, ascii_alone=True) + "\n"


def read_report(path: Path) -> CoverageReport:
    """The report in a JSON file. Raises `BrokenInput` where it isn't one."""
    import jsonschema

    try:
        data = read_json(path, longest=_LARGEST)
        wrong = next(jsonschema.Draft202012Validator(schema()).iter_errors(data), None)
        types = [] if wrong else [one["model_type"] for one in data["types"]]
        lists = [] if wrong else [one["results"] for one in data["targets"].values()]
        if wrong is None and all([one["model_type"] for one in results] == types for results in lists):
            return CoverageReport.from_dict(data)
        why = (
            one_line(f"{wrong.json_path}: {wrong.message[:200]}")
            if wrong
            else "its results aren't those of its types"
        )
    except (OSError, ValueError) as error:
        why = reason_of(error)
    raise BrokenInput(
        f"{echo(str(path))} is not a coverage report in JSON",
        why=why,
        fix="--coverage-report --format json writes one; one that was kept as the last can be deleted.",
    )


def last_report(folder: Path, coverage: Coverage) -> Path:
    """Where the last report of the same targets and precision is kept."""
    targets = "-".join(one.target.replace(":", "_") for one in coverage.targets)
    return folder / f"coverage-last-{targets}-{coverage.precision}.json"


def keep_report(report: CoverageReport, folder: Path) -> Path:
    """Keep a report as the last one. Raises `OutputError`."""
    path = last_report(folder, report.coverage)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, coverage_json(report))
    except OSError as error:
        raise OutputError(
            f"the report cannot be kept in {folder}",
            why=error.strerror or str(error),
            fix="Name another folder with --report-dir.",
        ) from error
    return path
