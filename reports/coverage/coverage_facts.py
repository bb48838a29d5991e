"""The parts of a coverage: model types, their standing on each target, results of checks, and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from hwcompat.generators.compatibility.vocabulary import vocabulary

SUBJECT = "tiny"
"""The weights that are counted."""


class CoverageStatus(StrEnum):
    """What is known about a model type on a target. A closed set; only `passed` is a pass."""

    PASSED = "passed"
    CONDITIONAL = "passed_under_condition"
    FAILED = "failed"
    UNDECIDED = "undecided"
    NOT_DERIVED = "not_derived"
    NOT_RUN = "not_run"
    EXCLUDED = "excluded"

    @property
    def words(self) -> str:
        """The standing as text."""
        return self.value.replace("_", " ")

    @property
    def meaning(self) -> str:
        """The meaning of the standing as a sentence."""
        return _MEANINGS[self]

    @property
    def works(self) -> bool:
        """Whether every required check passed, with or without a condition."""
        return self in (CoverageStatus.PASSED, CoverageStatus.CONDITIONAL)


_MEANINGS = {
    CoverageStatus.PASSED: "level high, measured with the current versions: every required check passed",
    CoverageStatus.CONDITIONAL: "level medium: every required check passed under a stated condition",
    CoverageStatus.FAILED: "level low or unsupported: a check failed, or an operator with parameters ran on the host",
    CoverageStatus.UNDECIDED: "checks ran, but their results are inconclusive",
    CoverageStatus.NOT_DERIVED: "it can be built, but no acceptable tiny model was found",
    CoverageStatus.NOT_RUN: "no evidence is valid with the current versions",
    CoverageStatus.EXCLUDED: "it can't be built with its defaults: no class, a missing package, or failing defaults",
}


@dataclass(frozen=True, kw_only=True)
class Excluded:
    """Why a type can't be built."""

    obstacle: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class TypeFacts:
    """A model type of transformers. `task` is the primary one, None without a class; `architecture` is None if
    unknown. A type that wasn't tried (`tried`) counts as buildable. Its suite enters the first of `branches` of the
    modeling code, the second is all; empty if they weren't counted."""

    model_type: str
    family: str
    architecture: str | None = None
    traits: Sequence[str] = ()
    task: str | None = None
    tasks: Sequence[str] = ()
    excluded: Excluded | None = None
    tried: bool = True
    branches: Sequence[int] = ()

    @property
    def entered(self) -> float | None:
        """The entered share of the branches, None if they weren't counted."""
        return self.branches[0] / max(1, self.branches[1]) if self.branches else None


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of a model type with one task on a target.

    `level` is that of the verdict, None if there is none that holds; `error_types` are those that the diagnosis
    knows.
    """

    model_type: str
    task: str | None
    standing: CoverageStatus
    level: str | None = None
    error_types: Sequence[str] = ()
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class TargetCoverage:
    """A target: a result for each type's primary task in the order of the types, and results of other tasks.

    `checks` counts outcomes by check over the types that have a recipe; `devices` are the names of the devices that
    ran what counts, `machines` the labels of the machines.
    """

    target: str
    results: Sequence[Result]
    other_tasks: Sequence[Result] = ()
    checks: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    devices: Sequence[str] = ()
    machines: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """What is known about every model type, in alphabetical order, on some targets in one precision."""

    precision: str
    types: Sequence[TypeFacts]
    targets: Sequence[TargetCoverage]

    @property
    def excluded(self) -> tuple[TypeFacts, ...]:
        """The types that can't be built."""
        return tuple(one for one in self.types if one.excluded)

    @property
    def untried(self) -> int:
        """The number of types that were never tried: they count as buildable."""
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
"""Groups of types; the task is the primary one, and a type may have several traits."""

OPEN = (CoverageStatus.FAILED, CoverageStatus.UNDECIDED, CoverageStatus.NOT_DERIVED, CoverageStatus.NOT_RUN)
"""Standings of buildable types that aren't shown to work, the worst first."""

RAN = (CoverageStatus.PASSED, CoverageStatus.CONDITIONAL, CoverageStatus.FAILED, CoverageStatus.UNDECIDED)
"""Standings of types that ran."""


@dataclass(frozen=True, kw_only=True)
class CoverageCounts:
    """The number of model types by standing."""

    by_standing: Mapping[CoverageStatus, int]

    @classmethod
    def of(cls, results: Iterable[Result]) -> CoverageCounts:
        """Count some results."""
        return cls(by_standing=Counter(result.standing for result in results))

    def __getitem__(self, standing: CoverageStatus) -> int:
        return self.by_standing.get(standing, 0)

    @property
    def types(self) -> int:
        """All types, including those that can't be built."""
        return sum(self.by_standing.values())

    @property
    def buildable(self) -> int:
        """The types that can be built."""
        return self.types - self[CoverageStatus.EXCLUDED]

    @property
    def share(self) -> str:
        """Types that passed without a condition: `412 of the 456 types that can be built (90.4 %); of all 499 …`."""
        passed = self[CoverageStatus.PASSED]
        return (
            f"{passed} of the {self.buildable} types that can be built ({in_percent(passed, self.buildable)}); "
            f"of all {self.types} types, {in_percent(passed, self.types)}"
        )

    def to_dict(
        self, whole: str = "types", standings: Iterable[CoverageStatus] = CoverageStatus
    ) -> dict[str, float | None]:
        """Return plain JSON values; `whole` is the name for all of them."""
        passed = self[CoverageStatus.PASSED]
        return {
            whole: self.types,
            "buildable": self.buildable,
            **{str(standing): self[standing] for standing in standings},
            "percent_of_buildable": percent(passed, self.buildable),
            f"percent_of_{whole}": percent(passed, self.types),
        }


def grouped(coverage: Coverage, target: TargetCoverage, view: str) -> dict[str, CoverageCounts]:
    """Return counts by a view of `VIEWS`; a type may be in several groups.

    Families, architectures and traits are in the order of the vocabulary, tasks by name; types without one are last.
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
    """Count every task that has a class, primary or not, by its name. Standings that aren't in `RAN` were not run or
    can't be built."""
    ran = {
        (one.model_type, one.task): one.standing
        for one in (*target.results, *target.other_tasks)
        if one.standing in RAN
    }
    found: dict[str, Counter[CoverageStatus]] = {}
    for facts in coverage.types:
        idle = CoverageStatus.EXCLUDED if facts.excluded else CoverageStatus.NOT_RUN
        for task in facts.tasks:
            found.setdefault(task, Counter())[ran.get((facts.model_type, task), idle)] += 1
    return {name: CoverageCounts(by_standing=found[name]) for name in sorted(found)}


def percent(part: int, whole: int) -> float | None:
    """Return a percentage to one decimal, 100 and 0 only if it is exactly that; None if `whole` is 0."""
    if not whole:
        return None
    rounded = round(100 * part / whole, 1)
    return min(max(rounded, 0.1), 99.9) if 0 < part < whole else rounded


def in_percent(part: int, whole: int) -> str:
    """Return `90.4 %`; `-` of nothing."""
    number = percent(part, whole)
    return "-" if number is None else f"{number:.1f} %"
