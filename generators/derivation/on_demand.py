"""The recipe of what a user asks for: the stored one, else one that is derived now, in a child, and kept."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from generators.models.recipe import Recipe
from generators.models.store import keep_recipe, load_recipe
from hardware.process import DROPPED, run, with_product

from .child import checked_in_child, derive_in_child


def recipe_for(model_type: str, task: str | None = None) -> Recipe:
    """The recipe of a model type: the stored one, else one derived now (seconds, imports torch) and kept.

    Raises `ModelError` for an unknown type or task, or where no acceptable tiny model could be made.
    """
    stored = load_recipe(model_type, task)
    if stored is not None:
        return stored
    # Seconds of silence look like a hang.
    print(f"deriving a recipe of {model_type}: a few seconds, once per version", file=sys.stderr, flush=True)
    recipe = derive_in_child("type", model_type, task)
    keep_recipe(recipe, primary=task is None)
    return recipe


def derive_checkpoint(folder: Path | str) -> Recipe:
    """The recipe of a real checkpoint in a local folder (config.json and safetensors); it is not kept.

    Raises `BrokenInput` or `ModelError` where the folder can't be read or run. Takes seconds, in a child process.
    """
    return derive_in_child("checkpoint", str(folder))


def check_checkpoint(folder: Path | str) -> tuple[str, ...]:
    """What is to be said of a checkpoint before it runs, such as weights that its class doesn't take.

    Raises `BrokenInput` or `ModelError` where `derive_checkpoint` refuses the folder without computing anything.
    Takes seconds, in a child process that reads the headers of the weights alone.
    """
    return checked_in_child(str(folder))


def derive_missing(model_types: Sequence[str], *, all_tasks: bool) -> None:
    """Derive what isn't stored for these types, several at a time, and keep it; what can't be is kept as a refusal.

    Takes about two seconds a type on two cores; progress goes to standard error. One process for all: it imports the
    libraries once, which costs more than most derivations.
    """
    if not model_types:
        return
    # What it left out is derived one by one, and says why it can't be.
    words = [*(["--all-tasks"] if all_tasks else []), *model_types]
    run(
        [sys.executable, "-P", "-m", "generators.derivation", "--missing", *words],
        limit_s=None,
        environment=with_product(),
        stdout=DROPPED,
        stderr=None,
    )
