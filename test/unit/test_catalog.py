"""The catalog: what the installed transformers can build, read without importing it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from generators.models.catalog import config_defaults, load_catalog, read_mappings, task_entries
from hardware.errors import ModelError


def test_lists_the_model_types_of_the_installed_version() -> None:
    catalog = load_catalog()
    assert {"bert", "gpt2", "t5", "vit", "clip", "whisper", "mixtral", "mamba"} <= set(catalog.model_types)
    assert list(catalog.model_types) == sorted(catalog.model_types)
    assert catalog.config_class("bert") == "BertConfig"


@pytest.mark.parametrize(
    ("model_type", "task", "model_class"),
    [
        ("bert", "fill-mask", "BertForMaskedLM"),
        ("bart", "text2text-generation", "BartForConditionalGeneration"),
        ("clip", "zero-shot-image-classification", "CLIPModel"),
        ("whisper", "automatic-speech-recognition", "WhisperForConditionalGeneration"),
        ("llava", "image-text-to-text", "LlavaForConditionalGeneration"),
    ],
)
def test_the_primary_task_is_what_only_that_kind_of_model_does(model_type: str, task: str, model_class: str) -> None:
    primary = load_catalog().tasks_of(model_type)[0]
    assert (primary.task, primary.model_class) == (task, model_class)


def test_every_auto_mapping_of_models_stands_for_a_task() -> None:
    mapped = {name for name in load_catalog().mappings if name.startswith("MODEL_")}
    assert mapped - {entry.mapping for entry in task_entries()} == set()


def test_no_task_of_a_type_is_named_twice() -> None:
    catalog = load_catalog()
    for model_type in catalog.model_types:
        tasks = [one.task for one in catalog.tasks_of(model_type)]
        assert len(tasks) == len(set(tasks)), model_type


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


def test_looking_up_imports_neither_transformers_nor_torch() -> None:
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
