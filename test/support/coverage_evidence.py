"""Seven model types, four of them with recipes, in the place of all that the library has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from whole_runs import write_run as write_run  # tests of coverage import both from here

from generators.models.catalog import load_catalog
from generators.models.recipe_store import Obstacle, Refusal, stored_recipes
from reports import coverage_command
from reports.coverage import coverage_results

WITH_RECIPE = ("bert", "gpt2", "t5", "vit")
WITHOUT = ("albert", "clip_text_model", "electra")

BERT = "bert/fill-mask/cpu/float32"
GPT2 = "gpt2/text-generation/cpu/float32"
T5 = "t5/text2text-generation/cpu/float32"
VIT = "vit/image-classification/cpu/float32"


def seven_types(patch: pytest.MonkeyPatch, *refused: Refusal, more: Sequence[str] = ()) -> None:
    """Make these the types that transformers has, with these refusals, whatever ships; `more` are further types."""
    whole = load_catalog()
    configs = {name: whole.configs[name] for name in (*WITH_RECIPE, *WITHOUT, *more)}
    recipes = tuple(recipe for recipe in stored_recipes() if recipe.model_type in WITH_RECIPE)
    for module in (coverage_command, coverage_results):
        patch.setattr(module, "load_catalog", lambda: replace(whole, configs=configs))
    patch.setattr(coverage_results, "stored_recipes", lambda: recipes)
    patch.setattr(coverage_results, "refusals", lambda: {one.model_type: one for one in refused})


def refusal(model_type: str, obstacle: Obstacle, reason: str = "its own words") -> Refusal:
    return Refusal(model_type=model_type, obstacle=obstacle, reason=reason)
