"""Make docs/measured/operator-suites.md from what `hwcompat ops TARGET` and `hwcompat devices probe TARGET` printed
as JSON, which docs/evidence keeps."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from generators.compatibility.operators import known_tables
from generators.operators.operator_results import (
    BLOCKING,
    FAULTY,
    OperatorOutcome,
    OperatorReport,
    OperatorResult,
    coverage_of,
    support_report,
)
from generators.operators.operator_variants import called_by_models, needing_types
from hardware.operators.node_test import PREFIX
from hardware.plain_text import one_line
from hardware.target import Target
from reports.text import listed, markdown_table

from .. import product
from .planted_faults import planted_section

KEPT = product.ROOT / "docs" / "evidence" / "operator-suites.jsonl.gz"
_LONGEST_REASON = 200
_MOST_NAMES = 12

_HEAD = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
_COUNTED = (OperatorOutcome.SUPPORTED, OperatorOutcome.UNSUPPORTED, OperatorOutcome.UNKNOWN)


def keep(files: Sequence[Path]) -> None:
    """Put what the commands printed into the kept results, in place of those of the same operators."""
    found = {_key(one): one for one in read_kept()}
    for file in files:
        one = json.loads(file.read_text(encoding="utf-8"))
        one.pop("coverage", None)
        key = _key(one)
        if "results" in one:
            for result in one["results"]:
                del result["calls"]
            together = [*found.get(key, {"results": []})["results"], *one["results"]]
            one["results"] = list({(result["operator"], result["precision"]): result for result in together}.values())
            one["precisions"] = list(dict.fromkeys(result["precision"] for result in one["results"]))
        found[key] = one
    lines = "".join(json.dumps(found[key], sort_keys=True) + "\n" for key in sorted(found))
    KEPT.write_bytes(gzip.compress(lines.encode(), mtime=0))


def read_kept() -> list[dict[str, Any]]:
    """Return the kept results and answers of probes."""
    return list(map(json.loads, gzip.decompress(KEPT.read_bytes()).splitlines())) if KEPT.exists() else []


def _key(printed: Mapping[str, Any]) -> str:
    results = printed.get("results")
    kind = "probe" if results is None else "onnx" if results[0]["operator"].startswith(PREFIX) else "operators"
    return f"{kind} {printed['target']}"


def suite_page() -> str:
    """Return the page as Markdown: counts by target, each operator on each target, and what isn't supported."""
    printed = read_kept()
    reports = [_report(one) for one in printed if "results" in one]
    counts = "; ".join(
        f"`{one.target}`{' (ONNX)' if one.is_of_onnx else ''} "
        f"{sum(result.outcome in FAULTY for result in one.results)} of {len(one.results)}"
        for one in reports
    )
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
            *_by_operator([one for one in reports if not one.is_of_onnx]),
            *(line for one in reports for line in _left(one)),
        ]
    )


def _report(plain: dict[str, Any]) -> OperatorReport:
    results = [
        OperatorResult(
            **{
                **one,
                "outcome": OperatorOutcome(one["outcome"]),
                **{name: None if one[name] is None else float(one[name]) for name in ("error", "ulp")},
            }
        )
        for one in plain["results"]
    ]
    kept = {name: plain[name] for name in ("target", "mode", "source")}
    return OperatorReport(**kept, precisions=tuple(plain["precisions"]), results=tuple(results))


def _by_operator(reports: Sequence[OperatorReport]) -> Iterator[str]:
    """Yield a table of the operators that models call, in float32 on each target."""
    found = {one.target: one.by_operator() for one in reports}
    names = sorted(called_by_models(), key=lambda name: (-len(needing_types().get(name, ())), name))
    rows = [
        [name, str(len(needing_types().get(name, ()))), *(_cell(one.get(name, {})) for one in found.values())]
        for name in names
    ]
    yield "## Operators that models call, in float32"
    yield ""
    yield markdown_table(["operator", "model types", *found], rows)
    yield ""


def _cell(by_precision: Mapping[str, OperatorResult]) -> str:
    result = by_precision.get("float32")
    if result is None:
        return "-"
    only_beyond = result.outcome in BLOCKING and not result.blocks
    return f"{result.outcome}{' (in other calls)' if only_beyond else ''}"


def _left(report: OperatorReport) -> Iterator[str]:
    """Yield what isn't supported, operators with the same reason together."""
    by_reason: dict[tuple[OperatorOutcome, str], list[str]] = defaultdict(list)
    for one in report.results:
        if one.outcome is not OperatorOutcome.SUPPORTED:
            by_precision = "" if len(report.precisions) == 1 else f" {one.precision}"
            own = one.reason.removeprefix(f"{one.operator.removeprefix(PREFIX)}: ")
            reason = one_line(own, longest=_LONGEST_REASON)
            by_reason[one.outcome, reason].append(f"{one.operator}{by_precision}")
    if not by_reason:
        return
    ranks = list(OperatorOutcome)
    ordered = sorted(by_reason.items(), key=lambda pair: (ranks.index(pair[0][0]), -len(pair[1]), pair[0][1]))
    yield f"## Not supported or unknown on {report.target}{' (tests of ONNX)' if report.is_of_onnx else ''}"
    yield ""
    rows = [[str(outcome), listed(names, _MOST_NAMES), reason] for (outcome, reason), names in ordered]
    yield markdown_table(["outcome", "operators", "reason"], rows)
    yield ""


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
