"""Recipes: what ships is valid and true, what is derived is kept, what is broken is named."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from generators.models import recipe as recipes
from generators.models import recipe_store
from generators.models.classifier import classify
from generators.models.inputs import make_inputs, padding_mask
from generators.models.recipe import Recipe, read_recipe, write_recipe
from generators.models.recipe_store import load_recipe
from generators.recipes.config_scopes import overrides
from generators.recipes.on_demand import derive_checkpoint, recipe_for
from hardware.errors import BrokenInput, ModelError
from hardware.output_masks import masks_of

SHIPPED = sorted({path.stem for path in recipe_store.SHIPPED.glob("*/*.json") if "@" not in path.stem})
BUILT = (
    *("bert", "gpt2", "t5", "vit", "clip", "whisper", "mixtral", "mamba"),
    *("bloom", "deepseek_v3", "falcon_mamba", "rag"),
    *("resnet", "detr", "layoutlmv3", "wav2vec2", "vision-encoder-decoder", "llava", "qwen2_vl", "patchtst"),
)
"""Those that are built again here, each for what it has of its own; a suite of each model builds it anyway."""
MASK_NOT_READ = frozenset({"cpmant", "rwkv", "yoso"})
"""Those whose modelling code takes a mask and doesn't read it; `honours_mask` fails for them."""
SCHEMA = json.loads((Path(recipes.__file__).parent / "schemas" / "recipe.json").read_text(encoding="utf-8"))


def shipped(model_type: str) -> Recipe:
    recipe = load_recipe(model_type)
    if recipe is None:
        pytest.skip(f"no recipe ships for {recipe_store.folders()}")
    return recipe


def model_of(recipe: Recipe) -> Any:
    from generators.recipes.build_model import build
    from hardware.testing.seeded_weights import fill

    assert recipe.gain is not None
    return fill(
        build(recipe.config_class, recipe.model_class, recipe.config),
        gain=recipe.gain,
        zero_centered=recipe.zero_centered,
    )


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HWCOMPAT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("model_type", SHIPPED)
def test_what_ships_is_valid_and_agrees_with_the_classifier(model_type: str) -> None:
    recipe = shipped(model_type)
    Draft202012Validator(SCHEMA).validate(recipe.to_dict())
    found = classify(model_type)
    assert (recipe.family, recipe.architecture, recipe.traits) == (found.family, found.architecture, found.traits)
    assert (recipe.task, recipe.model_class) == (found.task, found.model_class)
    assert set(masks_of(recipe.masked_by, make_inputs(recipe.inputs))) == set(recipe.masked_by)


@pytest.mark.parametrize("model_type", BUILT)
def test_the_recorded_numbers_are_those_of_the_float64_reference(model_type: str) -> None:
    from generators.recipes.measurements import operators_of
    from hardware.testing.reference import as_reference, float64_outputs

    recipe = shipped(model_type)
    recorded = recipe.recorded
    inputs = make_inputs(recipe.inputs, recorded["seed"], recorded["lengths"])
    model = model_of(recipe)
    assert sum(p.numel() for p in model.parameters()) == recipe.parameters
    assert operators_of(model, inputs) == recipe.operators
    output = float64_outputs(as_reference(model), inputs)[recorded["output"]]
    got = np.array([output[tuple(position)] for position in recorded["positions"]])
    assert np.abs(got - recorded["values"]).max() / recorded["scale"] < 1e-6
    mask = inputs.get(recipe.masked_by.get(recorded["output"], ""))
    if mask is not None:
        assert all(mask[tuple(position[:2])] for position in recorded["positions"])


@pytest.mark.parametrize("model_type", SHIPPED)
def test_faults_are_much_louder_than_the_tolerance(model_type: str) -> None:
    figures = shipped(model_type).sensitivity
    assert figures["float32_error"] < 5e-6
    assert min(figures["attention_x1.1"], figures["swapped"]) >= 100 * 2e-5
    assert figures["attention_x2"] >= 2 * 8e-2


@pytest.mark.parametrize("model_type", SHIPPED)
def test_dropping_the_mask_is_heard(model_type: str) -> None:
    recipe = shipped(model_type)
    taken = any(spec["kind"] == "mask" for spec in recipe.inputs.values())
    taken = taken and "padding" not in overrides(model_type).get("not_asked", ())
    assert (recipe.mask_input in recipe.inputs) if taken else recipe.mask_input is None
    if taken:
        heard = recipe.sensitivity["mask_dropped"] >= 100 * 2e-5
        assert heard != (model_type in MASK_NOT_READ)


def test_decoders_are_padded_on_the_left_and_encoders_on_the_right() -> None:
    sides = {"decoder-only": "left", "encoder-only": "right", "encoder-decoder": "right"}
    seen = set()
    for recipe in map(shipped, SHIPPED):
        if recipe.architecture in sides and recipe.mask_input:
            assert recipe.inputs[recipe.mask_input]["side"] == sides[recipe.architecture], recipe.model_type
            seen.add(recipe.architecture)
    assert seen == set(sides)


