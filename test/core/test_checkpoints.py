"""Folders of real weights: found by their hash, read once, and never mistaken for others."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest

from hardware.checkpoint_config import hash_of_config
from hardware.errors import BrokenInput, ModelMissing, ModelRefused
from hardware.testing import capability_checks, checkpoints
from hardware.testing.checkpoints import CHECKPOINTS_VARIABLE, checkpoint_folder, weight_files, weights_hash
from hardware.testing.measurement import NotApplicable

CELL = "mine/fill-mask/cpu/float32"
INDEX = "model.safetensors.index.json"
SHARDS = ("model-1.safetensors", "model-2.safetensors", "model-3.safetensors")
CONFIG = {"hidden_act": "gelu", "hidden_size": 32}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkpoint in shards, as the Hub has large ones, that the environment names."""
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    for name in SHARDS:
        (folder / name).write_bytes(name.encode() * 100)
    weights = {f"weight.{number}": name for number, name in enumerate(SHARDS)}
    (folder / INDEX).write_text(json.dumps({"weight_map": weights}))
    (folder / "config.json").write_text(json.dumps(CONFIG))
    monkeypatch.setenv(CHECKPOINTS_VARIABLE, str(folder))
    return folder


def flip_a_bit(path: Path) -> None:
    """Change a file so that it is as old and as long as before."""
    times, data = path.stat(), bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_a_file_is_hashed_once_and_again_when_it_changes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    real = checkpoints.opened
    monkeypatch.setattr(checkpoints, "opened", lambda path, **named: read.append(path.name) or real(path, **named))
    first = weights_hash(folder)
    assert [name for name in read if name != INDEX] == list(SHARDS)
    read.clear()
    assert weights_hash(folder) == first
    assert [name for name in read if name != INDEX] == []
    assert checkpoint_folder(CELL, first) == folder
    flip_a_bit(folder / SHARDS[-1])
    assert weights_hash(folder) != first
    with pytest.raises(ModelMissing, match="have other weights"):
        checkpoint_folder(CELL, first)
    flip_a_bit(folder / SHARDS[-1])
    (folder / INDEX).write_text((folder / INDEX).read_text() + "\n")
    assert weights_hash(folder) != first, "an index that points elsewhere makes another checkpoint"


def test_files_that_are_missing_or_not_the_folders_own_are_named(folder: Path) -> None:
    (folder.parent / "outside.safetensors").write_bytes(b"")
    index = json.loads((folder / INDEX).read_text())
    for name in ("../outside.safetensors", "/etc/passwd", "pytorch_model.bin"):
        changed = {"weight_map": {**index["weight_map"], "weight.0": name}}
        (folder / INDEX).write_text(json.dumps(changed))
        with pytest.raises(BrokenInput, match=r"1 file\(s\) in .* are missing"):
            weight_files(folder)
    (folder / INDEX).write_text(json.dumps(index))
    (folder / SHARDS[1]).unlink()
    with pytest.raises(BrokenInput, match=f"incomplete.*'{SHARDS[1]}'"):
        weight_files(folder)
    (folder / SHARDS[1]).symlink_to(folder / "nowhere")
    with pytest.raises(ModelRefused, match="not a regular file"):
        weight_files(folder)
    for text in ("{", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {"a": [1]}}'):
        (folder / SHARDS[1]).unlink(missing_ok=True)
        (folder / INDEX).write_text(text)
        with pytest.raises(BrokenInput, match="is corrupt"):
            weight_files(folder)


def test_a_broken_folder_beside_the_right_one_does_no_harm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = folder.parent / "broken"
    broken.mkdir()
    (broken / INDEX).write_text("{")
    monkeypatch.setenv(CHECKPOINTS_VARIABLE, os.pathsep.join(map(str, ("x" * 5000, broken, folder))))
    assert checkpoint_folder(CELL, weights_hash(folder)) == folder
    with pytest.raises(ModelMissing, match="is corrupt"):
        checkpoint_folder(CELL, "another")


def test_a_suite_finds_its_folder_by_hash_beside_itself_or_in_the_cache_of_the_hub(folder, monkeypatch) -> None:
    monkeypatch.delenv(CHECKPOINTS_VARIABLE)
    revision = weights_hash(folder)
    suite = folder.parent / "suites" / "test_one.py"
    suite.parent.mkdir()
    relative = os.path.relpath(folder, suite.parent)
    assert checkpoint_folder(CELL, revision, suite=str(suite), folder=relative).samefile(folder)
    with pytest.raises(ModelMissing, match="have other weights"):
        checkpoint_folder(CELL, "another", suite=str(suite), folder=relative)
    with pytest.raises(ModelMissing, match="no folder was given"):
        checkpoint_folder(CELL, revision)
    cache = {"acme/mine": str(folder / "config.json")}
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda name, _file: cache.get(name))
    assert checkpoint_folder(CELL, revision, hub_id="acme/mine") == folder
    with pytest.raises(ModelMissing):
        checkpoint_folder(CELL, revision, hub_id="acme/other")


def test_the_same_weights_with_another_configuration_are_not_the_model(folder: Path) -> None:
    revision, known, path = weights_hash(folder), hash_of_config(CONFIG), folder / "config.json"
    path.write_text(json.dumps(dict(reversed(CONFIG.items()))))  # written otherwise
    assert checkpoint_folder(CELL, revision, config=known) == folder
    path.write_text(json.dumps({**CONFIG, "hidden_act": "relu"}))
    with pytest.raises(ModelMissing, match=r"these weights with a different config\.json"):
        checkpoint_folder(CELL, revision, config=known)


def test_a_check_that_would_not_fit_is_not_applicable_with_both_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    free = SimpleNamespace(available_bytes=3 * 2**30)
    monkeypatch.setattr(capability_checks, "read_memory", lambda: free)
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    capability_checks.require_memory(2**30, "comparing the gradients")
    with pytest.raises(NotApplicable, match=r"comparing the gradients needs 4.0 GiB, but only 3.0 GiB are free"):
        capability_checks.require_memory(4 * 2**30, "comparing the gradients")
    monkeypatch.setattr(capability_checks, "_data_bytes", lambda: 2**30)
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (3 * 2**30, 3 * 2**30))
    assert capability_checks.memory_left() == 2 * 2**30, "the limit of the process counts as well"
