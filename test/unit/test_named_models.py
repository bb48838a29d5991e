"""Published names and what their models really are: told by the name alone, with low confidence, or refused."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from generators.models.classifier import classify
from generators.models.model_libraries import known_types
from generators.models.model_names import Meaning, known_words, type_in_name
from hardware.errors import ModelError

NAMED = tomllib.loads((Path(__file__).parents[1] / "support/data/named_models.toml").read_text(encoding="utf-8"))
GROUPS = [pytest.param(group, id=group["title"]) for group in NAMED["group"]]


@pytest.fixture(autouse=True)
def empty_hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))


@pytest.mark.parametrize("group", GROUPS)
def test_published_names_are_told_as_what_their_models_are(group: dict[str, Any]) -> None:
    wrong = []
    for model in group["models"]:
        found = classify(model["name"])
        expected = (model["model_type"], group["family"], group["architecture"], tuple(model.get("traits", ())))
        got = (found.model_type, found.family, found.architecture, found.traits)
        is_type = model["name"].lower().replace("-", "_") in {t.replace("-", "_") for t in known_types()}
        if got != expected or (found.confidence == "low") == is_type:
            wrong.append(f"{model['name']}: {got}, {found.confidence}; it is {expected}")
    assert not wrong


def test_the_list_is_long_and_names_nothing_twice() -> None:
    names = [model["name"] for group in NAMED["group"] for model in group["models"]]
    names += [model["name"] for model in NAMED["refused"]]
    assert len(names) > 200
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", [model["name"] for model in NAMED["refused"]])
def test_a_name_that_does_not_tell_is_refused_with_what_to_do(name: str) -> None:
    with pytest.raises(ModelError) as caught:
        classify(name)
    assert caught.value.why
    assert caught.value.fix


def test_a_refusal_says_what_the_name_does_tell() -> None:
    with pytest.raises(ModelError, match="ultralytics"):
        classify("ultralytics/yolov8n")


def test_words_mean_types_that_exist_and_are_given_once() -> None:
    with (Path(__file__).parents[2] / "generators/models/names.toml").open("rb") as file:
        lines = tomllib.load(file)["known"]
    words = [word for line in lines for word in line["words"]]
    assert sorted(set(words)) == sorted(words)
    assert {line.get("model_type", "bert") for line in lines} <= set(known_types())
    assert known_words()["labse"].model_type == "bert"


@pytest.mark.parametrize(
    ("name", "model_type"),
    [
        ("org/one-two", "one"),
        ("one/zzz", None),
        ("org/xone-onex", None),
        ("org/two-part-one", "two-part"),
        ("org/One3-7b", "one"),
        ("org/one-2.8b", "one"),
        ("org/one-4B-A0.5B", "one_moe"),
        ("org/one-moe-7b", "one_moe"),
        ("org/two-A3B", "two"),
        ("org/nickname-7b", "two"),
        ("org/nickname-7b-vision-x", None),
        ("own/anything", "two"),
    ],
)
def test_how_words_are_found(name: str, model_type: str | None) -> None:
    words = {
        "nickname": Meaning(model_type="two", reason="r"),
        "nickname-*vision": Meaning(model_type="", reason="r"),
        "own/*": Meaning(model_type="two", reason="r"),
    }
    found = type_in_name(name, ["one", "one2", "one_moe", "two", "two-part"], words)
    assert (found.model_type or None if found else None) == model_type
