"""The results of operators on a target as a table: for a terminal, JSON, CSV, Markdown and a page."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from hwcompat.generators.operators.operator_results import (
    OperatorOutcome,
    OperatorReport,
    OperatorResult,
    TypeCoverage,
)
from hwcompat.generators.operators.operator_variants import is_like_one_of
from hwcompat.hardware.evidence.record import plain
from hwcompat.hardware.operators.device_probe import ProbeAnswer
from hwcompat.hardware.plain_text import json_text, one_line
from hwcompat.hardware.target import Target

from .document import Block, Heading, Table, document
from .html.page import document_page
from .text import listed

SCHEMA_VERSION = 1
FORMATS = ("table", "json", "csv", "markdown", "html")
COLUMNS = (
    *("backend_name", "op_name", "op_params", "test_mode"),
    *("supported", "error_message", "backend_reg_name"),
)
"""The columns of llama.cpp's `test-backend-ops support --output csv`. Its scripts/create_ops_docs.py takes rows of
the mode `support` alone, and reads `yes` or `no` in `error_message`.
Source: https://github.com/ggml-org/llama.cpp/blob/master/docs/ops/CPU.csv"""

_SHOWN_TYPES = 6
_MOST_ROWS = 500
_SHOWN_REASON = 300
_SHOWN_DETAIL = 50


def operators_text(report: OperatorReport, coverages: Sequence[TypeCoverage], format_: str) -> str:
    """Return the results in a format of `FORMATS`, ending in a newline."""
    if format_ == "json":
        found = {"schema_version": SCHEMA_VERSION, **asdict(report), "coverage": [asdict(one) for one in coverages]}
        return json_text(plain(found)) + "\n"  # an infinite error becomes text
    if format_ == "csv":
        return _csv(report)
    blocks = list(_blocks(report, coverages))
    if format_ == "html":
        return document_page(_title(report), blocks)
    return document(blocks, format_)


def probe_text(target: Target, answers: Sequence[ProbeAnswer], format_: str) -> str:
    """Return the answers of a device probe as a table, JSON or Markdown, ending in a newline."""
    if format_ == "json":
        values = {"target": str(target), "answers": [asdict(one) | {"is_fault": one.is_fault} for one in answers]}
        return json_text({"schema_version": SCHEMA_VERSION, **values}) + "\n"
    blocks: list[Block] = [
        Heading(level=1, text=f"How {target} computes float32"),
        Table(
            headings=["property", "found", "detail"],
            rows=[
                [one.title, one.value if one.usual else f"{one.value} *", one_line(one.detail, longest=_SHOWN_DETAIL)]
                for one in answers
            ],
            short=["property", "found", "detail"],
        ),
    ]
    said = [f"{one.title}: {one.meaning}." for one in answers if one.meaning]
    if said:
        blocks += [Heading(level=2, text="What this explains (*)"), said]
    return document(blocks, format_)


def _title(report: OperatorReport) -> str:
    return f"Operators on {report.target}: {report.mode}"


def _blocks(report: OperatorReport, coverages: Sequence[TypeCoverage]) -> Iterator[Block]:
    headings, rows = _rows(report)
    yield Heading(level=1, text=_title(report))
    yield _summary(report)
    if len(rows) > _MOST_ROWS:
        yield "Only what isn't supported is shown; `--format json` has all."
        rows = [row for row in rows if any(not cell.startswith(OperatorOutcome.SUPPORTED) for cell in row[2:])]
    yield Table(headings=headings, rows=rows, short=headings)
    left = [one for one in report.results if one.outcome is not OperatorOutcome.SUPPORTED]
    if left:
        yield Heading(level=2, text="Not supported or unknown")
        ranks = list(OperatorOutcome)
        yield [
            f"{one.operator} {one.precision}: {one.outcome}; {one_line(one.reason, longest=_SHOWN_REASON)}"
            + (f" (failed: {', '.join(one.failed_checks)})" if one.failed_checks and not report.is_of_onnx else "")
            for one in sorted(left, key=lambda one: (ranks.index(one.outcome), -one.types, one.operator))
        ]
    for found in coverages:
        yield Heading(level=2, text=f"Model types in {found.precision}")
        possible = f" ({listed(found.possible, _SHOWN_TYPES)})" if found.possible else ""
        not_asked = f", {found.not_asked} one that wasn't asked for" if found.not_asked else ""
        yield (
            f"{len(found.possible)} of {found.types} model types have all their operators{possible}. "
            f"{found.blocked} are blocked by several, {found.unknown} have an operator that is unknown{not_asked}."
        )
        alone = [
            f"{name} alone blocks {len(types)}: {listed(types, _SHOWN_TYPES)}" for name, types in found.next.items()
        ]
        if alone:
            yield alone


def _summary(report: OperatorReport) -> str:
    counted = ", ".join(f"{report.counts[one]} {one}" for one in OperatorOutcome if report.counts.get(one))
    operators = len(report.by_operator())
    ending = "" if operators == 1 else "s"
    what = f"test{ending} of ONNX" if report.is_of_onnx else f"operator{ending} in {', '.join(report.precisions)}"
    return f"{operators} {what}: {counted}. Source: {report.source}."


def _rows(report: OperatorReport) -> tuple[list[str], list[list[str]]]:
    rows = [
        [name, str(next(iter(found.values())).types), *(_cell(found.get(one)) for one in report.precisions)]
        for name, found in report.by_operator().items()
    ]
    return ["operator", "model types", *report.precisions], rows


def _cell(result: OperatorResult | None) -> str:
    if result is None:
        return "-"
    measured = result.outcome in (OperatorOutcome.SUPPORTED, OperatorOutcome.WRONG) and result.error is not None
    if not measured:
        return str(result.outcome)
    of_limit = f"{result.error:.2g} of the limit"
    return f"{result.outcome} ({of_limit if result.ulp is None else f'{result.error:.0e}, {result.ulp:.2g} ULP'})"


def _csv(report: OperatorReport) -> str:
    """Return a row for each call that models make of an operator in a precision."""
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(COLUMNS)
    for one in report.results:
        if report.mode == "support" and one.outcome is OperatorOutcome.UNKNOWN:
            continue  # the reader of these columns knows yes and no alone
        failed = one.failed_calls
        for call in one.calls or ("",):
            has = one.outcome is OperatorOutcome.SUPPORTED or (
                failed is not None
                and one.proven
                and not is_like_one_of(one.operator, call, (*failed, *one.unjudged_calls))
            )
            text = "" if has else f"{one.outcome}: {one.reason}"
            said = ("yes" if has else "no") if report.mode == "support" else text
            tensors = call.replace("float32[", f"{one.precision}[").replace(", ", ",")
            parameters = f"type={one.precision},{tensors}"
            name = report.target.partition(":")[0]
            writer.writerow([report.target, one.operator, parameters, report.mode, int(has), one_line(said), name])
    return out.getvalue()
