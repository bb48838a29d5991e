"""A coverage report as a page: what passed of all types, by group, and each type with a filter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..coverage.changes import changes_lists
from ..coverage.facts import NO_TASK, NO_TRAIT, UNCLASSIFIED, Counts, Result, Standing, TypeFacts
from ..coverage.report import CoverageReport
from ..coverage.view import ALL, excluded, facts, target_views, title
from .page import render_page

_SCRIPTS = ("filter.js",)


@dataclass(frozen=True, kw_only=True)
class _Row:
    """One model type with its result on each target, and the words that the page filters by."""

    facts: TypeFacts
    architecture: str
    task: str
    traits: Sequence[str]
    results: tuple[Result, ...]

    @property
    def words(self) -> str:
        """What it is, below its name."""
        return ", ".join(dict.fromkeys((self.task, self.architecture, *self.facts.traits)))

    @property
    def standings(self) -> tuple[Standing, ...]:
        """Those that it has on some target."""
        return tuple(dict.fromkeys(result.standing for result in self.results))


def coverage_html(report: CoverageReport) -> str:
    """The text of the page, ending in a newline. Untrusted text is escaped throughout."""
    targets = report.coverage.targets
    rows = [
        _Row(
            facts=one,
            architecture=one.architecture or UNCLASSIFIED,
            task=one.task or NO_TASK,
            traits=one.traits or (NO_TRAIT,),
            results=tuple(target.results[place] for target in targets),
        )
        for place, one in enumerate(report.coverage.types)
    ]
    sentence, left_out = excluded(report)
    return render_page(
        "coverage.html.j2",
        _SCRIPTS,
        title=title(report),
        facts=facts(report),
        standings=list(Standing),
        views=list(zip(target_views(report), (Counts.of(one.results) for one in targets), strict=True)),
        changes=changes_lists(report.changes, report.transformers) if report.changes else None,
        rows=rows,
        all_types=ALL,
        choices={
            "standing": [(str(one), one.words) for one in Standing if any(one in row.standings for row in rows)],
            "architecture": _named(row.architecture for row in rows),
            "family": _named(row.facts.family for row in rows),
            "trait": _named(name for row in rows for name in row.traits),
            "task": _named(row.task for row in rows),
        },
        excluded=sentence,
        left_out=left_out,
    )


def _named(names: Iterable[str]) -> list[tuple[str, str]]:
    """Each name once, as a value and as it is read."""
    return [(name, name.replace("_", " ")) for name in sorted(set(names))]
