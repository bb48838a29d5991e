"""The content of every format of a coverage report, in reading order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from statistics import median

from hwcompat.generators.branches import FEW, reasons_for_few
from hwcompat.hardware.evidence.record import Outcome
from hwcompat.hardware.plain_text import WIDTH, one_line

from ..document import Block, Heading, Table, markdown_document, text_document
from .coverage_facts import (
    OPEN,
    RAN,
    SUBJECT,
    UNCLASSIFIED,
    Coverage,
    CoverageCounts,
    CoverageStatus,
    Result,
    TargetCoverage,
    by_task,
    grouped,
    in_percent,
)
from .coverage_report import CoverageReport

_SHORT = {
    CoverageStatus.CONDITIONAL: "cond.",
    CoverageStatus.FAILED: "failed",
    CoverageStatus.UNDECIDED: "undec.",
    CoverageStatus.NOT_DERIVED: "no tiny",
    CoverageStatus.NOT_RUN: "not run",
}
_SHORT_OUTCOMES = {"passed_on_fallback": "elsewhere", "ambiguous": "ambig.", "out_of_memory": "memory"}
_GROUPS = {
    "architecture": ("By architecture", ""),
    "trait": ("By trait", "A type can have several traits or no trait."),
    "family": ("By family", ""),
    "task": ("By primary task", ""),
}
_LONGEST_REASON = 300

_TypeRow = tuple[str, str, str, str]
"""A model type, a level or an obstacle, error types, and a reason."""


def coverage_text(report: CoverageReport, *, width: int = WIDTH) -> str:
    """Return the report for a terminal of `width` columns, or 80 for its tables, ending in a newline."""
    return text_document(chain(summary(report), details(report)), width)


def coverage_markdown(report: CoverageReport) -> str:
    """Return a Markdown report that ends in a newline. Untrusted text is escaped."""
    return markdown_document(chain(summary(report), details(report)))


def title(report: CoverageReport) -> str:
    """Return the title of the report."""
    return f"Coverage of transformers {report.transformers}"


def summary(report: CoverageReport) -> Iterator[Block]:
    """Return how much passed, the source of the report, the meaning of its words, and what is new."""
    coverage = report.coverage
    facts = {
        "made": f"{report.timestamp[:19].replace('T', ' ')} UTC",
        "machine": report.machine,
        "command": report.command,
        "versions": ", ".join(f"{name} {version}" for name, version in sorted(report.versions.items())),
        "weights": f"{SUBJECT}: small models with random weights; they test operators and numerics, not size",
        "precision": coverage.precision,
    }
    yield Heading(level=1, text=title(report))
    yield [f"{target.target}: {_headline(coverage, target)}" for target in coverage.targets]
    yield [f"{label}: {text}" for label, text in facts.items()]
    yield Heading(level=2, text="Meaning of the words")
    yield Table(headings=("state", "meaning"), rows=[(one.words, one.meaning) for one in CoverageStatus])
    if report.changes is not None:
        yield Heading(level=2, text="Changes")
        yield report.changes.sentence(report.transformers)
        if lists := list(report.changes.lists()):
            yield lists


def details(report: CoverageReport) -> Iterator[Block]:
    """Return what passed on each target by group, and each type that didn't with its reason."""
    for target in report.coverage.targets:
        yield from _target(report.coverage, target)
    yield from _branches(report.coverage)
    found, types = report.coverage.excluded, len(report.coverage.types)
    rows = [(one.model_type, _words(one.excluded.obstacle), "", one.excluded.reason) for one in found if one.excluded]
    obstacles = [obstacle for _, obstacle, _, _ in rows]
    listed = ", ".join(f"{obstacles.count(name)} {name}" for name in sorted(set(obstacles)))
    yield Heading(level=2, text="Excluded")
    sentence = f"{len(found)} of {types} types ({in_percent(len(found), types)}) can't be built with their defaults"
    yield f"{sentence}: {listed}." if found else f"{sentence}."
    if rows:
        yield _reasons(sorted(rows, key=lambda one: one[1]), "obstacle")


def _branches(coverage: Coverage) -> Iterator[Block]:
    """Return how much of the modeling code the suites of primary tasks enter, and the types by their share."""
    shares = {one.model_type: one.entered for one in coverage.types if one.entered is not None}
    if not shares:
        return
    groups: dict[str, list[str]] = {}
    for name, share in sorted(shares.items(), key=lambda one: (-one[1], one[0])):
        low = min(int(10 * share), 9) * 10
        groups.setdefault(f"{low} to {low + 10} %", []).append(f"{name} {100 * share:.0f}")
    yield Heading(level=2, text="Branches of the modeling code")
    yield (
        f"On the CPU, compared passes enter {100 * median(shares.values()):.0f} % of the branches of forward code "
        f"(median of {len(shares)} types). hwcompat explain CELL names the others."
    )
    yield Table(
        headings=("share", "types, with percentages"), rows=[(of, ", ".join(one)) for of, one in groups.items()]
    )
    few = {name for name, share in shares.items() if share < FEW}
    if few:
        rows = [(", ".join(one), why) for why, types in reasons_for_few().items() if (one := sorted(few & {*types}))]
        yield Table(headings=(f"types under {100 * FEW:.0f} %", "why"), rows=rows)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _headline(coverage: Coverage, target: TargetCoverage) -> str:
    counts = CoverageCounts.of(target.results)
    said = [f"passed {counts.share}."]
    if counts[CoverageStatus.CONDITIONAL]:
        said.append(f"{counts[CoverageStatus.CONDITIONAL]} more passed under a stated condition.")
    if coverage.untried:
        said.append(f"{coverage.untried} types were never tried; they count as buildable.")
    return " ".join(said)


