"""Make docs/measured/benchmarks.md: comparisons with their ratios, curves, and the command of every other script."""

from __future__ import annotations

import statistics
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from reports.text import markdown_table

from .processes import ROOT
from .result import Comparison, Curve, Result

SCRIPTS = Path(__file__).with_name("scripts.toml")

_HEAD = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")

_SCRIPTS_HEAD = """## Every script of benchmarks/

`make bench` leaves out what takes hours or needs special hardware. Each page has the last results, with date and
versions.

"""


@dataclass(frozen=True, kw_only=True)
class Script:
    """A script of `benchmarks/`: its command, the page with its results, and its run time."""

    name: str
    shows: str
    command: str
    takes: str
    page: str = ""
    in_bench: str = ""


def read_scripts() -> tuple[Script, ...]:
    """Read the scripts of `scripts.toml`."""
    plain = tomllib.loads(SCRIPTS.read_text(encoding="utf-8"))
    return tuple(Script(name=name, **fields) for name, fields in plain.items())


def page(results: Mapping[str, Result], scripts: Sequence[Script]) -> str:
    """Return the page as Markdown."""
    ratios = [one.ratio for result in results.values() for one in result.comparisons if one.ratio is not None]
    less = sum(one < 1 for one in ratios)
    parts = [_HEAD.format(result=f"hwcompat took less than the other tool in {less} of {len(ratios)} comparisons.")]
    for result in results.values():
        parts.append(_section(result))
    parts.append(_SCRIPTS_HEAD)
    rows = [
        [
            f"`{one.name}`",
            one.shows,
            f"`{one.command}`",
            one.takes,
            f"[page](../{one.page})" if one.page else one.in_bench,
        ]
        for one in scripts
    ]
    parts.append(markdown_table(["script", "what it shows", "command", "takes", "results"], rows) + "\n")
    return "".join(parts)


def _section(result: Result) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in sorted(result.versions.items()))
    parts = [f"## {result.title}\n\n", f"{result.date}, {result.machine}; {versions}.\n\n"]
    if result.comparisons:
        rows = [_row(one) for one in result.comparisons]
        heads = ["what", "ratio", "hwcompat", "other tool", "runs", "what differs"]
        parts.append(markdown_table(heads, rows) + "\n\n")
    parts += [f"{remark}\n\n" for remark in result.remarks]
    return "".join([*parts, *map(_growth, result.curves)])


def _row(one: Comparison) -> list[str]:
    ours, runs = _figure(one.ours_values, one.unit), str(len(one.ours_values))
    if one.missing or one.ratio is None:
        return [one.what, "", f"{one.ours}: {ours}", f"{one.rival}: not measured", runs, one.missing]
    rival = _figure(one.rival_values, one.unit)
    ratio = f"**{one.ratio:.2f}**" if one.ratio >= 0.01 else f"**{one.ratio:.1g}**"
    return [one.what, ratio, f"{one.ours}: {ours}", f"{one.rival}: {rival}", runs, one.note]


def _figure(values: Sequence[float], unit: str) -> str:
    middle = statistics.median(values)
    if unit == "s" and middle < 1:
        return f"{1000 * middle:.0f} ms"
    return f"{middle:,.3g} {unit}" if middle < 100 else f"{middle:,.0f} {unit}"


def _growth(curve: Curve) -> str:
    """Return a curve as a table: a row for each name."""
    places = sorted({x for points in curve.points.values() for x, _ in points})
    values = {name: dict(map(tuple, points)) for name, points in curve.points.items()}
    rows = [[name, *(f"{own[x]:.3g}" if x in own else "" for x in places)] for name, own in values.items()]
    table = markdown_table([f"{curve.y} by {curve.x}", *(f"{x:,.0f}" for x in places)], rows)
    return f"{curve.title}:\n\n{table}\n\n"


def missing_scripts(scripts: Sequence[Script]) -> list[str]:
    """Return the scripts of `benchmarks/` that aren't listed."""
    there = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if '__name__ == "__main__"' in path.read_text()}
    there |= {path.parent.name for path in (ROOT / "benchmarks").glob("*/__main__.py")}
    there |= {f"mutants.{path.parent.name}" for path in (ROOT / "benchmarks" / "mutants").glob("*/__main__.py")}
    return sorted(there - {one.name for one in scripts} - {"__init__"})
