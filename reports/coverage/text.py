"""A coverage report for a terminal: the summary, tables of 80 columns, and reasons that are cut short."""

from __future__ import annotations

from collections.abc import Iterator

from hardware.plain_text import one_line, printable, wrapped

from .changes import changes_lists
from .report import CoverageReport
from .view import Table, TargetView, Telling, excluded, facts, target_views, title

WIDTH = 80

_LONGEST_REASON = 150
_NARROWEST_NAME = 14


def coverage_text(report: CoverageReport, *, width: int = WIDTH) -> str:
    """The report as lines of at most `width` columns, or 80 for its tables, ending in a newline."""
    return printable("\n".join(_lines(report, width)).rstrip(), keep="\n") + "\n"


def _lines(report: CoverageReport, width: int) -> Iterator[str]:
    views = target_views(report)
    yield title(report)
    yield "=" * len(title(report))
    for view in views:
        yield from _wrapped(f"{view.name}: {view.headline}. {view.remarks}".rstrip(), width)
    yield ""
    for label, text in facts(report).items():
        yield from _wrapped(text, width, f"{label:<11}")
    if report.changes is not None:
        sentence, lists = changes_lists(report.changes, report.transformers)
        yield ""
        yield from _wrapped(sentence, width)
        for one in lists:
            yield from _wrapped(one.words, width, f"  {one.heading} ({one.number}): ")
    for view in views:
        yield from _target(view, width)
    sentence, telling = excluded(report)
    yield from _heading("Excluded")
    yield from _wrapped(sentence, width)
    yield from _told(telling, width)


def _target(view: TargetView, width: int) -> Iterator[str]:
    yield from _heading(view.name)
    yield from _wrapped(f"{view.headline}. {view.remarks}".rstrip(), width)
    yield from _wrapped(view.ran_on, width, "ran on     ")
    for table in view.tables:
        yield ""
        yield table.title
        yield from _wrapped(table.note, width)
        yield from _table(table, max(width, WIDTH))
    tellings = [*view.open, *([view.conditional] if view.conditional else [])]
    for before, telling in [*(("", one) for one in tellings), *(("Other tasks: ", one) for one in view.other_tasks)]:
        yield ""
        yield f"{before}{telling.title} ({telling.number})"
        yield from _told(telling, width)


def _heading(text: str) -> Iterator[str]:
    yield ""
    yield text
    yield "-" * len(text)


def _table(table: Table, room: int) -> Iterator[str]:
    """Names on the left, cut where they would make the table wider than `room` columns; numbers on the right."""
    if not table.rows:
        yield "There are none."
        return
    lines = [table.short, *table.rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(table.short))]
    fits = _NARROWEST_NAME + sum(widths[1:]) + 2 * (len(widths) - 1) <= room
    gap = "  " if fits else " "
    taken = sum(widths[1:]) + len(gap) * (len(widths) - 1)
    widths[0] = min(widths[0], max(room - taken, _NARROWEST_NAME))
    for place, line in enumerate(lines):
        cells = [one_line(line[0], longest=widths[0]).ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        yield gap.join(cells).rstrip()
        if place == 0:
            yield gap.join("-" * width for width in widths)


def _told(telling: Telling, width: int) -> Iterator[str]:
    for one in telling.told:
        said = ", ".join(filter(None, (one.label, one.errors)))
        reason = one_line(one.reason, longest=_LONGEST_REASON)
        yield from _wrapped(": ".join(filter(None, (", ".join(one.names), said, reason))), width, "  ")


def _wrapped(text: str, width: int, start: str = "") -> list[str]:
    flat = " ".join(text.split())
    return wrapped(flat, width=width, start=start, indent="    " if start else "") if flat else []
