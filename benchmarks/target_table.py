"""Make a page about targets from evidence: the result of each cell, and the operators that made cells fail.

`python -m benchmarks.target_table TARGET… [--evidence FOLDER]… > docs/PAGE.md` reads folders of `--run --device
TARGET`, by default docs/evidence. `--keep` writes the lines that count there. The last run of a check counts.
`target_table.toml` has the targets and the texts of their pages.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from hardware.evidence.record import CheckLine, RunLine
from hardware.target import Target
from hardware.testing.tolerances import tolerance_for

from .evidence_rows import Row, rows_of
from .evidence_table import dates_said, gathered, keep, one_line, versions_said

_KEPT = Path("docs/evidence")


@dataclass(frozen=True, kw_only=True)
class Wording:
    """The texts of a target's page; `target_table.toml` explains the fields."""

    target: Target
    title: str
    head: str
    versions: Sequence[str]
    column: str
    left: str
    refuses: str
    noise: Sequence[str]
    named: str = ""
    on_host: str = "no operator on the host"
    conditions: Sequence[str] = ()


def wordings() -> dict[str, Wording]:
    """Return the texts of each page by target."""
    plain: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return {name: Wording(target=Target.parse(name), **one) for name, one in plain.items()}


def _reason(wording: Wording, line: CheckLine) -> str:
    """Return the operators of a failure, or its message if it names none, as one line for a table."""
    left = re.search(wording.left, line.error_message)
    if left:
        return f"{wording.refuses} {left[1]}"
    text = line.error_message
    named = Counter(re.findall(wording.named, text) if wording.named else ())
    operators = ", ".join(f"{name} ({count})" for name, count in sorted(named.items()))
    for noise in wording.noise:
        text = re.sub(noise, "", text)
    words = f"{line.check_name}, {line.error_type or line.outcome}: {one_line(text)}"
    return f"{words} (refused: {operators})" if operators else words


def _name(wording: Wording, row: Row) -> str:
    variant = row.cell.target.variant
    return row.cell.model if variant in ("", wording.target.variant) else f"{row.cell.model} ({variant})"


def _result(wording: Wording, rows: Sequence[Row]) -> str:
    return f"{sum(row.works for row in rows)} of {len(rows)} cells pass every check on {wording.target}"


def _head(wording: Wording, runs: Sequence[RunLine], lines: Sequence[CheckLine], rows: Sequence[Row]) -> str:
    devices = sorted(
        {line.accelerator for line in lines if line.accelerator and line.actual_target == str(wording.target)}
    )
    return wording.head.format(
        result=f"{_result(wording, rows)}.",
        dates=dates_said(runs),
        versions=versions_said(runs, wording.versions),
        device=" and ".join(devices),
    )


def _section(wording: Wording, precision: str, rows: Sequence[Row]) -> Iterator[str]:
    right, wrong = [row for row in rows if row.works], [row for row in rows if not row.works]
    stated = tolerance_for(wording.target, precision)
    yield f"\n## {precision}\n"
    yield (
        f"{len(right)} of {len(rows)} cells pass every check within {stated.limit:g} ({stated.reason}), with "
        f"{wording.on_host}.\n"
    )
    yield f"| model | task | checks | largest error | {wording.column} |\n|---|---|---|---|---|"
    for row in right:
        error = "-" if row.error is None else f"{row.error:.1e}"
        under = "".join(f", {row.conditions[name]}" for name in wording.conditions if name in row.conditions)
        yield f"| {_name(wording, row)} | {row.cell.task} | {row.passed} | {error} | {row.native}{under} |"
    if wrong:
        yield "\n| model | task | checks | reason |\n|---|---|---|---|"
        for row in wrong:
            reason = _reason(wording, row.failed) if row.failed else ""
            yield f"| {_name(wording, row)} | {row.cell.task} | {row.passed} of {row.checks} | {reason} |"


def page(wording: Wording, runs: Sequence[RunLine], lines: Sequence[CheckLine]) -> str:
    """Return the page. Raises `ValueError` if there is no evidence of the target."""
    rows = list(rows_of(lines, wording.target))
    if not rows:
        raise ValueError(f"no evidence on target {wording.target}")
    precisions = sorted({row.cell.precision for row in rows})
    sections = (
        text for name in precisions for text in _section(wording, name, [r for r in rows if r.cell.precision == name])
    )
    return "\n".join([_head(wording, runs, lines, rows), *sections])


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="TARGET...", type=click.Choice(sorted(wordings())))
@click.option("--evidence", "places", multiple=True, type=click.Path(path_type=Path, exists=True))
@click.option("--keep", "keeps", is_flag=True, help=f"Write the lines that count to {_KEPT}.")
def main(names: tuple[str, ...], places: tuple[Path, ...], keeps: bool) -> None:
    """Print the page of TARGETs."""
    made, results = [], []
    for name in names:
        wording = wordings()[name]
        kept = _KEPT / f"{wording.target.name}.jsonl.gz"
        if keeps:
            keep(gathered(places or (kept,)), wording.target, kept)
        found = gathered((kept,) if keeps else places or (kept,))
        made.append(wording.title + page(wording, found.runs, found.checks))
        results.append(_result(wording, list(rows_of(found.checks, wording.target))))
    click.echo("\n".join(made).replace("{results}", ", and ".join(results)))


if __name__ == "__main__":
    main()
