"""The catalog: what the installed transformers can build, read without importing it.

What types' own code does, as it is kept beside the recipes and read by rules.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from generators.compatibility.rule_facts import facts_of
from generators.models.architectures import shape_of
from generators.models.catalog import config_defaults, installed_version, load_catalog, read_mappings, task_entries
from generators.models.code_facts import ANY_LENGTH, CodeFacts, code_facts, keep_code_facts
from generators.models.recipe import DERIVED
from generators.models.recipe_store import load_recipe, stored_recipes
from generators.recipes.probe_code import _without_folders
from hardware.cell import Cell
from hardware.errors import BrokenInput, ModelError


def test_the_primary_task_of_a_type_is_what_only_that_kind_of_model_does() -> None:
    catalog = load_catalog()
    assert list(catalog.model_types) == sorted(catalog.model_types)
    assert catalog.config_class("bert") == "BertConfig"
    primary = {name: catalog.tasks_of(name)[0] for name in ("bert", "bart", "clip", "whisper", "llava")}
    assert {name: (one.task, one.model_class) for name, one in primary.items()} == {
        "bert": ("fill-mask", "BertForMaskedLM"),
        "bart": ("text2text-generation", "BartForConditionalGeneration"),
        "clip": ("zero-shot-image-classification", "CLIPModel"),
        "whisper": ("automatic-speech-recognition", "WhisperForConditionalGeneration"),
        "llava": ("image-text-to-text", "LlavaForConditionalGeneration"),
    }


def test_every_type_has_an_architecture_and_each_of_its_tasks_once() -> None:
    catalog = load_catalog()
    mapped = {name for name in catalog.mappings if name.startswith("MODEL_")}
    assert mapped - {entry.mapping for entry in task_entries()} == set()
    tasks = {name: [one.task for one in catalog.tasks_of(name)] for name in catalog.model_types}
    assert [name for name, found in tasks.items() if len(found) != len(set(found))] == []
    shapes = {name: shape_of(name, found[0], catalog)[:2] for name, found in tasks.items() if found}
    assert [name for name, (_, architecture) in shapes.items() if architecture == "unknown"] == []
    assert {architecture for family, architecture in shapes.values() if family == "other"} == {"time-series"}


def test_a_part_reads_what_the_model_around_it_does() -> None:
    catalog = load_catalog()
    expected = {
        "voxtral_encoder": ("audio", "speech"),
        "musicflamingo_encoder": ("audio", "speech"),
        "sam2_hiera_det_model": ("vision", "vision"),
        "maskformer-swin": ("vision", "vision"),
        "blip_2_qformer": ("multimodal", "multimodal"),
        "vision-text-dual-encoder": ("multimodal", "multimodal"),
        "decision_transformer": ("other", "time-series"),
    }
    first = {name: next((one.task for one in catalog.tasks_of(name)), "") for name in expected}
    assert {name: shape_of(name, task, catalog)[:2] for name, task in first.items()} == expected


def test_a_second_name_of_a_type_has_its_classes() -> None:
    catalog = load_catalog()
    assert catalog.tasks_of("nougat") == catalog.tasks_of("vision-encoder-decoder")
    assert catalog.names_of("nougat")[0] == "nougat"
    assert catalog.whole_of("voxtral_realtime_encoder") == "voxtral_realtime"
    assert catalog.whole_of("bert") is None


def test_unknown_type_suggests_a_close_one() -> None:
    with pytest.raises(ModelError, match=r"Did you mean .*'bert'"):
        load_catalog().tasks_of("bret")


def test_reads_every_form_in_which_a_mapping_is_written() -> None:
    mappings = read_mappings(
        "A_NAMES = OrderedDict([('bert', 'BertModel'), ('two', ('First', 'Second'))])\n"
        "B_NAMES: dict[str, str] = {'vit': 'ViT' if fast() else None}\n"
        "if TYPE_CHECKING:\n    C_NAMES = OrderedDict()\nelse:\n    C_NAMES = OrderedDict[str, str]([('t5', 'T5')])\n"
        "other = {'not': 'This'}\n"
        "MISSING_A_NAMES = OrderedDict([('vit', 'ViTModel')])\n"
        "A_NAMES.update(MISSING_A_NAMES)\n"
        "D_NAMES.update(OrderedDict([('clip', 'CLIPModel')]))\n"
        "something.update({'not': 'this'})\n"
    )
    assert mappings == {
        "A_NAMES": {"bert": "BertModel", "two": "First", "vit": "ViTModel"},
        "MISSING_A_NAMES": {"vit": "ViTModel"},
        "D_NAMES": {"clip": "CLIPModel"},
        "B_NAMES": {"vit": "ViT"},
        "C_NAMES": {"t5": "T5"},
    }


def test_defaults_of_a_configuration_are_read_from_its_source() -> None:
    assert config_defaults("bert")["hidden_size"] == 768
    assert config_defaults("mixtral")["num_local_experts"] == 8


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
