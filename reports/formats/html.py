"""A report as a page: causes with what to do first, then the cells with their checks, figures and the runs."""

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
from ..html.topology import topology
from ..html.trend import trends
from ..reference_tests import EXPLANATION, HEADINGS, reference_test_rows
from . import Format

if TYPE_CHECKING:
    from ..report import Report

_FEW_CELLS = 4
_CELLS_PER_CHUNK = 100
_FIXED = {
    "memory_parts": charts.MEMORY_PARTS,
    "steps": [name.capitalize() for name in charts.STEPS],
    "limit": charts.LIMIT,
    "ticks": charts.TICKS,
    "decades": charts.DECADES,
    "views": VIEWS,
    "opinion_explanation": EXPLANATION,
    "opinion_headings": HEADINGS,
    "topology": topology,
}


def html_report(report: Report) -> str:
    """Return the page, ending in a newline. Untrusted text is escaped.

    A matrix in the report is part of the page. Of long lists the first items are shown directly; see `page.py`.
    """
    cells = report_view.cell_views(report)
    graver = [finding for finding in report.findings if finding.severity is not Severity.INFO]
    # A page of single runs already shows each run's machine.
    machines = [] if report.runs else [run for run in report.machines if run.machine or run.inventory]
    drawn = fragments(
        "cell.html.j2",
        "view",
        cells,
        shown=report_view,
        strip=charts.strip,
        error_text=error_text,
        accepted=report.project.accepted if report.project else {},
        edited_sign=EDITED,
        limit=charts.LIMIT,
        ticks=charts.TICKS,
        linked_machines={run.machine for run in machines},
    )
    grouped = report_view.causes(graver)
    lists = _lists(report, cells, drawn, grouped)
    rest: dict[str, Any] = {name: one.rest for name, one in lists.items() if one.number}
    if len(cells) > SHOWN:
        rest["checks"] = packed(drawn, _CELLS_PER_CHUNK)
    values: dict[str, Any] = {
        **lists,
        **_FIXED,
        "report": report,
        "shown": report_view,
        "cells": cells,
        "cell_list": lists["cells"],
        "check_names": list(dict.fromkeys(line.check_name for line in report.checks)),
        "outcome_words": report_view.OUTCOME_WORDS,
        "packed": rest,
        "causes": grouped,
        "shown_cards": _shown_cards(grouped, lists["findings"]),
        "headline": report_view.headline(cells, graver),
        "finding_choices": _choices(report_view.index(graver)),
        "opinion_rows": reference_test_rows(report.second_opinions),
        "subjects": sorted({line.subject for line in report.checks}),
        "runs": report.runs,
        "run_facts": run_facts,
        "run_times": _run_times(report),
        "machine_facts": machine_facts,
        "machines": machines,
        **_past(report),
        "trends": trends(report.history),
        "errors": charts.error_spans(report.checks),
        "durations": charts.duration_spans(report.checks),
        "by_target": charts.by_target([view.cell for view in cells]),
        "matrix": matrix_view(report.matrix, load_rules()) if report.matrix else None,
    }
    scripts = ("filter.js", "report.js", *(MATRIX_SCRIPTS if report.matrix else ()))
    return render_page("report.html.j2", scripts, parts_of_page=list(_parts(values)), **values)


def _run_times(report: Report) -> dict[str, Any]:
    return {
        run.run_id: charts.run_times((one for one in report.checks if one.run_id == run.run_id), SHOWN)
        for run in report.runs
    }


def _past(report: Report) -> dict[str, Any]:
    past = charts.timeline(report.history)
    return {
        "past": past[-charts.LAST_RUNS :],
        "past_total": len(past),
        "past_outcomes": [str(one) for one in Outcome if any(one in run.outcomes for run, _ in past)],
    }


def _shown_cards(
    grouped: Sequence[report_view.FailureCause], findings: PagedList
) -> list[tuple[report_view.FailureCause, str]]:
    """Return the cards that are shown directly, each with its cause."""
    owners = [cause for _, cause in report_view.in_page_order(grouped, SHOWN)]
    return list(zip(owners, findings.shown, strict=False))


def _choices(index: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str]]:
    return {name: sorted(set(index[name])) for name in ("severity", "hardware", "type")}


def _lists(
    report: Report,
    cells: Sequence[report_view.CellView],
    drawn: Sequence[str],
    grouped: Sequence[report_view.FailureCause],
) -> Mapping[str, PagedList]:
    remarks = [finding for finding in report.findings if finding.severity is Severity.INFO]
    rows = fragments("cell_row.html.j2", "view", cells, share_words=charts.share_words, few=len(cells) <= _FEW_CELLS)
    if len(cells) <= SHOWN:
        rows = [row + more for row, more in zip(rows, drawn, strict=True)]
    index: dict[str, Sequence[Any]] = {
        "text": [one.cell.id for one in cells],
        "level": [str(one.cell.verdict.level) for one in cells],
        "outcomes": ["|".join(one.cell.counts) for one in cells],
        "quiet": [int(one.quiet) for one in cells],
        "rank": [-1 if (rank := one.cell.verdict.level.rank) is None else rank for one in cells],
        "target": [one.cell.id.split("/")[2] if one.cell.id.count("/") == 3 else "" for one in cells],
        "passed": [one.cell.counts.get("passed", 0) - len(one.cell.lines) for one in cells],
        # JSON has no infinite number.
        "error": [-1.0 if one.share is None else float(f"{min(one.share, 1e30):.3g}") for one in cells],
        "time": [round(one.seconds, 2) for one in cells],
    }
    return {
        "findings": _cards(report_view.in_page_order(grouped, SHOWN), report.baseline),
        "remarks": _cards([(one, None) for one in remarks], report.baseline),
        "cells": paged(rows, index),
    }


def _cards(
    pairs: Sequence[tuple[Finding, report_view.FailureCause | None]], against: FindingComparison | None
) -> PagedList:
    drawn = fragments("finding.html.j2", "pair", pairs, against=against, shown=report_view)
    return paged(drawn, report_view.index([one for one, _ in pairs]), size=50)


def _parts(values: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Return anchors, names and templates of the page's parts, in order."""
    report: Report = values["report"]
    shown = (
        ("baseline", "Compared with the baseline", "baseline", report.baseline),
        ("project", "Project file", "project", report.project),
        ("answers", "Answers", "answers", report.model_checks),
        ("findings", "Causes", "findings", report.findings),
        ("cells", "Cells", "cells", values["cells"]),
        ("second-opinion", "Reference tests", "second_opinion", values["opinion_rows"]),
        ("figures", "Figures", "charts", values["past_total"] > 1 or values["by_target"] or values["durations"]),
        ("stack", "Hardware stack", "stack", report.stack),
        ("matrix", "Matrix", "matrix_part", values["matrix"]),
        ("components", "Components", "components", report.components),
        ("machines-heading", "Machines", "machines", values["machines"]),
    )
    yield from ((anchor, words, f"{template}.html.j2") for anchor, words, template, there in shown if there)


FORMAT = Format(suffix="html", render=html_report)
