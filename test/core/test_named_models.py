"""Published names and what their models really are: known by the name alone, with low confidence, or refused."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from generators.models.classifier import classify
from generators.models.model_libraries import known_types
from generators.models.model_names import Meaning, known_words, type_in_name
from hardware.errors import ModelError

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def named() -> dict[str, Any]:
    return tomllib.loads((ROOT / "test/support/data/named_models.toml").read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def empty_hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))


def test_published_names_are_classified_as_what_their_models_are(named: dict[str, Any]) -> None:
    types = {one.replace("-", "_") for one in known_types()}
    wrong, names = [], [model["name"] for model in named["refused"]]
    for group in named["group"]:
        for model in group["models"]:
            names.append(model["name"])
            found = classify(model["name"])
            expected = (model["model_type"], group["family"], group["architecture"], tuple(model.get("traits", ())))
            got = (found.model_type, found.family, found.architecture, found.traits)
            is_type = model["name"].lower().replace("-", "_") in types
            if got != expected or (found.confidence == "low") == is_type:
                wrong.append(f"{model['name']}: {got}, {found.confidence}; it is {expected}")
    assert wrong == []
    assert 200 < len(names) == len(set(names))


def test_a_name_that_does_not_say_its_type_is_refused_with_what_to_do(named: dict[str, Any]) -> None:
    for model in named["refused"]:
        with pytest.raises(ModelError) as caught:
            classify(model["name"])
        assert caught.value.why
        assert caught.value.fix
    with pytest.raises(ModelError, match="ultralytics"):
        classify("ultralytics/yolov8n")


def test_words_mean_types_that_exist_and_are_given_once() -> None:
    lines = tomllib.loads((ROOT / "generators/models/names.toml").read_text(encoding="utf-8"))["known"]
    words = [word for line in lines for word in line["words"]]
    assert sorted(set(words)) == sorted(words)
    assert {line.get("model_type", "bert") for line in lines} <= set(known_types())
    assert known_words()["labse"].model_type == "bert"


def test_how_words_are_found() -> None:
    words = {
        "nickname": Meaning(model_type="two", reason="r"),
        "nickname-*vision": Meaning(model_type="", reason="r"),
        "own/*": Meaning(model_type="two", reason="r"),
    }
    expected = {
        "org/one-two": "one",
        "one/zzz": None,
        "org/xone-onex": None,
        "org/two-part-one": "two-part",
        "org/One3-7b": "one",
        "org/one-2.8b": "one",
        "org/one-4B-A0.5B": "one_moe",
        "org/one-moe-7b": "one_moe",
        "org/two-A3B": "two",
        "org/nickname-7b": "two",
        "org/nickname-7b-vision-x": None,
        "own/anything": "two",
    }
    found = {name: type_in_name(name, ["one", "one2", "one_moe", "two", "two-part"], words) for name in expected}
    assert {name: (one.model_type or None if one else None) for name, one in found.items()} == expected
