"""Real weights are found by their hash, opened once, shared by every build, and never mistaken for others."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path

import pytest

from hardware.checkpoint_config import hash_of_config
from hardware.errors import BrokenInput, ModelMissing
from hardware.testing import capability_checks, checkpoints
from hardware.testing.checkpoints import (
    CHECKPOINTS_VARIABLE,
    checkpoint_folder,
    load_checkpoint,
    revision_of,
    weight_files,
    weights_hash,
)
from hardware.testing.measurement import NotApplicable

CELL = "mine/fill-mask/cpu/float32"


@pytest.fixture(scope="module")
def model_class():
    return pytest.importorskip("transformers").BertForMaskedLM


@pytest.fixture(scope="module")
def saved(model_class, tmp_path_factory) -> Path:
    """A small checkpoint in several shards, as the Hub has large ones."""
    from transformers import BertConfig

    config = BertConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=64
    )
    folder = tmp_path_factory.mktemp("saved")
    model_class(config).save_pretrained(folder, max_shard_size="20KB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    return folder


@pytest.fixture
def folder(saved, tmp_path) -> Path:
    """The checkpoint, to be changed by a test."""
    for path in saved.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def test_all_shards_are_read(folder, model_class):
    model = load_checkpoint(model_class, folder)
    again = model_class.from_pretrained(folder, local_files_only=True)
    for (name, mine), (other, theirs) in zip(
        sorted(model.state_dict().items()), sorted(again.state_dict().items()), strict=True
    ):
        assert name == other
        assert mine.equal(theirs)
    assert not model.training


def test_builds_share_memory_and_nothing_else(folder, model_class):
    import torch

    one, other = (load_checkpoint(model_class, folder) for _ in range(2))
    for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
        assert mine is not theirs
        assert mine.data_ptr() == theirs.data_ptr()
    assert one.config is not other.config
    one.to(torch.bfloat16)
    assert next(other.parameters()).dtype == torch.float32
    assert revision_of(one) == revision_of(other) == weights_hash(folder)


def test_what_was_written_into_shared_weights_is_not_in_the_next_build(folder, model_class):
    import torch

    first = load_checkpoint(model_class, folder)
    before = first.cls.predictions.bias.clone()
    with torch.no_grad():
        first.cls.predictions.bias.add_(1.0)
    assert revision_of(first) == ""  # the hash of the files says nothing of it any more
    assert load_checkpoint(model_class, folder).cls.predictions.bias.equal(before)


def test_a_file_is_hashed_once_and_again_when_it_changes(folder, monkeypatch):
    read = []
    real = checkpoints.opened

    def counting(path, **named):
        read.append(path.name)
        return real(path, **named)

    monkeypatch.setattr(checkpoints, "opened", counting)
    first = weights_hash(folder)
    assert len([name for name in read if name.endswith(".safetensors")]) == len(list(folder.glob("*.safetensors")))
    read.clear()
    assert weights_hash(folder) == first
    assert not [name for name in read if name.endswith(".safetensors")]
    shard = sorted(folder.glob("*.safetensors"))[-1]
    times = shard.stat()
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(bytes(data))
    os.utime(shard, ns=(times.st_atime_ns, times.st_mtime_ns))  # as old and as long as before
    assert weights_hash(folder) != first


def test_weights_that_changed_after_they_were_found_are_not_loaded(folder, model_class, monkeypatch):
    monkeypatch.setenv(CHECKPOINTS_VARIABLE, str(folder))
    revision = weights_hash(folder)
    assert checkpoint_folder(CELL, revision) == folder
    load_checkpoint(model_class, folder)
    shard = sorted(folder.glob("*.safetensors"))[0]
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.unlink()
    shard.write_bytes(bytes(data))
    with pytest.raises(ModelMissing, match="hold other weights"):
        checkpoint_folder(CELL, revision)


def test_a_missing_shard_is_named(folder, model_class):
    shard = sorted(folder.glob("*.safetensors"))[1]
    shard.unlink()
    with pytest.raises(BrokenInput, match=f"not complete.*'{shard.name}'"):
        load_checkpoint(model_class, folder)


@pytest.mark.parametrize("name", ["../outside.safetensors", "/etc/passwd", "pytorch_model.bin"])
def test_an_index_reaches_for_nothing_but_the_folders_own_weights(folder, model_class, name):
    (folder.parent / "outside.safetensors").write_bytes(b"")
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["bert.embeddings.word_embeddings.weight"] = name
    path.write_text(json.dumps(index))
    with pytest.raises(BrokenInput, match="names 1 file"):
        load_checkpoint(model_class, folder)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {"a": [1]}}'])
def test_an_index_that_is_broken_is_said(folder, text):
    (folder / "model.safetensors.index.json").write_text(text)
    with pytest.raises(BrokenInput, match="is corrupt"):
        weight_files(folder)


def test_an_index_that_points_elsewhere_is_another_checkpoint(folder):
    before = weights_hash(folder)
    path = folder / "model.safetensors.index.json"
    path.write_text(path.read_text() + "\n")
    assert weights_hash(folder) != before


def test_a_broken_folder_beside_the_right_one_does_no_harm(folder, tmp_path_factory, monkeypatch):
    broken = tmp_path_factory.mktemp("broken")
    (broken / "model.safetensors.index.json").write_text("{")
    monkeypatch.setenv(CHECKPOINTS_VARIABLE, os.pathsep.join(map(str, ("x" * 5000, broken, folder))))
    assert checkpoint_folder(CELL, weights_hash(folder)) == folder
    with pytest.raises(ModelMissing, match="is corrupt"):
        checkpoint_folder(CELL, "another")


def test_weights_that_the_files_do_not_hold_are_named(folder, saved):
    from transformers import BertForQuestionAnswering

    with pytest.raises(BrokenInput, match="qa_outputs"):
        load_checkpoint(BertForQuestionAnswering, folder)


def test_a_check_that_would_not_fit_is_not_applicable_with_both_figures(monkeypatch):
    monkeypatch.setattr(
        capability_checks, "read_memory", lambda: type("Memory", (), {"available_bytes": 3 * 2**30})()
    )
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    capability_checks.require_room(2**30, "comparing the gradients")
    with pytest.raises(NotApplicable, match=r"comparing the gradients takes 4.0 GiB, and 3.0 GiB are free"):
        capability_checks.require_room(4 * 2**30, "comparing the gradients")


def test_the_limit_of_the_process_counts_as_well(monkeypatch):
    monkeypatch.setattr(capability_checks, "read_memory", lambda: type("Memory", (), {"available_bytes": 2**50})())
    monkeypatch.setattr(capability_checks, "_data_bytes", lambda: 2**30)
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (3 * 2**30, 3 * 2**30))
    assert capability_checks.room_left() == 2 * 2**30


def test_one_checkpoint_at_a_time_is_kept_open(folder, saved, model_class):
    load_checkpoint(model_class, saved)
    load_checkpoint(model_class, folder)
    assert [key[1] for key in checkpoints._opened] == [str(folder)]


def test_a_suite_finds_its_folder_by_itself_and_by_hash_alone(folder, tmp_path, monkeypatch):
    monkeypatch.delenv(CHECKPOINTS_VARIABLE, raising=False)
    suite = tmp_path / "suites" / "test_one.py"
    suite.parent.mkdir()
    relative = os.path.relpath(folder, suite.parent)
    assert checkpoint_folder(CELL, weights_hash(folder), suite=str(suite), folder=relative).samefile(folder)
    with pytest.raises(ModelMissing, match="hold other weights"):
        checkpoint_folder(CELL, "another", suite=str(suite), folder=relative)
    with pytest.raises(ModelMissing, match="no folder was named"):
        checkpoint_folder(CELL, weights_hash(folder))


def test_the_same_weights_with_another_configuration_are_not_the_model(folder, monkeypatch):
    monkeypatch.setenv(CHECKPOINTS_VARIABLE, str(folder))
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    known = hash_of_config(config)
    path.write_text(json.dumps(dict(reversed(config.items()))), encoding="utf-8")  # written otherwise
    assert checkpoint_folder(CELL, weights_hash(folder), config=known) == folder
    path.write_text(json.dumps({**config, "hidden_act": "relu"}), encoding="utf-8")
    with pytest.raises(ModelMissing, match=r"these weights with another config\.json"):
        checkpoint_folder(CELL, weights_hash(folder), config=known)


def test_a_suite_finds_a_snapshot_in_the_cache_of_the_hub(folder, monkeypatch):
    import huggingface_hub

    monkeypatch.delenv(CHECKPOINTS_VARIABLE, raising=False)
    found = {"acme/mine": str(folder / "config.json")}
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda name, _file: found.get(name))
    assert checkpoint_folder(CELL, weights_hash(folder), hub_id="acme/mine") == folder
    with pytest.raises(ModelMissing):
        checkpoint_folder(CELL, weights_hash(folder), hub_id="acme/other")
