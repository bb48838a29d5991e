"""What every format of a coverage report says, in the order in which it is read: sentences, facts and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hardware.evidence.record import Outcome

from .facts import (
    OPEN,
    RAN,
    SUBJECT,
    UNCLASSIFIED,
    VIEWS,
    Counts,
    Result,
    Standing,
    TargetCoverage,
    TypeFacts,
    by_task,
    grouped,
    in_percent,
)
from .report import CoverageReport

_SHORT = {
    Standing.PASSED: "passed",
    Standing.CONDITIONAL: "cond.",
    Standing.FAILED: "failed",
    Standing.UNDECIDED: "undec.",
    Standing.NOT_DERIVED: "no tiny",
    Standing.NOT_RUN: "not run",
}
_SHORT_OUTCOMES = {"passed_on_fallback": "elsewhere", "ambiguous": "ambig.", "out_of_memory": "memory"}
_TITLES = {
    "architecture": "By architecture",
    "trait": "By trait",
    "family": "By family",
    "task": "By primary task",
}
_NOTES = {"trait": "A type may have several traits, or none."}
ALL = "all types"


@dataclass(frozen=True, kw_only=True)
class Table:
    """A name and numbers in each row. `short` are headings for narrow columns."""

    title: str
    headings: tuple[str, ...]
    short: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Told:
    """Some types of which the same has to be said: `label` is a level or an obstacle, `errors` are error types."""

    names: tuple[str, ...]
    label: str
    errors: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Telling:
    """Types under one heading with their reasons; `label_heading` names the column of their labels, where they have
    any."""

    title: str
    number: int
    told: tuple[Told, ...]
    label_heading: str = ""


@dataclass(frozen=True, kw_only=True)
class TargetView:
    """One target. `passed` names the types that passed, by architecture; `other_tasks` what didn't of other tasks."""

    name: str
    headline: str
    remarks: str
    ran_on: str
    tables: tuple[Table, ...]
    open: tuple[Telling, ...]
    other_tasks: tuple[Telling, ...]
    conditional: Telling | None
    passed: Mapping[str, tuple[str, ...]]


def target_views(report: CoverageReport) -> tuple[TargetView, ...]:
    """What is said of each target."""
    return tuple(_target_view(report, one) for one in report.coverage.targets)


def title(report: CoverageReport) -> str:
    """The heading of the whole."""
    return f"Coverage of transformers {report.transformers}"


def facts(report: CoverageReport) -> dict[str, str]:
    """Where the report comes from, by label."""
    named = sorted(report.versions.items())
    return {
        "made": f"{report.timestamp[:19].replace('T', ' ')} UTC",
        "machine": report.machine,
        "command": report.command,
        "versions": ", ".join(f"{name} {version}" for name, version in named),
        "subject": f"{SUBJECT}: small models with random weights, which show operators and numerics, never size",
        "precision": report.coverage.precision,
    }


def excluded(report: CoverageReport) -> tuple[str, Telling]:
    """How many types can't be built, in a sentence, and each with its obstacle and why."""
    found, types = report.coverage.excluded, len(report.coverage.types)
    obstacles = [one.obstacle for one in found]
    listed = ", ".join(f"{obstacles.count(name)} {_words(name)}" for name in sorted(set(obstacles)))
    sentence = f"{len(found)} of {types} types ({in_percent(len(found), types)}) can't be built here as they come"
    told = [Told(names=(one.model_type,), label=_words(one.obstacle), errors="", reason=one.reason) for one in found]
    folded = tuple(sorted(_folded(told), key=lambda one: one.label))
    return f"{sentence}: {listed}." if found else f"{sentence}.", Telling(
        title="Excluded", number=len(found), told=folded
    )


def _words(name: str) -> str:
    return name.replace("_", " ")


def _target_view(report: CoverageReport, target: TargetCoverage) -> TargetView:
    coverage = report.coverage
    counts = Counts.of(target.results)
    conditional = [one for one in target.results if one.standing is Standing.CONDITIONAL]
    shown = tuple(standing for standing in (Standing.CONDITIONAL, *OPEN) if counts[standing])
    return TargetView(
        name=target.target,
        headline=f"passed {counts.share}",
        remarks=_remarks(len(conditional), coverage.untried),
        ran_on=_ran_on(target),
        tables=(
            *(_groups(view, counts, grouped(coverage, target, view), shown) for view in VIEWS),
            _tasks(report, target),
            _checks(target),
        ),
        open=tuple(_tellings(target.results, OPEN)),
        other_tasks=tuple(_tellings(target.other_tasks, OPEN, tasks=True)),
        conditional=_telling(Standing.CONDITIONAL, conditional) if conditional else None,
        passed=_passed(coverage.types, target.results),
    )


