"""All recipes that ship: each is valid, agrees with the classifier, and draws the numbers of its suite."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from jsonschema import Draft202012Validator
from suite_inputs import drawn_differently, suite_of

from generators.models import recipe as recipes
from generators.models.classifier import classify
from generators.models.inputs import LENGTHS, make_inputs
from generators.models.recipe import Recipe, read_recipe
from generators.models.recipe_store import SHIPPED
from generators.recipes import probe_calls
from generators.recipes.probe_calls import unpadded_by
from hardware.output_masks import masks_of

CALL_EXCEPTIONS = Path(probe_calls.__file__).with_name("call_exceptions.toml")
SCHEMA = json.loads((Path(recipes.__file__).parent / "schemas" / "recipe.json").read_text(encoding="utf-8"))


def shipped() -> Iterator[tuple[str, Recipe]]:
    for path in sorted(SHIPPED.glob("*/*.json")):
        yield path.stem, read_recipe(path)


def test_what_ships_is_valid_and_agrees_with_the_classifier() -> None:
    validator, wrong = Draft202012Validator(SCHEMA), []
    for name, recipe in shipped():
        wrong += [f"{name}: {error.message}" for error in validator.iter_errors(recipe.to_dict())]
        found = classify(recipe.model_type)
        kept = (recipe.family, recipe.architecture, recipe.traits)
        expected = (found.family, found.architecture, found.traits)
        if "@" not in name:
            kept, expected = (*kept, recipe.task, recipe.model_class), (*expected, found.task, found.model_class)
        if kept != expected:
            wrong.append(f"{name}: {kept} and {expected}")
        if recipe.library == "diffusers" and recipe.recorded["origin"] != "shipped":
            wrong.append(f"{name}: recorded in {recipe.recorded['origin']}")
    assert wrong == []


def test_each_suite_draws_the_numbers_of_its_recipe_and_its_second_row_is_padded() -> None:
    wrong, count = [], 0
    for name, recipe in shipped():
        arrays = make_inputs(recipe.inputs, 0, LENGTHS)
        text = suite_of(recipe)
        wrong += drawn_differently(recipe, text)
        wrong += [f"{name}: {one} is empty" for one, array in arrays.items() if not array.size]
        masks = [one for one, spec in recipe.inputs.items() if spec["kind"] == "mask"]
        wrong += [f"{name}: {one} pads nothing" for one in masks if arrays[one].all()]
        if set(masks_of(recipe.masked_by, make_inputs(recipe.inputs))) != set(recipe.masked_by):
            wrong.append(f"{name}: {recipe.masked_by}")
        if recipe.library == "diffusers" and f"from diffusers import {recipe.model_class}\n" not in text:
            wrong.append(f"{name}: doesn't import its class")
        count += 1
    assert wrong == []
    assert count > 1000


def test_rows_alone_keep_their_padding_only_in_listed_types() -> None:
    entries = tomllib.loads(CALL_EXCEPTIONS.read_text(encoding="utf-8"))["keeps_padding"]
    listed = {name for one in entries for name in one["types"]}
    used, others = set(), []
    for name, recipe in shipped():
        call = recipe.calls.get("batch_invariance")
        if call is None or call["unpadded"] or not unpadded_by(recipe.inputs):
            continue
        names = {recipe.model_type, f"{recipe.model_type}@{recipe.task}"} & listed
        used |= names
        others += [] if names else [name]
    assert (others, listed - used) == ([], set())


def test_looking_up_imports_no_library_of_models() -> None:
    program = (
        "import sys\n"
        "from generators.models.catalog import load_catalog\n"
        "from generators.models.classifier import classify\n"
        "from generators.models.recipe_store import load_recipe\n"
        "load_catalog().tasks_of('bert'); classify('bert'); classify('org/bert-base'); load_recipe('bert')\n"
        "print(sorted({'torch', 'transformers', 'pandas', 'duckdb'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
