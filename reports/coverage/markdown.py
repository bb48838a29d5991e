"""A coverage report as Markdown that reads well among a repository's documents."""

from __future__ import annotations

from collections.abc import Iterator

from ..text import code, markdown, markdown_table
from .changes import changes_lists
from .facts import Standing
from .report import CoverageReport
from .view import Table, TargetView, Telling, excluded, facts, target_views, title

_LONGEST_LIST = 100_000


def coverage_markdown(report: CoverageReport) -> str:
    """The text of a Markdown report, ending in a newline. Untrusted text is escaped throughout."""
    views = target_views(report)
    return "\n\n".join([*_head(report, views), *_changes(report), *_body(report, views)]) + "\n"


def _head(report: CoverageReport, views: tuple[TargetView, ...]) -> Iterator[str]:
    yield f"# {markdown(title(report))}"
    yield "\n".join(
        f"- **{markdown(view.name)}: {markdown(view.headline)}.** {markdown(view.remarks)}".rstrip() for view in views
    )
    yield "\n".join(
        f"- {markdown(label)}: {code(text) if label == 'command' else markdown(text)}"
        for label, text in facts(report).items()
    )
    yield "What the words mean:"
    yield markdown_table(["standing", "meaning"], [[one.words, markdown(one.meaning)] for one in Standing])


def _changes(report: CoverageReport) -> Iterator[str]:
    if report.changes is None:
        return
    sentence, lists = changes_lists(report.changes, report.transformers)
    yield "## What is new"
    yield markdown(sentence)
    if lists:
        yield "\n".join(
            f"- {markdown(one.heading)} ({one.number}): {markdown(one.words, longest=_LONGEST_LIST)}" for one in lists
        )


def _body(report: CoverageReport, views: tuple[TargetView, ...]) -> Iterator[str]:
    for view in views:
        yield f"## {markdown(view.name)}"
        yield f"{markdown(view.headline)}. {markdown(view.remarks)}".rstrip() + f" Ran on: {markdown(view.ran_on)}."
        for table in view.tables:
            yield from _table(table)
        for telling in view.open:
            yield from _telling(telling, telling.label_heading)
        if view.conditional:
            yield from _telling(view.conditional, "")
        for telling in view.other_tasks:
            yield from _telling(telling, "", "Other tasks: ")
        if view.passed:
            yield "### Passed"
            yield "\n".join(
                f"- {markdown(name)} ({len(names)}): {', '.join(markdown(one) for one in names)}"
                for name, names in view.passed.items()
            )
    sentence, telling = excluded(report)
    yield "## Excluded"
    yield markdown(sentence)
    if telling.told:
        yield _told_table(telling, "obstacle")


def _table(table: Table) -> Iterator[str]:
    yield f"### {markdown(table.title)}"
    if table.note:
        yield markdown(table.note, longest=_LONGEST_LIST)
    if not table.rows:
        yield "There are none."
        return
    headings = [markdown(one) for one in table.headings]
    lines = markdown_table(headings, [[markdown(cell) for cell in row] for row in table.rows]).splitlines()
    lines[1] = f"|---|{'---:|' * (len(table.headings) - 1)}"
    yield "\n".join(lines)


def _telling(telling: Telling, label: str, before: str = "") -> Iterator[str]:
    yield f"### {before}{markdown(telling.title)} ({telling.number})"
    yield _told_table(telling, label)


def _told_table(telling: Telling, label: str) -> str:
    """A table of types with their reasons; columns that nothing stands in are left out."""
    errors = any(one.errors for one in telling.told)
    headings = ["types", *([label] if label else []), *(["error"] if errors else []), "reason"]
    rows = [
        [
            markdown(", ".join(one.names), longest=_LONGEST_LIST),
            *([markdown(one.label)] if label else []),
            *([markdown(one.errors) or "-"] if errors else []),
            markdown(one.reason) or "-",
        ]
        for one in telling.told
    ]
    return markdown_table(headings, rows)
