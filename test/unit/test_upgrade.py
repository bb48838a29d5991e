"""Recipes of another version of the library, carried over to the installed one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from generators.models.catalog import installed_version
from generators.models.classifier import classify_type
from generators.models.inputs import make_inputs
from generators.models.recipe import KEPT, Recipe
from generators.models.recipe_store import load_recipe
from generators.recipes import measurements
from generators.recipes.build_model import filled_model
from generators.recipes.derive import task_class
from generators.recipes.upgrade import AGREES, carried_over, distance_of
from generators.suites.render import render
from hardware.cell import Cell
from hardware.evidence.error_types import type_of_exception
from hardware.testing.measurement import NumbersChanged
from hardware.testing.model_test import ModelTest

CELL = Cell.parse("bert/fill-mask/cpu/float32")


@pytest.fixture(scope="module")
def older() -> Recipe:
    recipe = load_recipe("bert")
    assert recipe is not None
    return replace(recipe, transformers_version="4.0.0")


@pytest.fixture(scope="module")
def changed(older: Recipe) -> Recipe:
    return replace(older, recorded={**older.recorded, "values": [1.01 * one for one in older.recorded["values"]]})


def carried(recipe: Recipe) -> Recipe | None:
    return carried_over(recipe, classify_type("bert"), task_class("bert", None))


def case_of(recipe: Recipe, recorded_with: str) -> ModelTest:
    inputs = make_inputs(recipe.inputs, recipe.recorded["seed"], recipe.recorded["lengths"])
    return ModelTest(
        str(CELL.id),
        lambda: filled_model(recipe),
        inputs,
        gain=None,
        outputs=recipe.outputs,
        masked_by=recipe.masked_by,
        recorded_with=recorded_with,
    )


def error_of(case: ModelTest, recipe: Recipe) -> float:
    recorded = recipe.recorded
    values = dict(zip(map(tuple, recorded["positions"]), recorded["values"], strict=True))
    return case.recorded_error(recorded["output"], values, recorded["scale"])


def test_a_recipe_of_another_version_keeps_its_numbers_and_names_that_version(older: Recipe, changed: Recipe) -> None:
    for recipe in (older, changed):
        found = carried(recipe)
        assert found is not None
        assert found.recorded == {**recipe.recorded, "origin": f"{KEPT}4.0.0"}
        assert found.transformers_version == installed_version()
        assert 'recorded_with="transformers 4.0.0"' in render(found, CELL, ())
    assert distance_of(older, filled_model(older)) < AGREES < distance_of(changed, filled_model(changed))
    assert "recorded_with" not in render(older, CELL, ())


def test_a_model_that_an_upgrade_broke_is_carried_over_so_that_its_suite_fails(
    older: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise AttributeError("renamed")

    monkeypatch.setattr(measurements, "operators_of", broken)
    found = carried(older)
    assert found is not None
    assert found.operators == older.operators


def test_nothing_is_carried_over_from_the_same_version_or_to_other_parameters(older: Recipe) -> None:
    assert carried(replace(older, transformers_version=installed_version())) is None
    assert carried(replace(older, layout="0" * 16)) is None
    assert carried(replace(older, config={**older.config, "hidden_size": 7})) is None
    assert carried(replace(older, model_class="BertModel")) is None


def test_numbers_that_an_upgrade_changed_fail_and_are_the_models_fault(older: Recipe, changed: Recipe) -> None:
    with case_of(older, "transformers 4.0.0") as case:
        assert error_of(case, older) <= case.tolerance
        new = r"the numbers of transformers 4\.0\.0: .*; hash of the new numbers: [0-9a-f]{12}$"
        with pytest.raises(NumbersChanged, match=new) as caught:
            error_of(case, changed)
        assert type_of_exception(caught.value) == "upgrade_changed_numbers"
    with case_of(older, "") as case:
        assert error_of(case, changed) > case.tolerance
