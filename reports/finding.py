"""`Finding`: a graded problem with its cause, its remedies and its evidence."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hwcompat.hardware.plain_values import json_values

from .failure_place import failure_commands, failure_place

COSTS = ("accuracy", "speed", "memory")
"""What a remedy may cost, in display order."""


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """What to `do`, with commands in backticks, and its `cost` as text by kind; empty if it has none."""

    do: str
    cost: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def text(self) -> str:
        """Both as one text: `Use float16. Cost: accuracy (3 digits).`"""
        if not self.cost:
            return self.do
        paid = "; ".join(f"{name} ({self.cost[name]})" for name in COSTS if name in self.cost)
        return f"{self.do} Cost: {paid}."


SCHEMA = Path(__file__).with_name("schemas") / "report.json"
SCHEMA_VERSION = 3
"""Schema version of reports as JSON: `schemas/report.json`."""

ANY_TARGET = "any"
"""The hardware type of a finding about no target, or several."""


class Severity(StrEnum):
    """How bad a finding is, from worst to mildest."""

    CRITICAL = "critical"
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        """3 for critical down to 0 for info."""
        return 3 - list(Severity).index(self)


class Confidence(StrEnum):
    """How certain the error type is: recorded when it was raised, identified by a known message, or guessed."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One root cause, however many checks and cells it breaks.

    `hardware_type` is a target's name or `any`, `component` the part of the product that found it, `timestamp` when
    it was first seen (ISO 8601, UTC), `model_name` the model if it is only one. `cause` is what the message names (an
    operator, a module). `remedies` are what to do, with costs. `cells` are cell ids, `checks` the names of the checks
    that showed it, `evidence_ids` the ids of evidence lines. All texts may quote untrusted sources; commands in
    recommendations are in backticks.
    """

    hardware_type: str
    error_type: str
    severity: Severity
    confidence: Confidence = Confidence.HIGH
    message: str
    component: str
    timestamp: str
    model_name: str | None = None
    cause: str = ""
    remedies: tuple[Remedy, ...] = ()
    traceback: str = ""
    cells: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    evidence_ids: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The same for the same problem in another run: counts and addresses in the message don't matter."""
        where = self.cells[0] if len(self.cells) == 1 else self.model_name or ""
        parts = (self.error_type, self.hardware_type, self.component, where, signature(self.message))
        return f"{self.error_type}-{hashlib.sha256('|'.join(parts).encode(errors='replace')).hexdigest()[:8]}"

    @property
    def recommendations(self) -> tuple[str, ...]:
        """The remedies as texts, each with its cost."""
        return tuple(one.text for one in self.remedies)

    @property
    def place(self) -> str:
        """Where in code it failed; empty if its traceback doesn't tell."""
        return failure_place(self.traceback)

    @property
    def commands(self) -> tuple[str, ...]:
        """Commands that show more of its first cell."""
        return failure_commands(self.cells[0], self.error_type) if self.cells else ()

    @property
    def where(self) -> str:
        """Its cell, or the number of cells and the first; empty if it has none."""
        several = f"{len(self.cells)} cells, for example " if len(self.cells) > 1 else ""
        return several + "".join(self.cells[:1])

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that `schemas/report.json` describes."""
        derived = {"recommendations": list(self.recommendations), "commands": list(self.commands)}
        return {"id": self.id, **json_values(self), **derived, "place": self.place}


class FindingState(StrEnum):
    """A finding compared with a baseline. Only `known` is accepted."""

    NEW = "new"
    WORSE = "worse"
    KNOWN = "known"


@dataclass(frozen=True, kw_only=True)
class FindingComparison:
    """A report compared with a baseline.

    `states` are those of the report's findings, by id and cells. `fixed` are findings of the baseline that are gone
    although their checks ran again; `unseen` are those whose checks didn't run, so that nothing is known.
    """

    name: str
    timestamp: str
    fixed: tuple[Finding, ...] = ()
    unseen: tuple[Finding, ...] = ()
    states: Mapping[tuple[str, tuple[str, ...]], FindingState] = field(default_factory=dict)

    def state(self, finding: Finding) -> FindingState:
        """Return the finding's state against the baseline."""
        return self.states.get((finding.id, finding.cells), FindingState.NEW)

    @property
    def counts(self) -> dict[str, int]:
        """The number of findings that are new, worse, known, fixed and not checked again."""
        states = list(self.states.values())
        counts = {str(state): states.count(state) for state in FindingState}
        return {**counts, "fixed": len(self.fixed), "not checked again": len(self.unseen)}

    @property
    def summary(self) -> str:
        """`1 new, 2 known, 1 fixed`, without zeros."""
        return ", ".join(f"{number} {name}" for name, number in self.counts.items() if number) or "no findings"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that `schemas/report.json` describes."""
        return {
            "name": self.name,
            "timestamp": self.timestamp,
            "fixed": [finding.to_dict() for finding in self.fixed],
            "not_looked_at": [finding.to_dict() for finding in self.unseen],
        }


def signature(message: str) -> str:
    """Return a message without what differs between two sightings of one cause: addresses, numbers, folders."""
    text = re.sub(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?(?:e[+-]?\d+)?", "#", message)
    text = re.sub(r"(?:/[^\s/'\":]+)+/", "", text)
    return " ".join(text.split())[:300]


def count(findings: Iterable[Finding]) -> dict[str, int]:
    """Return the number of findings of each severity; all four are always there."""
    counts = {str(severity): 0 for severity in Severity}
    for finding in findings:
        counts[finding.severity] += 1
    return counts


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings sorted by severity, then target, type and message: the order of every report."""
    return tuple(
        sorted(findings, key=lambda f: (-f.severity.rank, f.hardware_type, f.error_type, f.message, f.cells))
    )
