"""Other settings of a type, and the branches of the modeling code that a suite enters."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from transformers import modeling_rope_utils
from transformers.models.bert.modeling_bert import BertCrossAttention

from generators import model_profile
from generators.branches import FEW, reasons_for_few
from generators.branches.choose_variants import with_variants
from generators.branches.code_branches import names_in, reason_to_leave_out, way_of
from generators.models.inputs import make_inputs
from generators.models.recipe import SHIPPED, Recipe, read_recipe
from generators.models.recipe_store import folders, load_recipe
from generators.recipes.build_model import filled_model
from generators.recipes.probe_calls import case_of
from generators.recipes.real_dims import derive_settings
from generators.recipes.settings_apart import settings_apart
from generators.suites.render import render
from hardware.cell import Cell
from hardware.testing import measurement
from hardware.testing.variants import with_changes
from reports.explain_command import Exercised

CELL = Cell.parse("llama/text-generation/cpu/float32")


@pytest.fixture(autouse=True)
def _no_references_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is patched here isn't part of a model's identity, by which references are kept."""
    monkeypatch.setattr(measurement, "keeps_references", False)
    monkeypatch.setenv("HWCOMPAT_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def llama() -> Recipe:
    found = load_recipe("llama")
    assert found is not None
    return found


def errors_of(recipe: Recipe) -> list[float]:
    """The error of each variant of a recipe."""

    def made(changes: Any) -> Any:
        return filled_model(replace(recipe, config=with_changes(recipe.config, changes)))

    found = []
    for entry in recipe.calls["variants"]["configs"]:
        recorded = dict(zip(map(tuple, entry["positions"]), entry["values"], strict=True))
        rest = {name: one for name, one in entry.items() if name not in ("positions", "values")}
        with case_of(recipe, filled_model(recipe)) as case:
            found.append(case.variant_error(made, recipe.recorded["output"], recorded=recorded, **rest))
    return found


def test_changes_by_path_leave_the_original_as_it_was() -> None:
    config = {"width": 8, "text_config": {"heads": 2, "kinds": ["a"]}}
    found = with_changes(config, {"width": 9, "text_config.heads": 4, "vision_config.depth": 1})
    assert found == {"width": 9, "text_config": {"heads": 4, "kinds": ["a"]}, "vision_config": {"depth": 1}}
    assert with_changes(config, {}) == config
    found["text_config"]["kinds"].append("b")
    assert config == {"width": 8, "text_config": {"heads": 2, "kinds": ["a"]}}


def test_a_fault_in_code_that_only_another_setting_runs_fails(llama: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [
        entry["changes"].get("rope_parameters", {}).get("rope_type") for entry in llama.calls["variants"]["configs"]
    ]
    assert {"llama3", "yarn", "linear", "dynamic", "longrope"} <= set(kinds)
    functions = modeling_rope_utils.ROPE_INIT_FUNCTIONS
    monkeypatch.setitem(functions, "llama3", functions["linear"])
    for kind, error in zip(kinds, errors_of(llama), strict=True):
        assert (error > 2e-5) is (kind == "llama3")


def test_a_suite_shows_its_settings_and_how_much_of_the_code_it_enters(llama: Recipe) -> None:
    text = render(llama, CELL, ())
    assert "LlamaConfig(**with_changes(CONFIG, changes))" in text
    assert f'exercised="{llama.exercised}"' in text
    without = replace(llama, calls={}, branches={})
    assert "with_changes" not in render(without, CELL, ())
    assert "exercised" not in render(without, CELL, ())


def test_what_is_not_exercised_is_listed(llama: Recipe) -> None:
    missing = {"modeling_llama.f": ["use_cache: true"]}
    some = replace(llama, branches={"entered": 3, "of": 4, "missing": missing, "left_out": {"other devices": 2}})
    found = Exercised.by(CELL, some)
    lines = dict(found.lines())
    assert lines["Exercises"] == "3 of 4 branches of the modeling code (75 %)"
    assert lines["Not entered"] == "modeling_llama.f: use_cache: true"
    assert lines["Not counted"] == "2 branches: other devices"
    assert "image_size" in lines["Not asked"]
    assert lines[""] == "Only a tiny model is tested, no larger size."
    assert "matches_reference" not in found.not_asked
    assert found.to_dict()["missing"] == {"modeling_llama.f": ["use_cache: true"]}
    elsewhere = Exercised.by(Cell.parse("llama/text-generation/openvino/float32"), some)
    assert (elsewhere.text, elsewhere.missing) == ("", {}), "counted with calls that this suite lacks"
    assert elsewhere.not_asked.keys() > {"loss"}


def test_a_missing_way_is_named_by_its_condition() -> None:
    tree = ast.parse(
        "def f(self, x):\n    if self.config.kind == 'a':\n        x = 1\n    for y in x.parts:\n        y()\n"
    )
    assert way_of(tree, (2, 3)) == "kind, a: true"
    assert way_of(tree, (2, 4)) == "kind, a: false"
    assert way_of(tree, (4, 5)) == "parts, x: some"
    assert names_in(ast.parse("getattr(config, 'clip', None) > limit")) == ["limit", "clip"]


def test_settings_are_chosen_that_enter_branches_and_give_right_numbers() -> None:
    recipe = load_recipe("gpt2")
    assert recipe is not None
    plain = replace(recipe, calls={name: recipe.calls[name] for name in ("loss",)}, branches={})
    found = with_variants(plain)
    changes = {name for entry in found.calls["variants"]["configs"] for name in entry["changes"]}
    assert "scale_attn_by_inverse_layer_idx" in changes
    assert found.branches["entered"] < found.branches["of"]
    missing = [way for ways in found.branches["missing"].values() for way in ways]
    assert "scale_attn_by_inverse_layer_idx: true" not in missing
    assert all(error <= 2e-5 for error in errors_of(found))
    assert found.digest == recipe.digest, "evidence from before stays valid"


def test_a_model_that_reads_an_encoder_gets_its_output(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = load_recipe("bert")
    assert recipe is not None
    reading = ["encoder_hidden_states" in entry.get("shapes", ()) for entry in recipe.calls["variants"]["configs"]]
    assert any(reading)
    monkeypatch.setattr(BertCrossAttention, "forward", lambda self, states, *_, **__: (states, None))
    assert [error > 2e-5 for error in errors_of(recipe)] == reading, "recorded numbers tell"


TEXT = """
def attend(x, scaling=None, mask=None, bias=None):
    if scaling is None:
        scaling = 1
    if mask is not None:
        x = x + mask
    if bias is not None:
        x = x + bias

class Model:
    def __init__(self):
        self.layer = Layer()

    def forward(self, x, mask=None):
        return self.layer(x, self.scale, mask, x.mean())

class Layer:
    def forward(self, x, scaling, mask=None, bias=None):
        return attend(x, scaling=self.scale, mask=mask, bias=bias)
"""


def test_a_way_that_needs_an_argument_that_a_model_does_not_name_is_left_out_with_its_reason() -> None:
    tree = ast.parse(TEXT)
    needs = "needs an argument that the model's forward pass doesn't name"
    assert reason_to_leave_out(tree, "attend", (5, 6), {"x"}, set()) == needs
    assert reason_to_leave_out(tree, "attend", (5, 6), {"x", "mask"}, set()) == ""
    assert reason_to_leave_out(tree, "attend", (5, 7), {"x"}, set()) == "", "this way needs no argument"
    assert reason_to_leave_out(tree, "attend", (3, 4), {"x"}, set()) == "", "a call computes it"
    assert reason_to_leave_out(tree, "attend", (7, 8), {"x"}, set()) == "", "a call computes it, by its place"
    given = reason_to_leave_out(tree, "eager_attention_forward", (3, 4), {"x"}, set())
    assert given == "each attention of the library gives its scale"
    causal = reason_to_leave_out(tree, "repeat", (5, 6), {"mask"}, {"decodes"})
    assert causal == ""


def test_settings_that_no_suite_of_a_type_has_are_named(tmp_path: Path) -> None:
    config = {"model_type": "gpt2", "vocab_size": 50257, "activation_function": "relu", "n_layer": 12}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert settings_apart(str(tmp_path)) == ["activation_function=relu"]
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED["llama"][0]), encoding="utf-8")
    assert settings_apart(str(tmp_path)) == []


PUBLISHED = {
    "llama": (
        {
            **{"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8},
            **{"num_hidden_layers": 32, "intermediate_size": 14336, "vocab_size": 128256, "rope_theta": 500000.0},
            "rope_scaling": {
                **{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
                "original_max_position_embeddings": 8192,
            },
        },
        {
            **{"rope_parameters.rope_type": "llama3", "rope_parameters.original_max_position_embeddings": 8},
            **{"num_key_value_heads": 2, "num_attention_heads": 8},
        },
    ),
    "deberta-v2": (
        {
            **{"model_type": "deberta-v2", "hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 12},
            **{
                "relative_attention": True,
                "position_buckets": 256,
                "norm_rel_ebd": "layer_norm",
                "vocab_size": 128100,
            },
            **{
                "share_att_key": True,
                "pos_att_type": "p2c|c2p",
                "position_biased_input": False,
                "type_vocab_size": 0,
            },
        },
        {"position_buckets": 256, "share_att_key": True, "norm_rel_ebd": "layer_norm", "relative_attention": True},
    ),
}
"""Settings of Llama-3.1-8B's and deberta-v3-base's config.json, and what the small model has of them."""


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # DeBERTa uses it
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_folder_with_a_config_alone_is_tested_with_its_settings(tmp_path: Path, name: str) -> None:
    given, wanted = PUBLISHED[name]
    (tmp_path / "config.json").write_text(json.dumps(given), encoding="utf-8")
    recipe = derive_settings(str(tmp_path))
    assert recipe.dimensions == "tiny model with the settings of a config.json"
    assert recipe.subject == "tiny"
    text = render(recipe, replace(CELL, model=recipe.model_type, task=recipe.task), ())
    assert "--allow-tiny" in text
    assert "RECIPE =" not in text, "it isn't stored"
    for path, value in wanted.items():
        found: Any = recipe.config
        for part in path.split("."):
            found = found[part]
        assert found == value
    assert recipe.parameters < 10_000_000
    inputs = partial(make_inputs, recipe.inputs, recipe.recorded["seed"])
    assert inputs(recipe.recorded["lengths"])


def test_weights_that_are_missing_are_replaced_by_those_settings_only_if_that_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, llama: Recipe
) -> None:
    made = replace(llama, dimensions="tiny model with the settings of a config.json")
    monkeypatch.setattr(model_profile, "derive_settings", lambda folder, task: made)
    folder = tmp_path / "my-llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(PUBLISHED["llama"][0]), encoding="utf-8")
    refused = model_profile.profile_of(str(folder))
    assert "--allow-tiny for a tiny model with its settings" in refused.missing
    profile = model_profile.profile_of(str(folder), allow_tiny=True)
    assert (profile.missing, profile.stands_in_for, profile.recipe) == ("", str(folder), made)
    assert profile.cell_model == f"my-llama@{made.config_hash[:8]}"
    assert profile.note.startswith("--allow-tiny: a tiny model with the settings of a config.json runs instead")


def test_each_type_with_few_branches_has_a_reason() -> None:
    named = {name for types in reasons_for_few().values() for name in types}
    found = [(path.stem, read_recipe(path).branches) for path in (SHIPPED / folders()[0]).glob("*.json")]
    counted = {name: one for name, one in found if one and "@" not in name}
    assert len(counted) > 400
    few = {name for name, one in counted.items() if one["entered"] < FEW * one["of"]}
    assert few <= named
