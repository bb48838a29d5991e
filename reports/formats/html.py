"""A report as a page: verdicts first, then findings with what to do, then each cell with its checks and the runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hwcompat.generators.compatibility.rules import load_rules
from hwcompat.hardware.evidence.record import EDITED, Outcome

from ..fact_labels import error_text, machine_facts, run_facts
from ..finding import Finding, FindingComparison, Severity
from ..html import charts, report_view
from ..html.matrix_html import SCRIPTS as MATRIX_SCRIPTS
from ..html.matrix_html import VIEWS, matrix_view
from ..html.page import SHOWN, PagedList, fragments, packed, paged, render_page
from ..reference_tests import EXPLANATION, HEADINGS, reference_test_rows
from . import Format

if TYPE_CHECKING:
    from ..report import Report

_FEW_CELLS = 4
_CELLS_PER_CHUNK = 25


def html_report(report: Report) -> str:
    """Return the page, ending in a newline. Untrusted text is escaped.

    A matrix in the report is part of the page. Of long lists the first items are shown directly; see `page.py`.
    """
    cells = report_view.cell_views(report)
    accepted = report.project.accepted if report.project else {}
    # A page of single runs already shows each run's machine.
    machines = [] if report.runs else [run for run in report.machines if run.machine or run.inventory]
    drawn = fragments(
        "cell.html.j2",
        "view",
        cells,
        shown=report_view,
        strip=charts.strip,
        error_text=error_text,
        accepted=accepted,
        edited_sign=EDITED,
        few=len(cells) <= _FEW_CELLS,
        limit=charts.LIMIT,
        linked_machines={run.machine for run in machines},
    )
    lists = _lists(report, cells)
    rest: dict[str, Any] = {name: one.rest for name, one in lists.items() if one.rest}
    if len(cells) > SHOWN:
        rest["cells"] = packed(drawn, _CELLS_PER_CHUNK)
    past, graver = charts.timeline(report.history), report_view.index(_without_remarks(report))
    values: dict[str, Any] = {
        **lists,
        "report": report,
        "shown": report_view,
        "cells": cells,
        "cell_fragments": drawn,
        "packed": rest,
        "packed_cells": "cells" in rest,
        "finding_choices": {name: sorted(set(graver[name])) for name in ("severity", "hardware", "type")},
        "opinion_explanation": EXPLANATION,
        "opinion_headings": HEADINGS,
        "opinion_rows": reference_test_rows(report.second_opinions),
        "subjects": sorted({line.subject for line in report.checks}),
        "not_passed": report_view.not_passed(cells, accepted),
        "runs": report.runs,
        "run_facts": run_facts,
        "machine_facts": machine_facts,
        "machines": machines,
        "past": past[-charts.LAST_RUNS :],
        "past_total": len(past),
        "past_outcomes": [str(one) for one in Outcome if any(one in run.outcomes for run, _ in past)],
        "errors": charts.error_spans(report.checks),
        "durations": charts.duration_spans(report.checks),
        "limit": charts.LIMIT,
        "matrix": matrix_view(report.matrix, load_rules()) if report.matrix else None,
        "views": VIEWS,
    }
    scripts = ("filter.js", "report.js", *(MATRIX_SCRIPTS if report.matrix else ()))
    return render_page("report.html.j2", scripts, parts_of_page=list(_parts(values)), **values)


def _without_remarks(report: Report) -> list[Finding]:
    return [finding for finding in report.findings if finding.severity is not Severity.INFO]


def _lists(report: Report, cells: Sequence[report_view.CellView]) -> Mapping[str, PagedList]:
    remarks = [finding for finding in report.findings if finding.severity is Severity.INFO]
    rows = fragments("verdict_row.html.j2", "view", cells)
    filters = {
        "text": [one.cell.id for one in cells],
        "level": [str(one.cell.verdict.level) for one in cells],
        "outcomes": ["|".join(one.cell.counts) for one in cells],
    }
    return {
        "findings": _cards(_without_remarks(report), report.baseline),
        "remarks": _cards(remarks, report.baseline),
        "verdicts": paged(rows, filters),
    }


def _cards(findings: Sequence[Finding], against: FindingComparison | None) -> PagedList:
    drawn = fragments("finding.html.j2", "finding", findings, against=against, shown=report_view)
    return paged(drawn, report_view.index(findings), size=50)


def _parts(values: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Return anchors, names and templates of the page's parts, in order."""
    report: Report = values["report"]
    shown = (
        ("baseline", "Compared with the baseline", "baseline", report.baseline),
        ("project", "Project file", "project", report.project),
        ("answers", "Answers", "answers", report.model_checks),
        ("verdicts", "Verdicts", "verdicts", values["cells"]),
        ("not-passed", "Not passed", "not_passed", values["not_passed"]),
        ("second-opinion", "Reference tests", "second_opinion", values["opinion_rows"]),
        ("findings", "Findings", "findings", report.findings),
        ("cells", "Cells", "cells", values["cells"]),
        ("figures", "Figures", "charts", values["past_total"] > 1 or values["errors"] or values["durations"]),
        ("stack", "Hardware stack", "stack", report.stack),
        ("matrix", "Matrix", "matrix_part", values["matrix"]),
        ("components", "Components", "components", report.components),
        ("machines-heading", "Machines", "machines", values["machines"]),
    )
    yield from ((anchor, words, f"{template}.html.j2") for anchor, words, template, there in shown if there)


FORMAT = Format(suffix="html", render=html_report)
