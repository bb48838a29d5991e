"""The published compatibility matrix, made from the evidence in docs/evidence.

`python -m benchmarks.published_matrix page > docs/measured/compatibility.md` makes the page in the repository,
`python -m benchmarks.published_matrix html DIR` writes two pages that `make docs` adds to the site: matrix.html with
all cells, and models.md with a section for each model. The site's search skips tables, but finds sections.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

from benchmarks.calibration import TARGETS, kept_places
from benchmarks.evidence_table import Gathered, dates_said, gathered, versions_said
from generators.compatibility.matrix import Matrix, current_matrix
from generators.compatibility.verdict import Basis, Level
from generators.compatibility.verdict_cache import judged_of
from hardware.basic_detection import inventory_here
from hardware.detection import HardwareInfo
from hardware.evidence.latest import Latest, read_latest
from hardware.evidence.record import to_dict
from hardware.evidence.versions import versions_of
from reports.html.matrix_html import matrix_html
from reports.matrix_text import matrix_text
from reports.text import markdown_table

_SHOWN = ("cpu", "cuda", "rocm", "mps", "xpu", "tpu", "openvino", "qnn", "qnn:emulator", "webnn", "webgpu")
_RAN = (Basis.MEASURED, Basis.EXPIRED)
_LEVELS = (Level.HIGH, Level.MEDIUM, Level.LOW, Level.UNSUPPORTED, Level.UNKNOWN)
_PACKAGES = ("transformers", "torch", "openvino", "optimum-intel", "onnxruntime")

_HEAD = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")


def published(inventory: HardwareInfo) -> tuple[Gathered, Latest, Matrix]:
    """Return the stored evidence, its latest results, and their matrix with this machine's rules and versions."""
    found = gathered(kept_places())
    with tempfile.TemporaryDirectory() as folder:
        lines = (json.dumps(to_dict(line)) + "\n" for line in (*found.runs, *found.checks))
        (Path(folder) / "kept.jsonl").write_text("".join(lines), encoding="utf-8")
        latest = read_latest(Path(folder))
    last = max(line.started_at for line in found.runs)
    return found, latest, current_matrix(judged_of(latest, inventory), inventory, timestamp=last)


def counted(matrix: Matrix) -> str:
    """Return a table of the number of cells by target, basis and level."""
    verdicts = [
        (target, verdict["basis"], verdict["level"])
        for model in matrix.to_dict()["models"].values()
        for target, verdict in model["compatibility"].items()
    ]
    found = Counter(one for one in verdicts if one[1] in _RAN)
    rows = [
        [name, basis, *(str(found[name, basis, level]) for level in _LEVELS)]
        for name in TARGETS
        for basis in _RAN
        if any(found[name, basis, level] for level in _LEVELS)
    ]
    return markdown_table(["target", "basis", *_LEVELS], rows)


def result_of(matrix: Matrix) -> str:
    """Return the sentence that says how many model types work on each target that ran."""
    parts = []
    for name in TARGETS:
        levels = [
            verdict["level"]
            for model in matrix.to_dict()["models"].values()
            for target, verdict in model["compatibility"].items()
            if target == name and verdict["basis"] in _RAN
        ]
        if levels:
            parts.append(f"{sum(one in ('high', 'medium') for one in levels)} of {len(levels)} on {name}")
    return f"Cells that are `high` or `medium`, of those that ran: {', '.join(parts)}."


@click.group()
def main() -> None:
    """Make the published matrix."""


@main.command()
def page() -> None:
    """Print docs/measured/compatibility.md."""
    found, _, matrix = published(inventory_here())
    measured = {"dates": dates_said(found.runs), "versions": versions_said(found.runs, _PACKAGES)}
    click.echo(_HEAD.format(**measured, result=result_of(matrix)), nl=False)
    click.echo(f"## Cells that ran\n\n{counted(matrix)}\n")
    matrix = matrix.only(_SHOWN)
    for view, title in (("family", "By family"), ("architecture", "By architecture")):
        click.echo(f"## {title}\n\n{matrix_text(matrix, 'markdown', by=view)}")


@main.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True))
def html(folder: Path) -> None:
    """Write the page with every cell, and the page of models."""
    inventory = inventory_here()
    _, latest, matrix = published(inventory)
    page = matrix_html(matrix.to_dict(), versions=versions_of(inventory), evidence=latest)
    (folder / "matrix.html").write_text(page, encoding="utf-8")
    (folder / "models.md").write_text("\n\n".join(models_page(matrix)) + "\n", encoding="utf-8")


def models_page(matrix: Matrix) -> Iterator[str]:
    """Yield the paragraphs of a page that tells by model on which targets it ran, and its level there."""
    yield "---\nhide: [toc]\n---"
    yield "# Does a model work on a target?"
    for model, rows in itertools.groupby(matrix.rows, key=lambda row: row.model):
        ran = [one for row in rows for one in row.verdicts.values() if one.basis in _RAN]
        targets = dict.fromkeys(one.cell.split("/")[2] for one in ran)
        if ran:
            yield f"## Does {model} work on {', '.join(targets)}?"
            yield "\n".join(f"- [{one.cell}](matrix.html#{one.cell}): {one.level}, {one.basis}" for one in ran)


if __name__ == "__main__":
    main()
