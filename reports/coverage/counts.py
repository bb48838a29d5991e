"""Counts that follow from a coverage: of all types together, by group, and by task; and how shares are said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from generators.compatibility.vocabulary import vocabulary

from .facts import Coverage, Result, Standing, TargetCoverage, TypeFacts

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


@dataclass(frozen=True, kw_only=True)
class Counts:
    """How many model types have which standing."""

    by_standing: Mapping[Standing, int]

    @classmethod
    def of(cls, results: Iterable[Result]) -> Counts:
        """The counts of some results."""
        found = Counter(result.standing for result in results)
        return cls(by_standing={standing: found[standing] for standing in Standing})

    def __getitem__(self, standing: Standing) -> int:
        return self.by_standing[standing]

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

    def to_dict(self) -> dict[str, float | None]:
        """Plain JSON values."""
        passed = self[Standing.PASSED]
        return {
            "types": self.types,
            "buildable": self.buildable,
            **{str(standing): number for standing, number in self.by_standing.items()},
            "percent_of_buildable": percent(passed, self.buildable),
            "percent_of_types": percent(passed, self.types),
        }


@dataclass(frozen=True, kw_only=True)
class TaskCounts:
    """One task, primary or not: how many types transformers maps a class for it, how many of those can be built, and
    what became of the cells that ran."""

    mapped: int
    buildable: int
    ran: Counts

    def to_dict(self) -> dict[str, float | None]:
        """Plain JSON values."""
        passed = self.ran[Standing.PASSED]
        return {
            "mapped": self.mapped,
            "buildable": self.buildable,
            **{str(standing): self.ran[standing] for standing in RAN},
            "percent_of_buildable": percent(passed, self.buildable),
            "percent_of_mapped": percent(passed, self.mapped),
        }


RAN = (Standing.PASSED, Standing.CONDITIONAL, Standing.FAILED, Standing.UNDECIDED)
"""Standings of what ran."""


def grouped(coverage: Coverage, target: TargetCoverage, view: str) -> dict[str, Counts]:
    """Counts by what a view of `VIEWS` names; a type may be in several groups."""
    groups: dict[str, list[Result]] = {}
    for facts, result in zip(coverage.types, target.results, strict=True):
        for name in VIEWS[view](facts):
            groups.setdefault(name, []).append(result)
    order = _order(view)
    return {name: Counts.of(groups[name]) for name in sorted(groups, key=order)}


def _order(view: str) -> Callable[[str], tuple[int, str]]:
    """Families, architectures and traits in the order of the vocabulary, tasks by name, and what has none last."""
    words = vocabulary()
    known = {"family": words.families, "architecture": words.architectures, "trait": words.traits}.get(view, ())

    def place(name: str) -> tuple[int, str]:
        if name in _LAST:
            return len(known) + 1, name
        return known.index(name) if name in known else len(known), name

    return place


def by_task(coverage: Coverage, target: TargetCoverage) -> dict[str, TaskCounts]:
    """Every task that a class is mapped for, by name: primary cells and others."""
    mapped: dict[str, list[TypeFacts]] = {}
    for facts in coverage.types:
        for task in facts.tasks:
            mapped.setdefault(task, []).append(facts)
    ran = [one for one in (*target.results, *target.other_tasks) if one.standing in RAN]
    return {
        name: TaskCounts(
            mapped=len(mapped[name]),
            buildable=sum(not one.obstacle for one in mapped[name]),
            ran=Counts.of(result for result in ran if result.task == name),
        )
        for name in sorted(mapped)
    }


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
