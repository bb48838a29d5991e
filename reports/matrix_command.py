"""`--hardware-compatibility`: the matrix as it stands here, in a format."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import click

from generators.compatibility.current import current_matrix
from generators.compatibility.matrix_text import matrix_text
from generators.compatibility.standing import standing_in
from generators.options import Options
from hardware.detection import detect
from hardware.errors import UsageError
from hardware.evidence.writer import now
from hardware.front_door import terminal_width


def report_matrix(asked: Options) -> int:
    """Print the matrix; returns the exit code. Without evidence there are still rules."""
    inventory = detect()
    with _no_collecting():
        standing = standing_in(asked.evidence) if asked.has_evidence else None
        matrix = current_matrix(standing, inventory, timestamp=now(), precision=asked.precision)
    if asked.targets:
        matrix = matrix.only(asked.targets)
    if asked.format_ == "csv" and not asked.by:
        raise UsageError("csv is one table", fix="Say which view: --by family or --by model.")
    one_view = asked.format_ in ("json", "csv")  # JSON holds both
    views = [asked.by] if asked.by else ["family"] if one_view else ["family", "model"]
    if asked.format_ == "html":
        from hardware.evidence.versions import versions_of

        from .html.matrix_html import matrix_html

        click.echo(matrix_html(matrix.to_dict(), versions=versions_of(inventory), views=views), nl=False)
        return 0
    width = terminal_width()
    parts = [
        matrix_text(matrix, asked.format_, by=view, width=width, legend=view == views[-1]).rstrip() for view in views
    ]
    click.echo("\n\n".join(parts))
    return 0


@contextmanager
def _no_collecting() -> Iterator[None]:
    """Without Python's search for cycles: among so many lines, which hold none, it takes a third of the time."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()
