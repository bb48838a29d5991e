"""`--stress FILE`: a stress run as it was kept, with its curves."""

from __future__ import annotations

from pathlib import Path

from hardware.plain_text import json_text
from reports.delivery import print_or_write
from reports.formats import suffix_of
from reports.request import Request

from .page import stress_html
from .report import load_stress, stress_markdown


def show_stress(request: Request, path: Path) -> int:
    """Print or write it, and return the exit code: 1 where a load ended badly. Raises what `load_stress` does."""
    run = load_stress(path)
    if request.format == "html":
        text = stress_html(run)
    else:
        text = stress_markdown(run) if request.format == "markdown" else json_text(run, ascii_alone=True) + "\n"
    print_or_write(text, request.output_dir, f"stress_run.{suffix_of(request.format)}")
    return int(any(one["ending"] not in ("measured", "skipped") for one in run["results"]))
