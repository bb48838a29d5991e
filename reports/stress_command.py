"""`--stress FILE`: a stress run as it was kept, with its curves."""

from __future__ import annotations

from pathlib import Path

import click

from hardware.errors import OutputError
from hardware.front_door import note
from hardware.plain_text import json_text

from .formats import SUFFIXES
from .html.stress_html import stress_html
from .request import Request
from .stress import load_stress, stress_markdown


def show_stress(request: Request, path: Path) -> int:
    """Print or write it, and return the exit code: 1 where a load ended badly. Raises what `load_stress` does."""
    run = load_stress(path)
    if request.format == "html":
        text = stress_html(run)
    else:
        text = stress_markdown(run) if request.format == "markdown" else json_text(run, ascii_alone=True) + "\n"
    if request.output_dir is None:
        click.echo(text, nl=False)
    else:
        file = request.output_dir / f"stress_run.{SUFFIXES[request.format]}"
        try:
            request.output_dir.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            raise OutputError(f"can't write {file}", why=error.strerror or str(error)) from error
        note(f"written: {file}")
    return int(any(one["ending"] not in ("measured", "skipped") for one in run["results"]))
