"""The result of a comparison of runs, machines or folders: differences and changes, worse first
(`cell_changes.py`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from hwcompat.generators.compatibility.run_summary import RunState, RunSummary, is_to_come, moment_of
from hwcompat.generators.compatibility.verdict import Reason
from hwcompat.hardware.evidence.record import RunLine
from hwcompat.hardware.evidence.versions import expired_by
from hwcompat.hardware.inventory_diff import Difference
from hwcompat.hardware.plain_values import json_values

from ..finding import Severity
from ..reason_text import texts
from .causes import Cause, Differing, Slower

COMPARISON_SCHEMA = Path(__file__).parents[1] / "schemas" / "comparison.json"
COMPARISON_SCHEMA_VERSION = 1


class ChangeKind(StrEnum):
    """How a cell changed, in display order."""

    WORSE = "worse"
    FLAKY = "flaky"
    SLOWER = "slower"
    CHANGED = "changed"
    NEVER = "never green"
    BETTER = "better"
    NEW = "new"
    GONE = "gone"

    @property
    def meaning(self) -> str:
        """What the kind means for a cell."""
        return _MEANINGS[self]

    @property
    def severity(self) -> Severity:
        """The severity for `--fail-on`."""
        return _SEVERITIES.get(self, Severity.INFO)


_MEANINGS = {
    ChangeKind.WORSE: "it was green and isn't now, another check fails, or its result is no longer known",
    ChangeKind.FLAKY: "it alternates between passing and failing, in runs without a recorded difference",
    ChangeKind.SLOWER: "still green, and slower by more than the spread of both sides",
    ChangeKind.CHANGED: "the state is the same, but a detail changed",
    ChangeKind.NEVER: "not green in any available run",
    ChangeKind.BETTER: "it is green and wasn't before, or failed checks pass now",
    ChangeKind.NEW: "only in the second",
    ChangeKind.GONE: "only in the first",
}
_SEVERITIES = {
    ChangeKind.WORSE: Severity.ERROR,
    ChangeKind.FLAKY: Severity.WARNING,
    ChangeKind.SLOWER: Severity.WARNING,
    ChangeKind.CHANGED: Severity.WARNING,
    ChangeKind.GONE: Severity.WARNING,
}


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side of the comparison: `name` as the user gave it, `runs` newest first.

    `showings` has the summary of one run for each cell, by its id.
    """

    name: str
    runs: tuple[RunLine, ...]
    showings: Mapping[str, RunSummary]

    @property
    def counts(self) -> dict[RunState, int]:
        """The number of cells in each state."""
        counted = Counter(one.state for one in self.showings.values())
        return {state: counted[state] for state in RunState}

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        runs = [
            {"run_id": run.run_id, "started_at": run.started_at, "machine": run.machine, "command": run.command}
            for run in self.runs
        ]
        return {"name": self.name, "runs": runs, "counts": json_values(self.counts)}


@dataclass(frozen=True, kw_only=True)
class CellChange:
    """A cell that has changed: its summary in a run before, and in a run now.

    `cause` is what differs between these runs, `alternating` are the runs of a flaky cell; `remarks` are further
    notes.
    """

    cell: str
    kind: ChangeKind
    before: RunSummary | None
    now: RunSummary | None
    cause: Cause | None = None
    alternating: tuple[RunSummary, ...] = ()
    slower: Slower | None = None
    remarks: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[int, int, int, str]:
        """Sort key, the worst first: by kind, then by the present state, then by the state before."""
        now = -self.now.state.rank if self.now else 0
        return list(ChangeKind).index(self.kind), now, self.before.state.rank if self.before else 0, self.cell

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Why the cell isn't green now, else why it wasn't."""
        return (self.now.reasons if self.now else ()) or (self.before.reasons if self.before else ())

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "cell": self.cell,
            "kind": str(self.kind),
            "severity": str(self.kind.severity),
            "before": self.before and _showing_dict(self.before),
            "now": self.now and _showing_dict(self.now),
            "cause": self.cause and self.cause.to_dict(),
            "alternating": [
                {"run_id": one.run.run_id, "started_at": one.run.started_at, "state": str(one.state)}
                for one in self.alternating
            ],
            "slower": self.slower and self.slower.to_dict(),
            "remarks": list(self.remarks),
        }


def _showing_dict(one: RunSummary) -> dict[str, Any]:
    return {
        "run_id": one.run.run_id,
        "started_at": one.run.started_at,
        "machine": one.run.machine,
        "state": str(one.state),
        "level": str(one.level),
        "subject": one.planned.subject,
        "failing": list(one.failing),
        "reasons": list(texts(one.reasons)),
    }


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A difference with the cells that got worse with it, and those for which it is the only difference."""

    differing: Differing
    cells: tuple[str, ...]
    alone: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**json_values(self.differing), "cells": list(self.cells), "alone": list(self.alone)}