def _remarks(conditional: int, untried: int) -> str:
    said = []
    if conditional:
        said.append(f"Under a condition that is stated, {conditional} more passed.")
    if untried:
        said.append(f"{untried} types were never tried; they count as buildable.")
    return " ".join(said)


def _ran_on(target: TargetCoverage) -> str:
    if not target.machines and not target.devices:
        return "nothing ran that counts"
    return f"{', '.join(target.devices) or target.target} ({', '.join(target.machines) or 'no label'})"


def _groups(view: str, all_types: Counts, groups: Mapping[str, Counts], shown: Sequence[Standing]) -> Table:
    """Columns of standings that no type has are left out."""
    return Table(
        title=_TITLES[view],
        headings=(view, "passed", "of those that can be built", "of all types", *(one.words for one in shown)),
        short=(view, "passed", "of built", "of all", *(_SHORT[one] for one in shown)),
        rows=tuple(
            (
                name,
                str(counts[Standing.PASSED]),
                _of(counts[Standing.PASSED], counts.buildable),
                _of(counts[Standing.PASSED], counts.types),
                *(str(counts[one]) for one in shown),
            )
            for name, counts in {ALL: all_types, **groups}.items()
        ),
        note=_NOTES.get(view, ""),
    )


def _of(part: int, whole: int) -> str:
    return f"{whole} ({in_percent(part, whole)})"


def _tasks(report: CoverageReport, target: TargetCoverage) -> Table:
    counted = by_task(report.coverage, target)
    shown = tuple(one for one in RAN[1:] if any(counts.ran[one] for counts in counted.values()))
    return Table(
        title="By task, primary or not",
        headings=(
            "task",
            "passed",
            "of those that can be built",
            "of all with a class for it",
            *(one.words for one in shown),
        ),
        short=("task", "passed", "of built", "of mapped", *(_SHORT[one] for one in shown)),
        rows=tuple(
            (
                name,
                str(counts.ran[Standing.PASSED]),
                _of(counts.ran[Standing.PASSED], counts.buildable),
                _of(counts.ran[Standing.PASSED], counts.mapped),
                *(str(counts.ran[one]) for one in shown),
            )
            for name, counts in counted.items()
        ),
        note="Every task that transformers maps a class of the type for. What isn't counted here was not run.",
    )


def _checks(target: TargetCoverage) -> Table:
    seen = {outcome for counts in target.checks.values() for outcome in counts}
    ordered = [str(outcome) for outcome in Outcome if outcome in seen or outcome is Outcome.PASSED]
    return Table(
        title="Checks",
        headings=("check", "of", *(_words(name) for name in ordered)),
        short=("check", "of", *(_SHORT_OUTCOMES.get(name, _words(name)) for name in ordered)),
        rows=tuple(
            (name, str(sum(counts.values())), *(str(counts.get(outcome, 0)) for outcome in ordered))
            for name, counts in target.checks.items()
        ),
        note="Over the types that have a recipe, doing their primary task.",
    )


def _tellings(results: Sequence[Result], standings: Iterable[Standing], *, tasks: bool = False) -> Iterator[Telling]:
    for standing in standings:
        own = [result for result in results if result.standing is standing]
        if own:
            yield _telling(standing, own, tasks=tasks)


def _telling(standing: Standing, results: Sequence[Result], *, tasks: bool = False) -> Telling:
    told = [
        Told(
            names=(f"{one.model_type} ({one.task})" if tasks else one.model_type,),
            label=one.level,
            errors=", ".join(_words(name) for name in one.error_types),
            reason=one.reason,
        )
        for one in results
    ]
    return Telling(
        title=standing.words.capitalize(),
        number=len(results),
        told=_folded(told),
        label_heading="level" if standing is Standing.FAILED else "",
    )


def _folded(told: Sequence[Told]) -> tuple[Told, ...]:
    """What is the same of several types is said once."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for one in told:
        groups.setdefault((one.label, one.errors, one.reason), []).extend(one.names)
    return tuple(
        Told(names=tuple(names), label=label, errors=errors, reason=reason)
        for (label, errors, reason), names in groups.items()
    )


def _passed(types: Sequence[TypeFacts], results: Sequence[Result]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for one, result in zip(types, results, strict=True):
        if result.standing is Standing.PASSED:
            found.setdefault(one.architecture or UNCLASSIFIED, []).append(one.model_type)
    return {name: tuple(found[name]) for name in sorted(found)}
