"""A coverage report as a JSON object: written, read, and kept as the last report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hwcompat.hardware.errors import BrokenInput, echo
from hwcompat.hardware.plain_text import json_text
from hwcompat.hardware.plain_values import from_values, json_values

from ..saved_reports import keep, read_kept
from .coverage_facts import (
    RAN,
    SUBJECT,
    VIEWS,
    Coverage,
    CoverageCounts,
    CoverageStatus,
    TargetCoverage,
    by_task,
    grouped,
    percent,
)

SCHEMA = Path(__file__).parents[1] / "schemas" / "coverage.json"
SCHEMA_VERSION = 1

TRANSFORMERS = "transformers"


NO_OBSTACLE = "none"


@dataclass(frozen=True, kw_only=True)
class Move:
    """A model type whose standing on a target, or whose obstacle, has changed."""

    model_type: str
    before: str
    now: str


@dataclass(frozen=True, kw_only=True)
class CoverageChanges:
    """The difference from the report of `since` with the version `transformers`; `moves` by target.

    `not_compared` are targets that the earlier report doesn't have.
    """

    since: str
    transformers: str
    new: Sequence[str]
    vanished: Sequence[str]
    obstacles: Sequence[Move]
    moves: Mapping[str, Sequence[Move]]
    not_compared: Sequence[str] = ()

    def is_empty(self, transformers: str) -> bool:
        """Whether nothing differs, including the version of transformers."""
        lists = (self.new, self.vanished, self.obstacles, self.not_compared, *self.moves.values())
        return self.transformers == transformers and not any(lists)

    def sentence(self, transformers: str) -> str:
        """Return which report it was compared with, and whether anything changed."""
        other = self.transformers != transformers
        versions = f" of transformers {self.transformers}" if other else ""
        now = f", now {transformers}" if other else ""
        nothing = "" if any(self.lists()) else ": nothing changed"
        return f"Compared with the report{versions} of {self.since[:19].replace('T', ' ')} UTC{now}{nothing}."

    def lists(self) -> Iterator[str]:
        """Return the differences as lists: a heading, the number of types, and their names by kind of change."""
        named: dict[str, Mapping[str, Sequence[str]]] = {
            f"{target}: {heading}": _by_change([move for move in moves if fits(move)])
            for target, moves in self.moves.items()
            for heading, fits in _MOVES.items()
        }
        named["new types"] = {"": self.new}
        named["vanished types"] = {"": self.vanished}
        named["changed obstacles"] = _by_change(self.obstacles)
        named["not in the earlier report"] = {"": self.not_compared}
        for heading, ways in named.items():
            number = sum(map(len, ways.values()))
            words = (f"{way}: {', '.join(names)}" if way else ", ".join(names) for way, names in ways.items())
            if number:
                yield f"{heading} ({number}): {'; '.join(words)}"


def _passes_newly(move: Move) -> bool:
    """Whether it works better than before."""
    ranks = {CoverageStatus.PASSED: 2, CoverageStatus.CONDITIONAL: 1}
    return ranks.get(CoverageStatus(move.now), 0) > ranks.get(CoverageStatus(move.before), 0)


def _fails_newly(move: Move) -> bool:
    """Whether a check fails now; one that only wasn't run again doesn't."""
    return move.now == CoverageStatus.FAILED


_MOVES: Mapping[str, Callable[[Move], bool]] = {
    "newly passing": _passes_newly,
    "newly failing": _fails_newly,
    "changed otherwise": lambda move: not (_passes_newly(move) or _fails_newly(move)),
}
"""The lists of a target's moves."""


def _by_change(moves: Sequence[Move]) -> dict[str, list[str]]:
    """Return the types by `failed → passed`."""
    found: dict[str, list[str]] = {}
    for move in moves:
        found.setdefault(f"{move.before} → {move.now}".replace("_", " "), []).append(move.model_type)
    return dict(sorted(found.items()))


def changes_between(before: Coverage, now: Coverage, *, since: str, transformers: str) -> CoverageChanges:
    """Compare `now` with `before`, a coverage of the version `transformers` made at `since`."""
    then = {one.target: {result.model_type: result.standing for result in one.results} for one in before.targets}
    standings = {one.target: {result.model_type: result.standing for result in one.results} for one in now.targets}
    old, new = _obstacles(before), _obstacles(now)
    return CoverageChanges(
        since=since,
        transformers=transformers,
        new=[name for name in new if name not in old],
        vanished=[name for name in old if name not in new],
        obstacles=_moves(old, new),
        moves={target: _moves(then[target], found) for target, found in standings.items() if target in then},
        not_compared=[target for target in standings if target not in then],
    )


def _moves(before: Mapping[str, str], now: Mapping[str, str]) -> list[Move]:
    return [
        Move(model_type=name, before=str(before[name]), now=str(found))
        for name, found in now.items()
        if before.get(name, found) != found
    ]


def _obstacles(coverage: Coverage) -> dict[str, str]:
    """Return why each type has no recipe, as a word of `Obstacle`; `none` if it has one."""
    refused = {
        result.model_type
        for target in coverage.targets
        for result in target.results
        if result.standing is CoverageStatus.NOT_DERIVED
    }
    return {
        one.model_type: one.excluded.obstacle
        if one.excluded
        else str(CoverageStatus.NOT_DERIVED)
        if one.model_type in refused
        else NO_OBSTACLE
        for one in coverage.types
    }


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
