"""A report as a page: verdicts first, then findings with what to do, then each cell with its checks and the runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from generators.compatibility.rules import load_rules
from hardware.evidence.record import Outcome

from ..finding import Comparison, Finding, Severity
from ..html import charts
from ..html.finding_view import choices, finding_view, index
from ..html.history_view import timeline
from ..html.matrix_html import SCRIPTS as MATRIX_SCRIPTS
from ..html.matrix_html import VIEWS, matrix_view
from ..html.page import Facts, fragments, render_page
from ..html.parcels import SHOWN, PagedList, packed, paged
from ..html.report_view import CellView, cell_views, not_passed
from ..html.run_view import inventory_text, machine_facts
from ..second_opinion import second_opinion_headings, second_opinion_rows
from .base import Format

if TYPE_CHECKING:
    from hardware.evidence.record import RunLine

    from ..report import Report

_FEW_CELLS = 4
_CELLS_A_PARCEL = 25


@dataclass(frozen=True, kw_only=True)
class _Run:
    """A run with what the page shows of its machine."""

    line: RunLine
    machine: Facts
    inventory: str


def html_report(report: Report) -> str:
    """The text of the page, ending in a newline. Untrusted text is escaped throughout.

    A matrix that the report holds is a part of the page. Of long lists the first items stand in the page as they are;
    see `parcels.py`.
    """
    cells = cell_views(report)
    # A page of single runs tells of each run's machine already.
    machines = [] if report.runs else [_run(run) for run in report.machines if run.machine or run.inventory]
    named = {run.line.machine for run in machines}
    drawn = fragments(
        "cell.html.j2",
        "cell",
        cells,
        few=len(cells) <= _FEW_CELLS,
        limit=charts.LIMIT,
        linked_machines=named,
    )
    lists = _lists(report, cells)
    rest: dict[str, Any] = {name: one.rest for name, one in lists.items() if one.rest}
    if len(cells) > SHOWN:
        rest["cells"] = packed(drawn, _CELLS_A_PARCEL)
    past = timeline(report.history)
    values: dict[str, Any] = {
        **lists,
        "report": report,
        "cells": cells,
        "cell_fragments": drawn,
        "packed": rest,
        "packed_cells": "cells" in rest,
        "finding_choices": choices([finding for finding in report.findings if finding.severity is not Severity.INFO]),
        "opinion_headings": second_opinion_headings(),
        "opinion_rows": second_opinion_rows(report.second_opinions),
        "subjects": sorted({line.subject for line in report.checks}),
        "not_passed": not_passed(cells),
        "runs": [_run(run) for run in report.runs],
        "machines": machines,
        "past": past,
        "past_outcomes": [str(one) for one in Outcome if any(one in row.outcomes for row in past.rows)],
        "chart_width": charts.WIDTH,
        "chart_height": charts.HEIGHT,
        "errors": charts.error_spans(report.checks),
        "durations": charts.duration_spans(report.checks),
        "limit": charts.LIMIT,
        "matrix": matrix_view(report.matrix, load_rules()) if report.matrix else None,
        "views": VIEWS,
    }
    scripts = ("report.js", "filter.js", *(MATRIX_SCRIPTS if report.matrix else ()))
    return render_page("report.html.j2", scripts, parts_of_page=list(_parts(values)), **values)


def _lists(report: Report, cells: Sequence[CellView]) -> Mapping[str, PagedList]:
    graver = [finding for finding in report.findings if finding.severity is not Severity.INFO]
    remarks = [finding for finding in report.findings if finding.severity is Severity.INFO]
    rows = fragments("verdict_row.html.j2", "cell", cells)
    told = {
        "text": [cell.id for cell in cells],
        "level": [cell.level for cell in cells],
        "outcomes": ["|".join(cell.outcomes) for cell in cells],
    }
    against = report.baseline
    return {
        "findings": _cards(graver, against),
        "remarks": _cards(remarks, against),
        "verdicts": paged(rows, told),
    }


def _cards(findings: Sequence[Finding], against: Comparison | None) -> PagedList:
    drawn = fragments("finding.html.j2", "view", [finding_view(one, against) for one in findings])
    return paged(drawn, index(findings), size=50)


def _run(run: RunLine) -> _Run:
    return _Run(line=run, machine=machine_facts(run), inventory=inventory_text(run))


def _parts(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Anchors of the parts that the page has, with their names, in its order."""
    report: Report = values["report"]
    shown = (
        ("baseline", "Against the baseline", report.baseline),
        ("project", "Project file", report.project),
        ("answers", "Answers", report.model_checks),
        ("verdicts", "Verdicts", values["cells"]),
        ("not-passed", "Not passed", values["not_passed"]),
        ("second-opinion", "Second opinion", values["opinion_rows"]),
        ("findings", "Findings", report.findings),
        ("cells", "Cells", values["cells"]),
        ("figures", "Figures", values["past"].total > 1 or values["errors"] or values["durations"]),
        ("stack", "Hardware stack", report.stack),
        ("matrix", "Matrix", values["matrix"]),
        ("components", "Components", report.components),
        ("machines-heading", "Machines", values["machines"]),
    )
    yield from ((anchor, words) for anchor, words, there in shown if there)


FORMAT = Format(suffix="html", render=html_report)
