"""Prints a Markdown table of the models in some run reports: checks passed, largest error and verdict by target.

`python -m benchmarks.models_table REPORT.json… > docs/MODELS.md`, where the reports are those that `--run` leaves.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from hardware.cell import Cell


def _cells(report: Mapping[str, Any], shared: frozenset[str]) -> Iterator[tuple[Cell, str]]:
    """Each cell of a report with what the table says of it; conditions that all have are left to a note."""
    for verdict in report["verdicts"]:
        lines = [line for line in report["checks"] if line["cell"] == verdict["cell"]]
        passed = sum(line["outcome"] == "passed" for line in lines)
        errors = [line["max_rel_error"] for line in lines if isinstance(line["max_rel_error"], float)]
        works = verdict["level"] in ("high", "medium")
        texts = [text for text in _texts(verdict, "conditions") if text not in shared]
        why = "; ".join(texts if works else _texts(verdict, "reasons"))
        largest = f"{max(errors):.1e}" if errors else "-"
        said = f"**{verdict['level']}** {passed}/{len(lines)}, {largest}"
        yield Cell.parse(verdict["cell"]), f"{said} ({why})" if why else said


def _texts(verdict: Mapping[str, Any], name: str) -> list[str]:
    return [reason["text"] for reason in verdict[name]]


def _shared(report: Mapping[str, Any]) -> frozenset[str]:
    """The conditions of every cell of a report."""
    conditions = [frozenset(_texts(verdict, "conditions")) for verdict in report["verdicts"]]
    return frozenset.intersection(*conditions) if conditions else frozenset()


def table(reports: Sequence[Mapping[str, Any]]) -> str:
    """The table, models in alphabetical order, a column for each target in the order of the reports, and notes."""
    found = [pair for report in reports for pair in _cells(report, _shared(report))]
    targets = list(dict.fromkeys(str(cell.target) for cell, _ in found))
    said = {(cell.model, cell.task, str(cell.target)): text for cell, text in found}
    rows = [
        f"| {model} | {task} | {' | '.join(said.get((model, task, target), '-') for target in targets)} |"
        for model, task in sorted({(cell.model, cell.task) for cell, _ in found})
    ]
    head = [f"| model | task | {' | '.join(targets)} |", f"|{'---|' * (len(targets) + 2)}"]
    notes = [
        f"All on {', '.join(sorted({str(Cell.parse(v['cell']).target) for v in report['verdicts']}))}: "
        f"{'; '.join(sorted(_shared(report)))}."
        for report in reports
    ]
    return "\n".join([*head, *rows, "", *notes])


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False))
def main(paths: tuple[Path, ...]) -> None:
    """Print the page."""
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    dates = sorted({report["timestamp"][:10] for report in reports})
    click.echo(
        f"# Models\n\nMeasured {', '.join(dates)} on the machine and with the versions of `STATUS.md`, subject tiny."
    )
    click.echo("A cell says the verdict, checks passed of those that ran, and the largest error (tolerance 2e-5).\n")
    click.echo(table(reports))


if __name__ == "__main__":
    main()
