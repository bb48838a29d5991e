"""Suites of tiny models as they are generated, run in this process, with the model or its target broken."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from generators.models.catalog import installed_version
from generators.models.recipe import Recipe
from generators.models.recipe_store import load_recipe
from generators.suites.render import render
from hardware.cell import Cell
from hardware.testing.measurement import Ambiguous, NotApplicable
from hardware.testing.model_test import ModelTest


def outcomes(
    model_type: str,
    precision: str,
    folder: Path,
    *,
    checks: Iterable[str] = (),
    spoil: Callable[[Any], object] = lambda model: None,
    target: Callable[[], Any] = contextlib.nullcontext,
    recipe: Recipe | None = None,
    on: str = "cpu",
) -> tuple[dict[str, str], dict[str, str]]:
    """What becomes of each check (all, or those that are named) of a type's suite on a target, and the conditions.

    The recipe is the one that ships, unless one is given. `spoil` breaks the model that the suite makes; `target` is
    a context in which the target alone computes.
    """
    recipe = recipe or load_recipe(model_type)
    if recipe is None:
        pytest.skip(f"no recipe ships for transformers {installed_version()}")
    suite: dict[str, Any] = {}
    text = render(recipe, Cell.parse(f"{model_type}/{recipe.task}/{on}/{precision}"), ())
    exec(compile(text, f"suite of {model_type}", "exec"), suite)
    build = suite["make_model"]

    def make_model() -> Any:
        model = build()
        spoil(model)
        return model

    suite["make_model"] = make_model
    fixture = suite["case"].__wrapped__ if hasattr(suite["case"], "__wrapped__") else suite["case"]._fixture_function
    case = next(fixture())
    with pytest.MonkeyPatch.context() as patch:
        for name in ("__call__", "generate", "gradients"):
            _compute_in(patch, type(case.runnable), name, target)
        names = [name for name in suite if name.startswith("test_")]
        found, conditions = {}, {}
        for name in (one for one in names if not checks or one.removeprefix("test_") in checks):
            folders = (folder,) if name == "test_save_reload" else ()
            found[name.removeprefix("test_")] = _outcome(suite[name], case, *folders)
            case.take_measurement()
            conditions |= case.facts()["conditions"]
    return found, conditions


def _compute_in(patch: pytest.MonkeyPatch, kind: Any, name: str, target: Callable[[], Any]) -> None:
    original = getattr(kind, name)

    def computing(self: Any, *args: Any, **kwargs: Any) -> Any:
        with target():
            return original(self, *args, **kwargs)

    patch.setattr(kind, name, computing)


def _outcome(check: Callable[..., None], case: ModelTest, *folders: Path) -> str:
    try:
        check(case, *folders)
    except AssertionError:
        return "failed"
    except (Ambiguous, NotApplicable) as error:
        return type(error).__name__.lower()
    return "passed"
