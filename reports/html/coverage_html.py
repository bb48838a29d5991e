"""A coverage report as a page: what passed of all types, by group, and each type with a filter."""

from __future__ import annotations

from typing import Any

from ..coverage.coverage_facts import VIEWS, CoverageStatus, Result, TypeFacts
from ..coverage.coverage_report import CoverageReport
from ..coverage.coverage_view import details, summary, title
from .page import render_page

_SCRIPTS = ("filter.js",)
_FILTERS = ("architecture", "family", "trait", "task")


def coverage_html(report: CoverageReport) -> str:
    """Return the page, ending in a newline. Untrusted text is escaped."""
    targets = report.coverage.targets
    rows = [
        _row(one, tuple(target.results[place] for target in targets))
        for place, one in enumerate(report.coverage.types)
    ]
    return render_page(
        "coverage.html.j2",
        _SCRIPTS,
        title=title(report),
        summary=list(summary(report)),
        details=list(details(report)),
        targets=[one.target for one in targets],
        rows=rows,
        choices={
            "standing": [str(one) for one in CoverageStatus if any(one in row["standing"] for row in rows)],
            **{name: sorted({value for row in rows for value in row[name]}) for name in _FILTERS},
        },
    )


def _row(facts: TypeFacts, results: tuple[Result, ...]) -> dict[str, Any]:
    """Return a model type with its result on each target, and its words for each filter."""
    words = {name: view(facts) for name, view in VIEWS.items()}
    return {
        **words,
        "facts": facts,
        "results": results,
        "standing": tuple(dict.fromkeys(result.standing for result in results)),
        "words": ", ".join(dict.fromkeys((*words["task"], *words["architecture"], *facts.traits))),
    }
