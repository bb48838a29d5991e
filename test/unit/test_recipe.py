"""Recipes beside the models that are built of them: recorded numbers, derived recipes, and checkpoints.

All recipes that ship: each is valid, agrees with the classifier, and draws the numbers of its suite.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import shutil
import struct
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_suites import recipe_of
from jsonschema import Draft202012Validator
from suite_inputs import drawn_differently, suite_of
from tiny_models import tiny

from generators.models import recipe as recipes
from generators.models.classifier import classify
from generators.models.inputs import LENGTHS, make_inputs
from generators.models.recipe import Recipe, read_recipe
from generators.models.recipe_store import SHIPPED
from generators.recipes import derive, probe_calls
from generators.recipes.build_model import build
from generators.recipes.measurements import operators_of
from generators.recipes.on_demand import derive_checkpoint, recipe_for
from generators.recipes.probe_calls import unpadded_by
from hardware.errors import BrokenInput, ModelError
from hardware.model.calls import to_tensors
from hardware.model.greedy_decoding import greedy
from hardware.output_masks import masks_of
from hardware.testing.reference import as_reference, float64_outputs
from hardware.testing.seeded_weights import fill

BUILT = (
    *("gpt2", "t5", "vit", "clip", "whisper", "mixtral", "mamba", "bloom", "deepseek_v3", "falcon_mamba", "rag"),
    *("resnet", "detr", "layoutlmv3", "wav2vec2", "vision-encoder-decoder", "llava", "qwen2_vl", "patchtst"),
)
"""Types that are built again here, each for what it has of its own; a suite of each model builds it anyway."""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HWCOMPAT_CACHE", str(tmp_path / "cache"))


def save(recipe: Recipe, folder: Path) -> None:
    assert recipe.gain is not None
    model = build(recipe.config_class, recipe.model_class, recipe.config)
    fill(model, gain=recipe.gain, zero_centered=recipe.zero_centered).save_pretrained(folder)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "bert"
    save(recipe_of("bert"), folder)
    return folder


def test_the_recorded_numbers_are_those_of_the_float64_reference() -> None:
    for model_type in BUILT:
        model, _, recipe = tiny(model_type)
        recorded = recipe.recorded
        inputs = make_inputs(recipe.inputs, recorded["seed"], recorded["lengths"])
        assert sum(p.numel() for p in model.parameters()) == recipe.parameters, model_type
        assert operators_of(model, inputs) == recipe.operators, model_type
        output = float64_outputs(as_reference(copy.deepcopy(model)), inputs)[recorded["output"]]
        got = np.array([output[tuple(position)] for position in recorded["positions"]])
        assert np.abs(got - recorded["values"]).max() / recorded["scale"] < 1e-6, model_type
        mask = inputs.get(recipe.masked_by.get(recorded["output"], ""))
        assert mask is None or all(mask[tuple(position[:2])] for position in recorded["positions"]), model_type


@pytest.mark.usefixtures("cache")
def test_a_derived_recipe_is_kept_and_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first = recipe_for("bert", "question-answering")
    assert (first.task, first.model_class) == ("question-answering", "BertForQuestionAnswering")
    assert first.outputs == ("start_logits", "end_logits")
    assert first.masked_by["start_logits"] == "attention_mask"
    monkeypatch.setattr(derive, "derive_tiny", None)
    assert recipe_for("bert", "question-answering") == first
    assert recipe_for("bert").task == "fill-mask"
    with pytest.raises(ModelError, match="Did you mean"):
        recipe_for("bret")
    with pytest.raises(ModelError, match=r"Its tasks: .*fill-mask"):
        recipe_for("bert", "image-classification")


def test_a_checkpoint_is_measured_with_its_own_weights(saved: Path, tmp_path: Path) -> None:
    shipped, real = recipe_of("bert"), derive_checkpoint(saved)
    schema = json.loads((Path(recipes.__file__).parent / "schemas" / "recipe.json").read_text(encoding="utf-8"))
    Draft202012Validator(schema).validate(real.to_dict())
    assert (real.subject, real.gain, real.parameters) == ("checkpoint", None, shipped.parameters)
    assert real.recorded["values"] == pytest.approx(shipped.recorded["values"], abs=1e-6)
    save(dataclasses.replace(shipped, gain=0.7), tmp_path)
    changed = derive.derive_checkpoint(tmp_path)  # in this process
    assert changed.weights_hash != real.weights_hash
    assert changed.config_hash == real.config_hash


def test_broken_weights_are_one_line(saved: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(saved, tmp_path / "bert"))
    weights = folder / "model.safetensors"
    header = json.dumps({"w": {"dtype": "F32", "shape": [64, 32], "data_offsets": [0, 2**40]}}).encode()
    lying = struct.pack("<Q", len(header)) + header + b"\0" * 100
    for data in (weights.read_bytes()[: weights.stat().st_size // 2], struct.pack("<Q", 2**62), lying):
        weights.write_bytes(data)
        with pytest.raises(BrokenInput, match=r"cannot be loaded.*SafetensorError") as caught:
            derive.derive_checkpoint(folder)
        assert "\n" not in str(caught.value)
    weights.unlink()
    with pytest.raises(BrokenInput, match="no weights"):
        derive.derive_checkpoint(folder)


def test_what_a_model_writes_into_its_prompt_stays_out_of_the_inputs() -> None:
    """BLIP puts its first token into the prompt and decodes without the last one; the result says from what."""
    import torch

    model, inputs, recipe = tiny("blip")
    before: dict[str, Any] = {name: array.copy() for name, array in inputs.items()}
    found = greedy(model, to_tensors(inputs, "cpu", torch.float32), steps=2, use_cache=True)
    assert all(np.array_equal(before[name], inputs[name]) for name in inputs)
    assert found.start.shape == (2, inputs["input_ids"].shape[1] - 1)
    assert (found.start[:, 1:] == inputs["input_ids"][:, 1:-1]).all()
    assert (found.start[:, 0] == recipe.config["text_config"]["bos_token_id"]).all()


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
