"""Many recipes at once: a child that dies or hangs costs one of them, and what stands in the way is told apart."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from generators.models.catalog import installed_version
from generators.models.recipe import DERIVED, Recipe
from generators.models.recipe_store import (
    Obstacle,
    Refusal,
    keep_refusal,
    load_recipe,
    refusal_of,
    refusals,
    shipped_recipes,
)
from generators.recipes import derive_many
from generators.recipes.build_model import obstacle_of
from generators.recipes.derive_many import Wanted, derive_and_keep, missing

TYPES = ("bert", "dies", "hangs", "refuses")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HWCOMPAT_CACHE", str(tmp_path))
    return tmp_path


def _derived_by_name(wanted: Wanted, *, anew: bool) -> dict[str, Any]:
    """Do what a child does, without importing a library."""
    assert not anew, "only what ships is derived without the recipes of other versions"
    if wanted.model_type == "dies":
        os._exit(7)
    if wanted.model_type == "hangs":
        time.sleep(60)
    if wanted.model_type == "refuses":
        refusal = Refusal(model_type="refuses", obstacle=Obstacle.MISSING_DEPENDENCY, reason="natten")
        return {"refusal": refusal.to_dict()}
    return {"recipe": shipped_recipes("bert")[0].to_dict()}


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derive_many, "warm_up", lambda: None)
    monkeypatch.setattr(derive_many, "_derive", _derived_by_name)


@pytest.mark.usefixtures("children", "cache")
def test_each_child_that_ends_badly_costs_one_recipe_and_says_why() -> None:
    wanted = [Wanted(model_type=name) for name in TYPES]
    found = {one.model_type: came for one, came in derive_and_keep(wanted, jobs=2, timeout_s=3.0)}
    assert set(found) == set(TYPES)
    assert isinstance(found["bert"], Recipe)
    assert found["bert"].model_type == "bert"
    reasons = {name: one.reason for name, one in found.items() if isinstance(one, Refusal)}
    assert reasons == {
        "dies": "the process ended with 7",
        "hangs": "no answer in 3 seconds",
        "refuses": "natten",
    }


@pytest.mark.usefixtures("children")
def test_what_comes_of_it_is_kept_and_not_asked_for_again(cache: Path) -> None:
    wanted = [Wanted(model_type="refuses", task="fill-mask"), Wanted(model_type="dies")]
    assert missing(wanted) == wanted
    assert len(list(derive_and_keep(wanted, jobs=1))) == len(wanted)
    assert missing(wanted) == []
    kept = refusal_of("refuses", "fill-mask")
    assert kept is not None
    assert kept.obstacle is Obstacle.MISSING_DEPENDENCY
    assert not kept.is_buildable
    assert refusal_of("refuses") is None
    assert "dies" in refusals()
    assert "refuses" not in refusals()
    keep_refusal("dies", None, None)
    assert refusal_of("dies") is None

    list(derive_and_keep([Wanted(model_type="nosuch", task="x")], jobs=1))  # not the primary task
    assert load_recipe("nosuch") is None
    assert (cache / DERIVED / installed_version() / "bert@fill-mask.json").is_file()


def test_only_what_its_own_class_does_excludes_a_type() -> None:
    pytest.importorskip("transformers")
    assert obstacle_of("bert", "NameError: name 'torchvisoin' is not defined").obstacle is Obstacle.NOT_DERIVED
    taken_for_granted = obstacle_of("bert", "NameError: name 'detectron2' is not defined")
    assert taken_for_granted.obstacle is Obstacle.MISSING_DEPENDENCY
    assert taken_for_granted.package == "detectron2"
    assert obstacle_of("bert", "our own fault").to_dict() == {
        "model_type": "bert",
        "obstacle": "not_derived",
        "reason": "our own fault",
        "task": "",
    }
    if installed_version() == "5.5.4":
        assert obstacle_of("bark", "x").obstacle is Obstacle.NO_CLASS
        assert obstacle_of("dinat", "x").obstacle is Obstacle.MISSING_DEPENDENCY
        assert obstacle_of("dinat", "x").package == "natten"
        autoformer = obstacle_of("autoformer", "x")
        assert autoformer.obstacle is Obstacle.DEFAULTS_FAIL
        assert "prediction_length" in autoformer.reason
