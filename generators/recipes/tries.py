"""What all probes of calls share: a check that is tried, and whether a call agrees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hwcompat.generators.models.recipe import Recipe
from hwcompat.hardware.testing.model_test import ModelTest

MASKS = frozenset({"mask", "heard"})
"""Kinds of inputs that mark padding."""


@dataclass(frozen=True, kw_only=True)
class Try:
    """One check with the arguments that its suite would have, and the call that returns its error."""

    check: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    measure: Callable[[], float]


def named(recipe: Recipe, *kinds: str) -> list[str]:
    """Return the names of a recipe's inputs of some kinds."""
    return [name for name, spec in recipe.inputs.items() if spec["kind"] in kinds]


def agrees(case: ModelTest, error: Callable[[], float]) -> bool:
    """Return whether a call is possible and gives the same."""
    found = error_of(case, error)
    return found is not None and found <= case.tolerance


def error_of(case: ModelTest, error: Callable[[], float]) -> float | None:
    """Return the error of a call, None if the model raises."""
    try:
        return error()
    except Exception:  # whatever the model raises
        return None
    finally:
        case.take_measurement()
