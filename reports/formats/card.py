"""A section for a model card: on which devices the model was tested, in Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from hwcompat.generators.compatibility.verdict import Basis, Level
from hwcompat.hardware.cell import Cell, parsed
from hwcompat.hardware.command_names import PROGRAM
from hwcompat.hardware.evidence.versions import RELEASE

from ..cell_report import CellReport
from ..fact_labels import error_text
from ..reason_text import explained
from ..report import Report
from ..text import code, markdown, markdown_table
from . import Format

_HEADINGS = ("task", "target", "device", "precision", "weights", "works", "checks", "error / tolerance")
_WORKS = {Level.HIGH: "yes", Level.MEDIUM: "yes, with conditions", Level.LOW: "in part", Level.UNSUPPORTED: "no"}


def model_card(report: Report) -> str:
    """Return a section for each model with measured cells. What wasn't measured is left out."""
    by_model: dict[str, list[CellReport]] = {}
    for cell in report.cells:
        of = parsed(cell.id)
        measured = cell.verdict.basis is Basis.MEASURED and cell.verdict.level is not Level.UNKNOWN
        if of is not None and measured:
            by_model.setdefault(of.model, []).append(cell)
    if not by_model:
        return "Nothing was measured.\n"
    return "\n".join("\n".join(_section(model, cells, report)) for model, cells in by_model.items())


def _section(model: str, cells: list[CellReport], report: Report) -> Iterator[str]:
    yield f"## Tested devices: {markdown(model)}\n"
    yield markdown_table(_HEADINGS, [_row(cell) for cell in cells])
    stated = [explained(cell.verdict) for cell in cells]
    limited = [cell.verdict.level is not Level.HIGH for cell in cells]
    conditions = sorted(
        {
            text
            for (reasons, others), more in zip(stated, limited, strict=True)
            for text in (*(reasons if more else ()), *others)
        }
    )
    if conditions:
        yield "\nConditions:\n"
        yield from (f"- {markdown(text)}" for text in conditions)
    versions = sorted(
        {f"{name} {version}" for run in report.runs for name, version in run.versions.items() if version}
    )
    used = f", with {', '.join(versions)}" if versions else ""
    targets = " ".join(f"--device {name}" for name in sorted({cell.id.split("/")[2] for cell in cells}))
    yield f"\nMeasured with hwcompat {RELEASE} by {report.timestamp[:10]}{markdown(used)}. Run it again:"
    yield f"{code(f'{PROGRAM} run --model {model} {targets}')}\n"


def _row(cell: CellReport) -> list[str]:
    of = Cell.parse(cell.id)
    return [
        *(markdown(text) for text in (of.task, str(of.target), cell.device, of.precision, cell.subjects)),
        _WORKS[cell.verdict.level],
        markdown(cell.outcomes),
        error_text(max(cell.lines, key=lambda line: line.max_rel_error or 0.0)) if cell.lines else "",
    ]


FORMAT = Format(suffix="card.md", render=model_card)