def _target(coverage: Coverage, target: TargetCoverage) -> Iterator[Block]:
    headline, ran_on = _headline(coverage, target), "no valid run"
    if target.machines or target.devices:
        ran_on = f"{', '.join(target.devices) or target.target} ({', '.join(target.machines) or 'no label'})"
    yield Heading(level=2, text=target.target)
    yield f"{headline[0].upper()}{headline[1:]} Ran on: {ran_on}."
    for view, (heading, note) in _GROUPS.items():
        groups = {"all types": CoverageCounts.of(target.results), **grouped(coverage, target, view)}
        yield Heading(level=3, text=heading)
        if note:
            yield note
        yield _counts(view, groups, "types", (CoverageStatus.CONDITIONAL, *OPEN))
    yield Heading(level=3, text="By task, primary or not")
    yield "All tasks for which transformers has a class of the type. Tasks that were not run aren't counted."
    yield _counts("task", by_task(coverage, target), "with a class for it", RAN[1:])
    yield Heading(level=3, text="Checks")
    yield "Types with a recipe, with their primary task."
    yield _checks(target)
    yield from _standings("", target.results, lambda one: one.model_type)
    yield from _standings("Other tasks: ", target.other_tasks, lambda one: f"{one.model_type} ({one.task})")
    passed: dict[str, list[str]] = {}
    for facts, result in zip(coverage.types, target.results, strict=True):
        if result.standing is CoverageStatus.PASSED:
            passed.setdefault(facts.architecture or UNCLASSIFIED, []).append(facts.model_type)
    if passed:
        yield Heading(level=3, text="Passed")
        yield [f"{name} ({len(names)}): {', '.join(names)}" for name, names in sorted(passed.items())]


def _counts(
    view: str, groups: Mapping[str, CoverageCounts], whole: str, standings: Iterable[CoverageStatus]
) -> Block:
    """Return each group with its counts, how many are buildable and how many there are; `standings` without types are
    left out."""
    if not groups:
        return "No entries."
    shown = [one for one in standings if any(counts[one] for counts in groups.values())]
    every = "of all" if whole == "types" else "of mapped"
    return Table(
        headings=(view, "passed", "of those that can be built", f"of all {whole}", *(one.words for one in shown)),
        short=(view, "passed", "of built", every, *(_SHORT[one] for one in shown)),
        rows=[
            (
                name,
                str(counts[CoverageStatus.PASSED]),
                *(
                    f"{of} ({in_percent(counts[CoverageStatus.PASSED], of)})"
                    for of in (counts.buildable, counts.types)
                ),
                *(str(counts[one]) for one in shown),
            )
            for name, counts in groups.items()
        ],
    )


def _checks(target: TargetCoverage) -> Block:
    seen = {outcome for counts in target.checks.values() for outcome in counts}
    ordered = [str(outcome) for outcome in Outcome if outcome in seen or outcome is Outcome.PASSED]
    return Table(
        headings=("check", "of", *map(_words, ordered)),
        short=("check", "of", *(_SHORT_OUTCOMES.get(name, _words(name)) for name in ordered)),
        rows=[
            (name, str(sum(counts.values())), *(str(counts.get(outcome, 0)) for outcome in ordered))
            for name, counts in target.checks.items()
        ],
    )


def _standings(before: str, results: Sequence[Result], named: Callable[[Result], str]) -> Iterator[Block]:
    """Yield types that don't work, or only under a condition, by standing, with their reasons."""
    for standing in (*OPEN, CoverageStatus.CONDITIONAL):
        own = [one for one in results if one.standing is standing]
        if own and (standing in OPEN or not before):
            yield Heading(level=3, text=f"{before}{standing.words.capitalize()} ({len(own)})")
            is_failed = standing is CoverageStatus.FAILED
            yield _reasons(
                [
                    (
                        named(one),
                        (one.level or "") if is_failed else "",
                        ", ".join(map(_words, one.error_types)),
                        one.reason,
                    )
                    for one in own
                ],
                "level",
            )


def _reasons(of_types: Iterable[_TypeRow], label: str) -> Table:
    """Return a table of types with their reasons: equal rows are merged, and empty columns are left out."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, *rest in of_types:
        groups.setdefault(tuple(rest), []).append(name)
    rows = [
        (", ".join(names), *(one_line(text, longest=_LONGEST_REASON) for text in rest))
        for rest, names in groups.items()
    ]
    headings = ("types", label, "error", "reason")
    shown = [place for place in range(4) if place in (0, 3) or any(row[place] for row in rows)]
    return Table(
        headings=[headings[place] for place in shown], rows=[[row[place] for place in shown] for row in rows]
    )
