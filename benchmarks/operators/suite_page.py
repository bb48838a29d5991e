"""Make docs/measured/operator-suites.md from what `hwcompat ops TARGET` and `hwcompat devices probe TARGET` printed
as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from generators.compatibility.operators import known_tables
from generators.operators.operator_results import (
    FAULTY,
    OperatorOutcome,
    OperatorReport,
    OperatorResult,
    coverage_of,
    support_report,
)
from generators.operators.operator_variants import called_by_models
from hardware.target import Target
from reports.operator_tables import operators_text
from reports.text import markdown_table

from .planted_faults import planted_section

_HEAD = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
_COUNTED = (OperatorOutcome.SUPPORTED, OperatorOutcome.UNSUPPORTED, OperatorOutcome.UNKNOWN)


def suite_page(files: Sequence[Path]) -> str:
    """Return the page as Markdown: counts by target, and the whole table of each target that ran."""
    printed = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    reports = [_report(one) for one in printed if "results" in one]
    counts = "; ".join(
        f"`{one.target}`{' (ONNX)' if one.is_of_onnx else ''} "
        f"{sum(result.outcome in FAULTY for result in one.results)} of {len(one.results)}"
        for one in reports
    )
    tables = [_lower(operators_text(one, (), "markdown")) for one in reports]
    return "\n".join(
        [
            _HEAD.format(result=counts),
            *_ran(reports),
            "",
            *_support(),
            "",
            *_probed(printed),
            "",
            *planted_section(),
            "",
            *tables,
        ]
    )


def _report(plain: dict[str, Any]) -> OperatorReport:
    results = [
        OperatorResult(
            **{
                **one,
                "outcome": OperatorOutcome(one["outcome"]),
                "calls": tuple(one["calls"]),
                **{name: None if one[name] is None else float(one[name]) for name in ("error", "ulp")},
            }
        )
        for one in plain["results"]
    ]
    kept = {name: plain[name] for name in ("target", "mode", "source")}
    return OperatorReport(**kept, precisions=tuple(plain["precisions"]), results=tuple(results))


def _ran(reports: Sequence[OperatorReport]) -> Iterator[str]:
    yield "| target | precision | " + " | ".join(OperatorOutcome) + " | model types without a blocked operator |"
    yield "|---|---|" + "---:|" * (len(OperatorOutcome) + 1)
    for report in reports:
        for precision in report.precisions:
            outcomes = [one.outcome for one in report.results if one.precision == precision]
            counts = " | ".join(str(outcomes.count(one)) for one in OperatorOutcome)
            found = coverage_of(report, precision)
            types = "-" if report.is_of_onnx else f"{len(found.possible)} of {found.types}"
            whose = f"{precision}, ONNX's tests" if report.is_of_onnx else precision
            yield f"| {report.target} | {whose} | {counts} | {types} |"


def _probed(printed: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a table of the answers of device probes, unusual ones with a star."""
    probes = [one for one in printed if "answers" in one]
    titles = [one["title"] for one in probes[0]["answers"]] if probes else []
    rows = [
        [title, *(_answer(next(one for one in probe["answers"] if one["title"] == title)) for probe in probes)]
        for title in titles
    ]
    yield "## Probes of devices (`hwcompat devices probe TARGET`)"
    yield ""
    yield "`*`: not what IEEE 754 and exact kernels give; the command says what that explains."
    yield ""
    yield markdown_table(["property", *(probe["target"] for probe in probes)], rows)


def _answer(one: Mapping[str, Any]) -> str:
    return f"{one['value']}{'' if one['usual'] else ' *'}"


def _support() -> Iterator[str]:
    yield "## By tables (`--mode support`)"
    yield ""
    yield "| target | " + " | ".join(_COUNTED) + " | model types | next |"
    yield "|---|" + "---:|" * (len(_COUNTED) + 1) + "---|"
    for name in known_tables():
        report = support_report(Target(name=name), called_by_models(), ["float32"])
        found = coverage_of(report, "float32")
        counts = " | ".join(str(report.counts.get(one, 0)) for one in _COUNTED)
        following = ", ".join(f"{operator} ({len(types)})" for operator, types in list(found.next.items())[:5])
        yield f"| {name} | {counts} | {len(found.possible)} of {found.types} | {following or '-'} |"


def _lower(markdown: str) -> str:
    return "\n".join(f"#{line}" if line.startswith("#") else line for line in markdown.splitlines())