def test_each_trait_has_a_shipped_recipe() -> None:
    traits = {name: shipped(name).traits for name in ("mixtral", "deepseek_v3", "falcon_mamba", "rag", "llama")}
    assert traits == {
        "mixtral": ("mixture-of-experts",),
        "deepseek_v3": ("mixture-of-experts",),
        "falcon_mamba": ("state-space",),
        "rag": ("rag",),
        "llama": (),
    }


def test_a_recipe_survives_its_file_byte_by_byte(tmp_path: Path) -> None:
    recipe = shipped("clip")
    write_recipe(recipe, tmp_path / "deep" / "clip.json")
    again = read_recipe(tmp_path / "deep" / "clip.json")
    assert again == recipe
    assert list(again.inputs) == list(recipe.inputs)
    text = (tmp_path / "deep" / "clip.json").read_bytes()
    assert text == recipe.to_json().encode()
    assert text.endswith(b"}\n")
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["clip.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema_version": 99}', '{"schema_version": 1, "gian": 1}'])
def test_a_broken_recipe_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "bert.json").write_text(text, encoding="utf-8")
    with pytest.raises(BrokenInput, match=r"bert\.json"):
        read_recipe(tmp_path / "bert.json")


def test_what_is_not_stored_is_none_and_a_path_is_no_type(cache: Path) -> None:
    assert load_recipe("no-such-type") is None
    for name in ("../bert", "a/b", "", "x" * 5000):
        with pytest.raises(ModelError):
            load_recipe(name)


def test_a_derived_recipe_is_kept_and_found_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = recipe_for("bert", "question-answering")
    assert (first.task, first.model_class) == ("question-answering", "BertForQuestionAnswering")
    assert first.outputs == ("start_logits", "end_logits")
    assert first.masked_by["start_logits"] == "attention_mask"
    from generators.recipes import derive

    monkeypatch.setattr(derive, "derive_tiny", None)
    assert recipe_for("bert", "question-answering") == first
    assert recipe_for("bert").task == "fill-mask"


def test_an_unknown_type_or_task_is_refused(cache: Path) -> None:
    with pytest.raises(ModelError, match="Did you mean"):
        recipe_for("bret")
    with pytest.raises(ModelError, match=r"Its tasks: .*fill-mask"):
        recipe_for("bert", "image-classification")


def test_a_checkpoint_is_measured_with_its_own_weights(tmp_path: Path) -> None:
    tiny = shipped("bert")
    model_of(tiny).save_pretrained(tmp_path / "bert")
    real = derive_checkpoint(tmp_path / "bert")
    Draft202012Validator(SCHEMA).validate(real.to_dict())
    assert (real.subject, real.gain) == ("checkpoint", None)
    assert real.parameters == tiny.parameters
    assert real.recorded["values"] == pytest.approx(tiny.recorded["values"], abs=1e-6)
    other = dataclasses.replace(tiny, gain=0.7)
    model_of(other).save_pretrained(tmp_path / "other")
    changed = derive_checkpoint(tmp_path / "other")
    assert changed.weights_hash != real.weights_hash
    assert changed.config_hash == real.config_hash


def test_broken_weights_are_one_line(tmp_path: Path) -> None:
    model_of(shipped("bert")).save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BrokenInput, match="cannot be loaded") as caught:
        derive_checkpoint(tmp_path)
    assert "\n" not in str(caught.value)
    weights.unlink()
    with pytest.raises(BrokenInput, match="no weights"):
        derive_checkpoint(tmp_path)


def test_inputs_are_drawn_in_order_and_padded_where_asked() -> None:
    specs = {
        "input_ids": {"kind": "tokens", "high": 50, "last": 49},
        "attention_mask": {"kind": "mask", "side": "left"},
        "position_ids": {"kind": "positions"},
        "pixel_values": {"kind": "pixels", "shape": [3, 4, 4]},
    }
    arrays = make_inputs(specs, 7, (5, 3))
    rng = np.random.default_rng(7)
    tokens = rng.integers(0, 50, (2, 5))
    tokens[:, -1] = 49
    assert (arrays["input_ids"] == tokens).all()
    assert (arrays["pixel_values"] == rng.standard_normal((2, 3, 4, 4)).astype(np.float32)).all()
    assert arrays["attention_mask"].tolist() == [[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]]
    assert arrays["position_ids"].tolist() == [[0, 1, 2, 3, 4], [0, 0, 0, 1, 2]]
    assert padding_mask((3, 1), "right").tolist() == [[1, 1, 1], [1, 0, 0]]
    with pytest.raises(ValueError, match="kind of input"):
        make_inputs({"x": {"kind": "bytes"}})
