"""What a coverage is made of: model types, their standing on each target, and the results of checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

SUBJECT = "tiny"
"""What was run in all that is counted here."""


class Standing(StrEnum):
    """What is known of a model type on a target. A closed set; only `passed` is a pass."""

    PASSED = "passed"
    CONDITIONAL = "passed_under_condition"
    FAILED = "failed"
    UNDECIDED = "undecided"
    NOT_DERIVED = "not_derived"
    NOT_RUN = "not_run"
    EXCLUDED = "excluded"

    @property
    def words(self) -> str:
        """The standing as it is read."""
        return self.value.replace("_", " ")

    @property
    def meaning(self) -> str:
        """What the standing says, in a sentence."""
        return _MEANINGS[self]

    @property
    def works(self) -> bool:
        """Whether every required check passed, under a condition or without."""
        return self in (Standing.PASSED, Standing.CONDITIONAL)


_MEANINGS = {
    Standing.PASSED: "level high, measured with today's versions: every required check passed",
    Standing.CONDITIONAL: "level medium: every required check passed, under a condition that is stated",
    Standing.FAILED: "level low or none: a check failed, or an operator with parameters ran on the host",
    Standing.UNDECIDED: "checks ran, and what they saw shows neither that it works nor that it doesn't",
    Standing.NOT_DERIVED: "it can be built, and no acceptable tiny model was found",
    Standing.NOT_RUN: "nothing ran whose evidence holds with today's versions",
    Standing.EXCLUDED: "it can't be built here as it comes: no class, a missing package, or defaults that fail",
}


@dataclass(frozen=True, kw_only=True)
class TypeFacts:
    """A model type as transformers maps it. `task` is the primary one, empty where it has no class; so is an
    `architecture` that nothing tells. `obstacle` and `reason` say why it is excluded; empty where it isn't. It counts
    as one that can be built where nobody tried, which `tried` tells."""

    model_type: str
    family: str
    architecture: str
    traits: tuple[str, ...] = ()
    task: str = ""
    tasks: tuple[str, ...] = ()
    obstacle: str = ""
    reason: str = ""
    tried: bool = True


@dataclass(frozen=True, kw_only=True)
class Result:
    """What is known of one model type doing one task on a target.

    `level` is that of the verdict, empty where there is none that holds; `error_types` are those that the
    diagnosis knows.
    """

    model_type: str
    task: str
    standing: Standing
    level: str = ""
    error_types: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class TargetCoverage:
    """One target: a result for each type's primary task in the order of the types, and what ran of other tasks.

    `checks` counts outcomes by check over the types that have a recipe; `devices` are the names of the devices
    that ran what counts, `machines` the labels of the machines.
    """

    target: str
    results: tuple[Result, ...]
    other_tasks: tuple[Result, ...] = ()
    checks: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """What is known of every model type, in alphabetical order, on some targets in one precision."""

    precision: str
    types: tuple[TypeFacts, ...]
    targets: tuple[TargetCoverage, ...]

    @property
    def excluded(self) -> tuple[TypeFacts, ...]:
        """The types that can't be built."""
        return tuple(one for one in self.types if one.obstacle)

    @property
    def untried(self) -> int:
        """How many types nobody has tried to build: they count as ones that can be built."""
        return sum(not one.tried for one in self.types)
