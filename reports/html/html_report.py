"""A report as a page: verdicts first, then findings with what to do, then each cell with its checks and the runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from generators.compatibility.rules import load_rules

from ..second_opinion import second_opinion_headings, second_opinion_rows
from .matrix_html import SCRIPTS as MATRIX_SCRIPTS
from .matrix_html import VIEWS, matrix_view
from .page import Facts, render_page
from .report_view import cell_views, not_passed
from .run_view import inventory_text, machine_facts

if TYPE_CHECKING:
    from hardware.evidence.record import RunLine

    from ..report import Report

_FEW_CELLS = 4


@dataclass(frozen=True, kw_only=True)
class _Run:
    """A run with what the page shows of its machine."""

    line: RunLine
    machine: Facts
    inventory: str


def html_report(report: Report) -> str:
    """The text of the page, ending in a newline. Untrusted text is escaped throughout.

    A matrix that the report holds is a part of the page.
    """
    cells = cell_views(report)
    subjects = sorted({line.subject for line in report.checks})
    return render_page(
        "report.html.j2",
        ("report.js", "filter.js", *(MATRIX_SCRIPTS if report.matrix else ())),
        report=report,
        cells=cells,
        few=len(cells) <= _FEW_CELLS,
        opinion_headings=second_opinion_headings(),
        opinion_rows=second_opinion_rows(report.second_opinions),
        subjects=subjects,
        not_passed=not_passed(cells),
        runs=[_Run(line=run, machine=machine_facts(run), inventory=inventory_text(run)) for run in report.runs],
        matrix=matrix_view(report.matrix, load_rules()) if report.matrix else None,
        views=VIEWS,
    )