@dataclass(frozen=True, kw_only=True)
class RunComparison:
    """Two sides, their differences, and the changes, worst first; `same` counts unchanged cells by state.

    With `last_green`, `before` has the last green run of each cell that isn't green now, and only changes have
    differences. `suites` are cells whose suites, weights or tolerances differ, by kind.
    """

    last_green: bool
    before: Side
    now: Side
    inventory: tuple[Difference, ...]
    versions: tuple[Differing, ...]
    suites: Mapping[str, tuple[str, ...]]
    changes: tuple[CellChange, ...]
    same: Mapping[RunState, int]
    remarks: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[ChangeKind, int]:
        """The number of cells for each kind of change."""
        counted = Counter(change.kind for change in self.changes)
        return {kind: counted[kind] for kind in ChangeKind}

    @property
    def suspects(self) -> tuple[Suspect, ...]:
        """Possible causes of what got worse, those that are the only difference of most cells first."""
        found: dict[Differing, list[CellChange]] = {}
        for change in self.changes:
            for one in change.cause.candidates if change.cause and change.kind is ChangeKind.WORSE else ():
                # Hashes of suites differ together and say nothing.
                sides = {"before": "each cell's own", "after": "another"} if one.kind == "suite" else {}
                found.setdefault(replace(one, details=(), **sides), []).append(change)
        suspects = [
            Suspect(
                differing=one,
                cells=tuple(change.cell for change in changes),
                alone=tuple(change.cell for change in changes if change.cause and change.cause.single),
            )
            for one, changes in found.items()
        ]
        return tuple(sorted(suspects, key=lambda one: (-len(one.alone), -len(one.cells), str(one.differing))))

    def met(self, fail_on: str) -> int:
        """Return the number of cells that changed with this severity or a worse one."""
        limit = Severity(fail_on).rank
        return sum(change.kind.severity.rank >= limit for change in self.changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that `schemas/comparison.json` describes."""
        return {
            "schema_version": COMPARISON_SCHEMA_VERSION,
            "last_green": self.last_green,
            "before": self.before.to_dict(),
            "now": self.now.to_dict(),
            "inventory": [
                {"area": one.area, "name": one.name, "before": one.before, "after": one.after}
                for one in self.inventory
            ],
            "versions": [json_values(one) | {"expires": list(expired_by(one.name))} for one in self.versions],
            "suites": json_values(self.suites),
            "suspects": [one.to_dict() for one in self.suspects],
            "same": json_values(self.same),
            "counts": json_values(self.counts),
            "changes": [change.to_dict() for change in self.changes],
            "remarks": list(self.remarks),
        }


def when(run: RunLine) -> str:
    """Return the start of a run, to the minute, in UTC."""
    moment = moment_of(run)
    if moment.year == 1:
        return "unknown"
    return f"{moment:%Y-%m-%d %H:%M}" + (" (ahead)" if is_to_come(run) else "")
