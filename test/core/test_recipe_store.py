"""Stored recipes and refusals: found again, replaced when a package is installed, and named when broken."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from golden_suites import recipe_of

from generators.models.catalog import installed_version
from generators.models.checkpoint import largest_token, read_checkpoint
from generators.models.recipe import DERIVED
from generators.models.recipe_store import (
    Obstacle,
    Refusal,
    keep_recipe,
    keep_refusal,
    load_recipe,
    refusal_of,
    refusals,
    shipped_recipes,
    stored_recipes,
)
from generators.recipes.derive_many import Wanted, missing
from generators.recipes.measurements import faults, holds_half_precision
from hardware.errors import BrokenInput, ModelError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HWCOMPAT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def refused(obstacle: Obstacle = Obstacle.NOT_DERIVED, package: str = "", task: str = "") -> Refusal:
    return Refusal(model_type="dinat", obstacle=obstacle, reason="it fails.", task=task, package=package)


def test_a_derived_recipe_is_found_by_its_task_and_a_shipped_one_comes_first() -> None:
    derived = replace(recipe_of("bert"), model_type="nosuch", task="x")
    assert load_recipe("nosuch") is None
    keep_recipe(derived, primary=False)
    assert load_recipe("nosuch") is None
    assert load_recipe("nosuch", "x") == derived
    keep_recipe(derived, primary=True)
    assert load_recipe("nosuch") == derived
    assert derived in stored_recipes()
    keep_recipe(replace(recipe_of("bert"), gain=0.5), primary=True)
    assert load_recipe("bert") == recipe_of("bert")
    primary = recipe_of("bert")
    assert [shipped_recipes("bert", task)[0] for task in (None, primary.task)] == [primary, primary]
    assert shipped_recipes("bert", "token-classification")[0].task == "token-classification"
    assert shipped_recipes("bert", "no-such-task") == ()
    assert load_recipe("bert", "no-such-task") is None


def test_a_refusal_is_kept_for_its_task_and_removed_again() -> None:
    wanted = [Wanted(model_type="dinat", task="x"), Wanted(model_type="nosuch"), Wanted(model_type="bert")]
    assert missing(wanted) == wanted[:2]
    keep_refusal("dinat", "x", refused(task="x"))
    keep_refusal("nosuch", None, replace(refused(), model_type="nosuch"))
    assert missing(wanted) == []
    assert refusal_of("dinat", "x") == refused(task="x")
    assert "nosuch" in refusals()
    keep_refusal("nosuch", None, None)
    assert refusal_of("nosuch") is None
    assert "nosuch" not in refusals()


def test_a_missing_package_that_is_installed_now_is_no_obstacle() -> None:
    for package in ("no_such_package_here", "json"):
        keep_refusal("dinat", "x", refused(Obstacle.MISSING_DEPENDENCY, package, "x"))
        assert (refusal_of("dinat", "x") is None) is (package == "json")


def test_a_refusal_says_why_and_what_to_do() -> None:
    for obstacle, package, why, fix in (
        (Obstacle.NO_CLASS, "", "the library has no class for it alone", "the model that contains it"),
        (Obstacle.MISSING_DEPENDENCY, "natten", "a package is missing, natten", "install natten"),
        (Obstacle.DEFAULTS_FAIL, "", "with its default configuration", "--model FOLDER"),
        (Obstacle.NOT_DERIVED, "", "no tiny model is known", "--model FOLDER"),
    ):
        refusal = refused(obstacle, package)
        assert refusal.is_buildable is (obstacle is Obstacle.NOT_DERIVED)
        assert why in refusal.cause
        assert refusal.cause.endswith(": it fails")
        assert fix in refusal.remedy
        assert Refusal.from_dict(json.loads(json.dumps(refusal.to_dict()))) == refusal
    with pytest.raises(BrokenInput, match="a refusal can't be read"):
        Refusal.from_dict({"obstacle": "unheard_of"})


def test_a_broken_list_of_refusals_is_named_and_a_changed_one_read_again(cache: Path) -> None:
    keep_refusal("dinat", "x", refused(task="x"))
    path = cache / DERIVED / f"refused-{installed_version()}.json"
    path.write_text("[]\n", encoding="utf-8")
    assert refusal_of("dinat", "x") is None
    path.write_text("{", encoding="utf-8")
    with pytest.raises(BrokenInput, match="isn't a list of refusals"):
        refusals()


def test_a_recipe_is_accepted_only_if_faults_move_its_outputs_enough() -> None:
    good = {
        "float32_error": 1e-6,
        "attention_x1.1": 1e-2,
        "swapped": 1e-2,
        "attention_x2": 0.5,
        "bfloat16_error": 1e-3,
    }
    assert faults(good) == []
    assert holds_half_precision(good)
    for name, value in (
        ("float32_error", 1e-5),
        ("float32_error", float("nan")),
        ("attention_x1.1", 1e-3),
        ("swapped", 1e-3),
        ("attention_x2", 0.01),
    ):
        (reason,) = faults({**good, name: value})
        assert reason.startswith(f"{name} ")
    assert not holds_half_precision({**good, "bfloat16_error": 0.07})
    assert not holds_half_precision({name: value for name, value in good.items() if name != "bfloat16_error"})


def test_the_largest_token_is_found_in_every_file_of_a_tokenizer(tmp_path: Path) -> None:
    assert largest_token(tmp_path) == -1
    for name, content, largest in (
        ("tokenizer.json", {"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 103, "content": "<new>"}]}, 103),
        ("tokenizer.json", {"model": {"vocab": {"a": 0, "b": 7}}}, 7),
        ("tokenizer.json", {"model": {"vocab": [["a", -1.0], ["b", -2.0], ["c", -3.0]]}}, 2),
        ("tokenizer_config.json", {"added_tokens_decoder": {"103": {"content": "<new>"}}}, 103),
        ("added_tokens.json", {"<new>": 103}, 103),
        ("vocab.json", {"a": 0, "<new>": 103}, 103),
        ("vocab.json", {"a": "0"}, -1),
    ):
        (tmp_path / name).write_text(json.dumps(content))
        assert largest_token(tmp_path) == largest, content
        (tmp_path / name).write_text("{")
        assert largest_token(tmp_path) == -1
        (tmp_path / name).unlink()


def test_a_checkpoint_needs_a_known_type_and_safetensors(tmp_path: Path) -> None:
    config = {"model_type": "bert", "architectures": ["BertForMaskedLM"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = read_checkpoint(tmp_path)
    assert (found.model_type, tuple(found.architectures), tuple(found.weights)) == ("bert", ("BertForMaskedLM",), ())
    with pytest.raises(BrokenInput, match="has no weights"):
        read_checkpoint(tmp_path, needs_weights=True)
    (tmp_path / "model.safetensors").write_bytes(b"x")
    whole = read_checkpoint(tmp_path, needs_weights=True)
    assert [Path(one).name for one in whole.weights] == ["model.safetensors"]
    (tmp_path / "config.json").write_text(json.dumps(dict(reversed(config.items()))))
    assert read_checkpoint(tmp_path).config_hash == found.config_hash
    (tmp_path / "config.json").write_text(json.dumps({**config, "hidden_size": 32}))
    assert read_checkpoint(tmp_path).config_hash != found.config_hash
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="is unknown"):
        read_checkpoint(tmp_path)
