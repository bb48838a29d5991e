"""Which recipes are wanted, and which of them aren't stored yet. Imports nothing that builds models."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from generators.models.store import load_recipe, refusal_of


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A recipe to derive; `task` None is the type's primary one."""

    model_type: str
    task: str | None = None


def missing(wanted: Iterable[Wanted]) -> list[Wanted]:
    """Those for which neither a recipe nor a refusal is stored."""
    return [
        one
        for one in wanted
        if refusal_of(one.model_type, one.task) is None and load_recipe(one.model_type, one.task) is None
    ]
