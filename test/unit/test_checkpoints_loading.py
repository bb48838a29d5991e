"""Real weights are opened once and shared by every build."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from hardware.errors import BrokenInput
from hardware.testing import checkpoints
from hardware.testing.checkpoints import load_checkpoint, revision_of, weights_hash


@pytest.fixture(scope="module")
def model_class() -> Any:
    return pytest.importorskip("transformers").BertForMaskedLM


@pytest.fixture(scope="module")
def folder(model_class: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small checkpoint in several shards, as the Hub has large ones."""
    sizes = {"hidden_size": 32, "intermediate_size": 64, "vocab_size": 64}
    config = model_class.config_class(**sizes, num_hidden_layers=2, num_attention_heads=2)
    folder = tmp_path_factory.mktemp("saved")
    model_class(config).save_pretrained(folder, max_shard_size="20KB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    return folder


def test_all_shards_are_read_and_builds_share_memory_and_nothing_else(folder: Path, model_class: Any) -> None:
    one, other = (load_checkpoint(model_class, folder) for _ in range(2))
    again = model_class.from_pretrained(folder, local_files_only=True).state_dict()
    assert one.state_dict().keys() == again.keys()
    assert [name for name, value in one.state_dict().items() if not value.equal(again[name])] == []
    assert not one.training
    for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
        assert mine is not theirs
        assert mine.data_ptr() == theirs.data_ptr()
    assert one.config is not other.config
    one.to(torch.bfloat16)
    assert next(other.parameters()).dtype == torch.float32
    assert revision_of(one) == revision_of(other) == weights_hash(folder)


def test_what_was_written_into_shared_weights_is_not_in_the_next_build(folder: Path, model_class: Any) -> None:
    first = load_checkpoint(model_class, folder)
    before = first.cls.predictions.bias.clone()
    with torch.no_grad():
        first.cls.predictions.bias.add_(1.0)
    assert revision_of(first) == ""  # the hash of the files says nothing of it any more
    assert load_checkpoint(model_class, folder).cls.predictions.bias.equal(before)


def test_one_checkpoint_at_a_time_is_kept_open(folder: Path, model_class: Any, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    load_checkpoint(model_class, folder)
    load_checkpoint(model_class, tmp_path / "copy")
    assert [key[1] for key in checkpoints._opened] == [str(tmp_path / "copy")]


def test_weights_that_the_files_do_not_hold_are_named(folder: Path) -> None:
    from transformers import BertForQuestionAnswering

    with pytest.raises(BrokenInput, match="qa_outputs"):
        load_checkpoint(BertForQuestionAnswering, folder)
