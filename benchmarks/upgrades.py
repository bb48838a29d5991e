"""Compare the installed version of transformers with the version that recipes ship for.

Run it in an environment with another version, such as `.venv-transformers-5.23.0/bin/python -m benchmarks.upgrades`.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).parents[1]))

from generators.models.catalog import installed_version, load_catalog
from generators.models.recipe import SHIPPED, Recipe, read_recipe
from generators.recipes.derive_many import in_children
from hardware.errors import ModelError


def _carried(recipe: Recipe) -> dict[str, Any]:
    from generators.models.classifier import classify_type
    from generators.recipes.build_model import filled_model
    from generators.recipes.derive import task_class
    from generators.recipes.upgrade import AGREES, carried_over, distance_of

    try:
        carried = carried_over(recipe, classify_type(recipe.model_type), task_class(recipe.model_type, None))
    except ModelError:  # a type without a class any more
        carried = None
    if carried is None:
        return {"found": "made in another way"}
    try:
        distance = distance_of(recipe, filled_model(recipe))
    except Exception as error:  # modeling code may raise anything
        return {"found": f"fails: {type(error).__name__}"}
    return {"found": "agrees"} if distance < AGREES else {"found": "differs", "distance": distance}


@click.command()
@click.argument("model_types", nargs=-1)
@click.option("--jobs", default=2, show_default=True, type=click.IntRange(min=1))
def main(model_types: tuple[str, ...], jobs: int) -> None:
    """Print the types that differ with their distance, those that can't be run or are made in another way, and the
    counts."""
    known = set(load_catalog().model_types)
    shipped = [read_recipe(path) for path in sorted(SHIPPED.glob("*/*.json")) if "@" not in path.stem]
    asked = [one for one in shipped if one.model_type in (model_types or known)]
    counts: Counter[str] = Counter()
    for recipe, answer, lost in in_children(asked, _carried, jobs=jobs):
        found = answer["found"] if answer else f"failed: {lost}"
        counts[found.partition(":")[0]] += 1
        if found != "agrees":
            distance = f" by {answer['distance']:.1e} of the scale" if answer and "distance" in answer else ""
            click.echo(f"{recipe.model_type}: {found}{distance}")
    click.echo(
        f"transformers {installed_version()}: {', '.join(f'{n} {what}' for what, n in sorted(counts.items()))}"
    )


if __name__ == "__main__":
    main()
