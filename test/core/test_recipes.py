"""Shipped recipes: faults and dropped masks move their outputs; files are read again, and broken ones are named."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden_suites import recipe_of

from generators.models.inputs import KINDS
from generators.models.recipe import Recipe, read_recipe, write_recipe
from generators.models.recipe_store import SHIPPED, load_recipe
from generators.recipes.config_scopes import overrides
from hardware.errors import BrokenInput, ModelError

MASK_NOT_READ = {"cpmant", "rwkv", "yoso"}
"""Models whose code takes a mask and doesn't read it; `honours_mask` fails for them."""


@pytest.fixture(scope="module")
def shipped() -> list[Recipe]:
    """The recipe of the primary task of each type."""
    return [read_recipe(path) for path in sorted(SHIPPED.glob("*/*.json")) if "@" not in path.stem]


def test_faults_move_the_outputs_much_more_than_the_tolerance(shipped: list[Recipe]) -> None:
    assert len(shipped) > 500
    for recipe in shipped:
        figures = recipe.sensitivity
        assert figures["float32_error"] < 5e-6, recipe.model_type
        assert min(figures["attention_x1.1"], figures["swapped"]) >= 100 * 2e-5, recipe.model_type
        assert figures["attention_x2"] >= 2 * 8e-2, recipe.model_type


def test_a_dropped_mask_moves_the_outputs(shipped: list[Recipe]) -> None:
    for recipe in shipped:
        name = recipe.model_type
        not_asked = overrides(name).get("not_asked", ())
        taken = "padding" not in not_asked and any(spec["kind"] == "mask" for spec in recipe.inputs.values())
        assert (recipe.mask_input in recipe.inputs) if taken else recipe.mask_input is None, name
        if taken:
            assert (recipe.sensitivity["mask_dropped"] >= 100 * 2e-5) != (name in MASK_NOT_READ), name


def test_decoders_are_padded_on_the_left_and_encoders_on_the_right(shipped: list[Recipe]) -> None:
    sides = {"decoder-only": "left", "encoder-only": "right", "encoder-decoder": "right"}
    padded = [one for one in shipped if one.architecture in sides and one.mask_input]
    wrong = [one.model_type for one in padded if one.inputs[one.mask_input]["side"] != sides[one.architecture]]
    assert wrong == []
    assert {one.architecture for one in padded} == set(sides)
    assert {spec["kind"] for one in shipped for spec in one.inputs.values()} <= set(KINDS)


def test_each_trait_has_a_shipped_recipe(shipped: list[Recipe]) -> None:
    traits = {one.model_type: one.traits for one in shipped}
    experts, state_space = ("mixture-of-experts",), ("state-space",)
    expected = {"mixtral": experts, "deepseek_v3": experts, "falcon_mamba": state_space, "rag": ("rag",), "llama": ()}
    assert {name: traits[name] for name in expected} == expected


def test_a_recipe_survives_its_file_byte_by_byte(tmp_path: Path) -> None:
    recipe, path = recipe_of("clip"), tmp_path / "deep" / "clip.json"
    write_recipe(recipe, path)
    again = read_recipe(path)
    assert again == recipe
    assert list(again.inputs) == list(recipe.inputs)
    assert path.read_bytes() == recipe.to_json().encode()
    assert path.read_bytes().endswith(b"}\n")
    assert [p.name for p in path.parent.iterdir()] == ["clip.json"]


def test_a_broken_recipe_is_named_and_a_path_is_no_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("", "{", "[]", '{"schema_version": 99}', '{"schema_version": 1, "gian": 1}'):
        (tmp_path / "bert.json").write_text(text, encoding="utf-8")
        with pytest.raises(BrokenInput, match=r"bert\.json"):
            read_recipe(tmp_path / "bert.json")
    monkeypatch.setenv("HWCOMPAT_CACHE", str(tmp_path / "cache"))
    assert load_recipe("no-such-type") is None
    for name in ("../bert", "a/b", "", "x" * 5000):
        with pytest.raises(ModelError):
            load_recipe(name)
