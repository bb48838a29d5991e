"""What types' own code does: asked of their tiny models, kept beside the recipes, and asked again by rules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from generators.compatibility.rule_facts import facts_of
from generators.models.catalog import installed_version
from generators.models.code_facts import ANY_LENGTH, NOT_TRACED, CodeFacts, code_facts, keep_code_facts
from generators.models.recipe import DERIVED
from generators.models.recipe_store import load_recipe, stored_recipes
from generators.recipes.probe_code import _said, code_facts_of
from hardware.cell import Cell
from hardware.errors import BrokenInput


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HWCOMPAT_CACHE", str(tmp_path))
    return tmp_path / DERIVED / f"code-{installed_version()}.json"


def test_what_is_kept_is_read_again(cache: Path):
    made = CodeFacts(
        model_type="bert",
        task="a-task-of-its-own",
        padding_error=0.25,
        cache_error=0.0,
        traced=ANY_LENGTH,
        trace_operators=("aten::add",),
        largest_rank=4,
    )
    keep_code_facts(made)
    assert code_facts("bert", "a-task-of-its-own") == made
    assert code_facts("bert", "another") is None
    assert cache.is_file()


def test_a_broken_file_is_named(cache: Path):
    cache.parent.mkdir(parents=True)
    cache.write_text('[{"model_type": "bert", "no_such_field": 1}]', encoding="utf-8")
    with pytest.raises(BrokenInput, match=cache.name):
        code_facts("bert", "a-task-of-its-own")


@pytest.mark.parametrize(
    ("error", "why", "said"),
    [(1e-12, "", "right"), (1.0, "", "wrong"), (None, "RuntimeError: x", "fails"), (None, "", "")],
)
def test_a_cache_is_right_wrong_or_fails(error, why, said):
    assert CodeFacts(model_type="x", task="y", cache_error=error, cache_fails=why).cache == said


def test_every_stored_recipe_was_asked():
    unasked = [one.model_type for one in stored_recipes() if code_facts(one.model_type, one.task) is None]
    assert unasked == []


def test_code_that_hears_its_padding_and_code_that_can_not_be_traced_are_found():
    deaf = code_facts_of(load_recipe("nystromformer"))
    assert deaf.padding_error > 0.5
    assert deaf.traced == ANY_LENGTH
    assert "aten::linear" in deaf.trace_operators
    untraced = code_facts_of(load_recipe("autoformer"))
    assert untraced.traced == NOT_TRACED
    assert untraced.trace_fails


def test_rules_are_told():
    recipe = load_recipe("bert")
    facts = facts_of(recipe, Cell.parse("bert/fill-mask/openvino/float32"), {})
    assert facts.padding_error is not None
    assert facts.padding_error < 2e-5
    assert (facts.traced, facts.decodes, facts.exporter) == (ANY_LENGTH, "none", "optimum-intel")
    assert "aten::linear" in facts.trace_operators


def test_an_error_is_kept_without_folders_of_this_machine():
    cut_off = RuntimeError("in /home/me/lib/model.py: see https://example.org/a/b, at /home/me/site-packages/transf")
    assert _said(cut_off) == "RuntimeError: in model.py: see https://example.org/a/b, at transf"


def test_facts_answer_for_the_recipe_that_they_were_asked_of_and_for_no_other():
    recipe = load_recipe("nystromformer")
    cell = Cell.parse("nystromformer/fill-mask/cpu/float32")
    assert facts_of(recipe, cell, {}).padding_error > 0.1
    other = replace(recipe, config={**recipe.config, "num_hidden_layers": 1})
    assert facts_of(other, cell, {}).padding_error is None
