"""What types' own code does, as it is kept beside the recipes and read by rules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from generators.compatibility.rule_facts import facts_of
from generators.models.catalog import installed_version
from generators.models.code_facts import ANY_LENGTH, CodeFacts, code_facts, keep_code_facts
from generators.models.recipe import DERIVED
from generators.models.recipe_store import load_recipe, stored_recipes
from generators.recipes.probe_code import _without_folders
from hardware.cell import Cell
from hardware.errors import BrokenInput


def test_what_is_kept_is_read_again_and_a_broken_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HWCOMPAT_CACHE", str(tmp_path))
    path = tmp_path / DERIVED / f"code-{installed_version()}.json"
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
    path.write_text('[{"model_type": "bert", "no_such_field": 1}]', encoding="utf-8")
    with pytest.raises(BrokenInput, match=path.name):
        code_facts("bert", "a-task-of-its-own")


def test_a_cache_is_right_wrong_or_fails():
    def cache(error: float | None, why: str = "") -> str:
        return CodeFacts(model_type="x", task="y", cache_error=error, cache_fails=why).cache

    assert [cache(1e-12), cache(1.0), cache(None, "RuntimeError: x"), cache(None)] == ["right", "wrong", "fails", ""]


def test_every_stored_recipe_has_facts_and_rules_get_those_of_their_own_recipe():
    assert [one.model_type for one in stored_recipes() if code_facts(one.model_type, one.task) is None] == []
    facts = facts_of(load_recipe("bert"), Cell.parse("bert/fill-mask/openvino/float32"), {})
    assert facts.padding_error is not None
    assert facts.padding_error < 2e-5
    assert (facts.traced, facts.decodes, facts.exporter) == (ANY_LENGTH, "none", "optimum-intel")
    assert "aten::linear" in facts.trace_operators
    recipe = load_recipe("nystromformer")
    cell = Cell.parse("nystromformer/fill-mask/cpu/float32")
    assert facts_of(recipe, cell, {}).padding_error > 0.1
    other = replace(recipe, config={**recipe.config, "num_hidden_layers": 1})
    assert facts_of(other, cell, {}).padding_error is None


def test_an_error_is_kept_without_folders_of_this_machine():
    cut_off = RuntimeError("in /home/me/lib/model.py: see https://example.org/a/b, at /home/me/site-packages/transf")
    assert _without_folders(cut_off) == "RuntimeError: in model.py: see https://example.org/a/b, at transf"
