"""`hwcompat matrix`: the matrix of this machine in a format."""

from __future__ import annotations

import sys

import click

from hwcompat.generators.compatibility.matrix import current_matrix
from hwcompat.generators.compatibility.verdict_cache import Judged, judged_in, judged_of
from hwcompat.generators.model_profile import checkpoint_slug
from hwcompat.generators.options import Options
from hwcompat.generators.project.project_reader import read_project
from hwcompat.hardware.basic_detection import inventory_here
from hwcompat.hardware.command_line import note, terminal_width
from hwcompat.hardware.errors import UsageError
from hwcompat.hardware.evidence.latest import Latest, read_latest
from hwcompat.hardware.evidence.writer import now
from hwcompat.hardware.gc_control import not_collecting
from hwcompat.hardware.plain_text import one_line

from .matrix_changes import changes_text, check_words, compare_matrix, read_baseline
from .matrix_text import VIEWS, matrix_text
from .progress_bar import working_on


def report_matrix(asked: Options) -> int:
    """Print the matrix, or its changes since the baseline; return the exit code.

    Without evidence there are still rules. The code is 1 if a word of `--fail-on` is true of any cell.
    """
    check_words(asked.fail_on)
    if asked.baseline and asked.by:
        raise UsageError("--baseline compares all cells of all models", fix="Leave out --by.")
    if asked.models and asked.by not in (None, "model"):
        raise UsageError(f"--model selects rows of models, but --by {asked.by} shows groups", fix="Leave one out.")
    latest: Latest | None = None
    before = read_baseline(asked.baseline) if asked.baseline else None
    inventory = inventory_here()
    with not_collecting(), working_on("judging the evidence"):
        limits = read_project(asked.config).limits_of if asked.config else None
        concluded: Judged | None
        if asked.has_evidence and asked.format_ == "html":  # the page shows results too
            latest = read_latest(asked.evidence)
            concluded = judged_of(latest, inventory, limits(latest.cells) if limits else {})
        else:
            concluded = judged_in(asked.evidence, inventory, limits) if asked.has_evidence else None
        matrix = current_matrix(
            concluded, inventory, timestamp=now(), precision=asked.precision, targets=asked.targets
        )
    if asked.targets:
        matrix = matrix.only(asked.targets)
    # As in cells: a type by its name, a folder or Hub id by its slug.
    named = [part.strip() for text in asked.models for part in text.split(",") if part.strip()]
    models = tuple(dict.fromkeys(map(checkpoint_slug, named)))
    if models:
        matrix = matrix.of_models(models)
    note(*_broken(concluded))
    if before is not None:
        found = compare_matrix(before, matrix, asked.targets, models)
        width = terminal_width()
        click.echo(changes_text(found, asked.format_, fail_on=asked.fail_on, width=width), nl=False)
        return 1 if found.met(asked.fail_on) else 0
    by = "model" if models else asked.by
    if asked.format_ == "csv" and not by:
        raise UsageError("csv has one table only", fix=f"Select a view: --by {', --by '.join(VIEWS)}.")
    one_view = asked.format_ in ("json", "csv")  # JSON has all views
    if asked.format_ == "html":
        from hwcompat.hardware.evidence.versions import versions_of

        from .html.matrix_html import VIEWS as ALL
        from .html.matrix_html import matrix_html

        views = [by] if by else ALL
        page = matrix_html(matrix.to_dict(), versions=versions_of(inventory), views=views, evidence=latest)
        click.echo(page, nl=False)
        return 0
    views = [by] if by else ["family"] if one_view else ["family", "model"]
    width = terminal_width(most=1000)
    piped = not sys.stdout.isatty()
    parts = [
        matrix_text(matrix, asked.format_, by=view, width=width, legend=view == views[-1], whole_names=piped).rstrip()
        for view in views
    ]
    click.echo("\n\n".join(parts))
    return 0


def _broken(concluded: Judged | None) -> list[str]:
    """Print a note if evidence has broken lines, with the first of them."""
    if concluded is None or not concluded.broken:
        return []
    first, number = concluded.broken[0], len(concluded.broken)
    lines = "1 line of the evidence is" if number == 1 else f"{number} lines of the evidence are"
    return [one_line(f"{lines} broken and skipped; {first.file}, line {first.number}: {first.reason}")]
