"""What a suite is made from: its recipe and the product's templates, as one hash. Evidence expires with it."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from generators.models.recipe import Recipe

_TEMPLATES = Path(__file__).parents[2] / "templates"


def made_from(recipe: Recipe) -> str:
    """The hash of a recipe and of all templates of the product: 16 hexadecimal digits."""
    return hashlib.sha256(recipe.digest.encode() + _templates()).hexdigest()[:16]


@functools.cache
def _templates() -> bytes:
    digest = hashlib.sha256()
    for path in sorted(_TEMPLATES.rglob("*.j2")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.digest()
