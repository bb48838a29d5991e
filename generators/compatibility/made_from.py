"""What a suite is made from: its recipe and the product's templates, as one hash. Evidence expires with it."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from generators.models.recipe import Recipe
from generators.template_folder import TEMPLATES

_ROOT = Path(__file__).parents[2]
_NOT_SUITES = ("repro",)
"""Folders of templates that no suite is made with."""
_FILLING = ("render.py", "render_given.py")
"""The code that fills templates: a suite changes with it too."""


def made_from(recipe: Recipe | None) -> str:
    """The hash of a recipe, of all templates of the product and of what fills them: 16 hexadecimal digits.

    None stands for a recipe that isn't kept, of a checkpoint, a module or a file: the rest counts alone.
    """
    digest = recipe.digest if recipe is not None else ""
    return hashlib.sha256(digest.encode() + _templates()).hexdigest()[:16]


@functools.cache
def _templates() -> bytes:
    digest = hashlib.sha256()
    filling = [_ROOT / "generators" / "suites" / name for name in _FILLING]
    found = [path for path in sorted(TEMPLATES.rglob("*.j2")) if path.parent.name not in _NOT_SUITES]
    for path in [*found, *filling]:
        digest.update(path.name.encode() + path.read_bytes())
    return digest.digest()
