"""Measure the memory of models, and print docs/measured/memory.md."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from pathlib import Path

import click


@click.group()
def main() -> None:
    """Compare measured memory peaks with estimates."""


@main.command()
@click.argument("out", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--turn", type=int, default=0, show_default=True, help="Another turn draws other requests.")
@click.option("--only", multiple=True, help="Model types; all by default.")
def measure(out: Path, turn: int, only: tuple[str, ...]) -> None:
    """Measure requests for every model type in random order; append a line each to OUT.

    Types with lines in OUT are skipped, so that an interrupted run resumes.
    """
    from generators.models.recipe_store import stored_recipes

    from .measuring import in_child, warm

    os.nice(3)
    done = (
        {json.loads(line)["model_type"] for line in out.read_text(encoding="utf-8").splitlines()}
        if out.is_file()
        else set()
    )
    recipes = [one for one in stored_recipes() if one.model_type not in done and (not only or one.model_type in only)]
    recipes.sort(key=lambda one: hashlib.sha256(f"{turn} {one.model_type}".encode()).hexdigest())
    warm(recipes[0])
    for place, recipe in enumerate(recipes, 1):
        in_child(recipe, turn, out)
        click.echo(f"{place}/{len(recipes)} {recipe.model_type}", err=True)


@main.command()
@click.argument("points", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="A file .jsonl.gz.")
def estimate(points: tuple[Path, ...], out: Path) -> None:
    """Estimate the measured requests; write both to a packed file."""
    import torch

    from .estimating import read_points, with_estimates, write_points

    logging.disable(logging.CRITICAL)  # Operators that torch can't size are returned as a reason.
    torch.set_num_threads(1)
    every = {json.dumps(one, sort_keys=True): one for path in points for one in read_points(path)}
    write_points(list(with_estimates(list(every.values()))), out)


@main.command()
@click.argument("evidence", type=click.Path(path_type=Path, exists=True, dir_okay=False))
def page(evidence: Path) -> None:
    """Print docs/measured/memory.md from the evidence and the published configurations, and draw its points."""
    from .estimating import read_points
    from .page import page_text
    from .scatter import FILE, scatter

    points = read_points(evidence)
    FILE.write_text(scatter([point for point in points if "parts" in point]), encoding="utf-8")
    click.echo(page_text(points), nl=False)


if __name__ == "__main__":
    main()
