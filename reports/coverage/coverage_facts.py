"""What a coverage is made of: model types, their standing on each target, the results of checks, and the counts that
follow from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from generators.compatibility.vocabulary import vocabulary

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
class Excluded:
    """Why a type can't be built."""

    obstacle: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class TypeFacts:
    """A model type as transformers maps it. `task` is the primary one, None where it has no class; so is an
    `architecture` that nothing tells. It counts as one that can be built where nobody tried, which `tried` tells."""

    model_type: str
    family: str
    architecture: str | None = None
    traits: Sequence[str] = ()
    task: str | None = None
    tasks: Sequence[str] = ()
    excluded: Excluded | None = None
    tried: bool = True


@dataclass(frozen=True, kw_only=True)
class Result:
    """What is known of one model type doing one task on a target.

    `level` is that of the verdict, None where there is none that holds; `error_types` are those that the
    diagnosis knows.
    """

    model_type: str
    task: str | None
    standing: Standing
    level: str | None = None
    error_types: Sequence[str] = ()
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class TargetCoverage:
    """One target: a result for each type's primary task in the order of the types, and what ran of other tasks.

    `checks` counts outcomes by check over the types that have a recipe; `devices` are the names of the devices
    that ran what counts, `machines` the labels of the machines.
    """

    target: str
    results: Sequence[Result]
    other_tasks: Sequence[Result] = ()
    checks: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    devices: Sequence[str] = ()
    machines: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """What is known of every model type, in alphabetical order, on some targets in one precision."""

    precision: str
    types: Sequence[TypeFacts]
    targets: Sequence[TargetCoverage]

    @property
    def excluded(self) -> tuple[TypeFacts, ...]:
        """The types that can't be built."""
        return tuple(one for one in self.types if one.excluded)

    @property
    def untried(self) -> int:
        """How many types nobody has tried to build: they count as ones that can be built."""
        return sum(not one.tried for one in self.types)


UNCLASSIFIED = "not classified"
NO_TRAIT = "no trait"
NO_TASK = "no task"

_LAST = (UNCLASSIFIED, NO_TRAIT, NO_TASK)

VIEWS: Mapping[str, Callable[[TypeFacts], Sequence[str]]] = {
    "architecture": lambda facts: [facts.architecture or UNCLASSIFIED],
    "trait": lambda facts: facts.traits or [NO_TRAIT],
    "family": lambda facts: [facts.family],
    "task": lambda facts: [facts.task or NO_TASK],
}
"""What types are grouped by; the task is the primary one, and a type may have several traits."""

OPEN = (Standing.FAILED, Standing.UNDECIDED, Standing.NOT_DERIVED, Standing.NOT_RUN)
"""Standings of types that can be built and aren't shown to work, the worst first."""

RAN = (Standing.PASSED, Standing.CONDITIONAL, Standing.FAILED, Standing.UNDECIDED)
"""Standings of what ran."""


@dataclass(frozen=True, kw_only=True)
class CoverageCounts:
    """How many model types have which standing."""

    by_standing: Mapping[Standing, int]

    @classmethod
    def of(cls, results: Iterable[Result]) -> CoverageCounts:
        """The counts of some results."""
        return cls(by_standing=Counter(result.standing for result in results))

    def __getitem__(self, standing: Standing) -> int:
        return self.by_standing.get(standing, 0)

    @property
    def types(self) -> int:
        """All of them, those that can't be built included."""
        return sum(self.by_standing.values())

    @property
    def buildable(self) -> int:
        """Those that can be built."""
        return self.types - self[Standing.EXCLUDED]

    @property
    def share(self) -> str:
        """Types that passed without a condition: `412 of the 456 types that can be built (90.4 %); of all 499 …`."""
        passed = self[Standing.PASSED]
        return (
            f"{passed} of the {self.buildable} types that can be built ({in_percent(passed, self.buildable)}); "
            f"of all {self.types} types, {in_percent(passed, self.types)}"
        )

    def to_dict(self, whole: str = "types", standings: Iterable[Standing] = Standing) -> dict[str, float | None]:
        """Plain JSON values; `whole` is what all of them are called."""
        passed = self[Standing.PASSED]
        return {
            whole: self.types,
            "buildable": self.buildable,
            **{str(standing): self[standing] for standing in standings},
            "percent_of_buildable": percent(passed, self.buildable),
            f"percent_of_{whole}": percent(passed, self.types),
        }


def grouped(coverage: Coverage, target: TargetCoverage, view: str) -> dict[str, CoverageCounts]:
    """Counts by what a view of `VIEWS` names; a type may be in several groups.

    Families, architectures and traits are in the order of the vocabulary, tasks by name, and what has none is last.
    """
    groups: dict[str, list[Result]] = {}
    for facts, result in zip(coverage.types, target.results, strict=True):
        for name in VIEWS[view](facts):
            groups.setdefault(name, []).append(result)
    words = vocabulary()
    known = {"family": words.families, "architecture": words.architectures, "trait": words.traits}.get(view, ())
    order = {name: place for place, name in enumerate(known)}
    names = sorted(groups, key=lambda name: (name in _LAST, order.get(name, len(order)), name))
    return {name: CoverageCounts.of(groups[name]) for name in names}


def by_task(coverage: Coverage, target: TargetCoverage) -> dict[str, CoverageCounts]:
    """Counts of every task that a class is mapped for, primary or not, by its name. What has no standing of `RAN` was
    not run, or can't be built."""
    ran = {
        (one.model_type, one.task): one.standing
        for one in (*target.results, *target.other_tasks)
        if one.standing in RAN
    }
    found: dict[str, Counter[Standing]] = {}
    for facts in coverage.types:
        idle = Standing.EXCLUDED if facts.excluded else Standing.NOT_RUN
        for task in facts.tasks:
            found.setdefault(task, Counter())[ran.get((facts.model_type, task), idle)] += 1
    return {name: CoverageCounts(by_standing=found[name]) for name in sorted(found)}


def percent(part: int, whole: int) -> float | None:
    """To one decimal; never 100 where something is missing, nor 0 where something is there; None of nothing."""
    if not whole:
        return None
    rounded = round(100 * part / whole, 1)
    return min(max(rounded, 0.1), 99.9) if 0 < part < whole else rounded


def in_percent(part: int, whole: int) -> str:
    """`90.4 %`; `-` of nothing."""
    number = percent(part, whole)
    return "-" if number is None else f"{number:.1f} %"
