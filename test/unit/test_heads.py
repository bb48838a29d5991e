"""What the head of a task needs beside a type's own tiny configuration, and inputs that only such heads read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from generators.models.architectures import UNKNOWN
from generators.models.catalog import load_catalog
from generators.models.classifier import classify_type
from generators.recipes import derive
from generators.recipes.build_model import build, class_of, part_of
from generators.recipes.derive import task_class
from generators.recipes.input_specs import first_special, input_specs
from generators.recipes.tiny import LABELS, head_arguments, tiny_configs
from hardware.errors import ModelError

pytest.importorskip("torch")


def headed(model_type: str, task: str) -> tuple[Any, dict[str, Any], Mapping[str, Any]]:
    """The model of a task, what its head changed, and its inputs."""
    chosen, what = task_class(model_type, task), classify_type(model_type)
    made_with = load_catalog().config_class(model_type)
    config = next(tiny_configs(model_type, load_catalog()))
    changed = head_arguments(config, class_of(made_with), chosen, what)
    model = build(made_with, chosen.model_class, config | changed)
    return model, changed, input_specs(model, chosen.entry, what.architecture, "right", 16)


def test_a_decoder_that_classifies_gets_a_padding_token_that_no_text_holds() -> None:
    model, changed, specs = headed("gpt2", "text-classification")
    assert changed["num_labels"] == LABELS
    assert changed["pad_token_id"] == specs["input_ids"]["high"] == first_special(model.config)


def test_a_padding_token_that_there_is_stays() -> None:
    assert "pad_token_id" not in headed("bert", "text-classification")[1]


def test_a_decoder_that_classifies_what_its_encoder_reads_reads_it_to_its_end() -> None:
    model, _, specs = headed("bart", "text-classification")
    assert "decoder_input_ids" not in specs
    assert specs["input_ids"]["end"] == model.config.eos_token_id


def test_answers_are_several_for_each_question() -> None:
    _, _, specs = headed("bert", "multiple-choice")
    assert {name: spec["choices"] for name, spec in specs.items()} == {"input_ids": 3, "attention_mask": 3}


@pytest.mark.parametrize(
    ("whole", "model_class", "found"),
    [
        ("Emu3Config", "Emu3ForCausalLM", ("text_config", "Emu3TextConfig")),
        ("Llama4Config", "Llama4VisionModel", ("vision_config", "Llama4VisionConfig")),
        ("Llama4Config", "Llama4ForConditionalGeneration", ("", "")),
        ("BertConfig", "BertModel", ("", "")),
    ],
)
def test_a_part_is_built_with_its_own_configuration(whole: str, model_class: str, found: tuple[str, str]) -> None:
    assert part_of(whole, model_class) == found


def test_a_type_of_which_nobody_knows_what_it_is_has_no_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = replace(classify_type("bert"), architecture=UNKNOWN)
    monkeypatch.setattr(derive, "classify_type", lambda _: unknown)
    with pytest.raises(ModelError, match="what kind of model it is"):
        derive.derive_tiny("bert")
