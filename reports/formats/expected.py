"""Expected results of measured cells, a CSV as in PyTorch's dynamo benchmarks; `hwcompat run --expected` reads it."""

from __future__ import annotations

import csv
import io

from hwcompat.generators.compatibility.verdict import Basis, Level
from hwcompat.generators.project.expected_results import word_of
from hwcompat.hardware.cell import parsed

from ..report import Report
from . import Format


def expected_results(report: Report) -> str:
    """Return a line for each measured cell. What is unknown, expired or only predicted has none."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("name", "accuracy"))
    for cell in sorted(report.cells, key=lambda one: one.id):
        known = cell.verdict.level is not Level.UNKNOWN and cell.verdict.basis is Basis.MEASURED
        if known and parsed(cell.id) is not None:
            table.writerow((cell.id, word_of(cell.verdict.level, cell.lines)))
    return text.getvalue()


FORMAT = Format(suffix="expected.csv", render=expected_results)
