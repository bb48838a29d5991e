"""The catalog: what the installed transformers can build, read without importing it."""

from __future__ import annotations

import pytest

from generators.models.architectures import shape_of
from generators.models.catalog import config_defaults, load_catalog, read_mappings, task_entries
from hardware.errors import ModelError


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
