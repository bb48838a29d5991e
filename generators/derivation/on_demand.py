"""The recipe of what a user asks for: the stored one, else one that is derived now, in a child, and kept."""

from __future__ import annotations

from pathlib import Path

from generators.models.recipe import Recipe
from generators.models.store import keep_recipe, load_recipe

from .child import derive_in_child


def recipe_for(model_type: str, task: str | None = None) -> Recipe:
    """The recipe of a model type: the stored one, else one derived now (seconds, imports torch) and kept.

    Raises `ModelError` for an unknown type or task, or where no acceptable tiny model could be made.
    """
    stored = load_recipe(model_type, task)
    if stored is not None:
        return stored
    recipe = derive_in_child("type", model_type, task)
    keep_recipe(recipe, primary=task is None)
    return recipe


def derive_checkpoint(folder: Path | str) -> Recipe:
    """The recipe of a real checkpoint in a local folder (config.json and safetensors); it is not kept.

    Raises `BrokenInput` or `ModelError` where the folder can't be read or run. Takes seconds, in a child process.
    """
    return derive_in_child("checkpoint", str(folder))
