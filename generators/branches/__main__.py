"""`python -m generators.branches [TYPES]`: choose other settings for the shipped recipes of model types.

Without types all are changed. The branches of the modeling code that their suites enter are counted. Takes seconds to
a minute for a type.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import click

from hwcompat.generators.models.recipe import SHIPPED, Recipe, read_recipe, write_recipe
from hwcompat.generators.models.recipe_store import folders
from hwcompat.generators.recipes.derive_many import in_children
from hwcompat.hardware.command_line import run_command_line
from hwcompat.hardware.errors import UsageError, did_you_mean, echo

_JOBS = 2
_TIMEOUT_S = 600.0


def _changed(path: Path) -> dict[str, Any]:
    """Return the recipe of a file with its variants and branches, and the settings with which the model is wrong."""
    import torch

    from .choose_variants import LOG, with_variants

    torch.set_num_threads(1)
    wrong: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: wrong.append(record.getMessage())  # type: ignore[method-assign]
    LOG.addHandler(handler)
    return {"recipe": with_variants(read_recipe(path)).to_dict(), "wrong": wrong}


@click.command()
@click.argument("model_types", nargs=-1)
def main(model_types: tuple[str, ...]) -> int:
    """Change the shipped recipes of MODEL_TYPES, by default of every type; the exit code is 1 if one can't be."""
    paths = [path for name in folders() for path in sorted((SHIPPED / name).glob("*.json")) if "@" not in path.stem]
    known = [path.stem for path in paths]
    for name in model_types:
        if name not in known:
            raise UsageError(f"no recipe of {echo(name)} is shipped", fix=did_you_mean(name, known))
    failed = 0
    chosen = [path for path in paths if not model_types or path.stem in model_types]
    for path, answer, lost in in_children(chosen, _changed, jobs=_JOBS, timeout_s=_TIMEOUT_S):
        if answer is None:
            failed += 1
            click.echo(f"{path.stem}: {lost}")
            continue
        recipe = Recipe.from_dict(answer["recipe"])
        write_recipe(recipe, path)
        click.echo("\n  wrong: ".join([f"{path.stem}: {recipe.exercised}", *answer["wrong"]]))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(run_command_line(main, sys.argv[1:], program="python -m generators.branches"))
