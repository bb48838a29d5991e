"""Folders of checkpoints from anywhere: configurations, indices, weights and whatever else lies in them."""

from __future__ import annotations

import json
import pickle
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from watched import Opened, Sentinel, Surroundings, limited, refused_or

from generators.models.checkpoint import read_checkpoint
from generators.models.classifier import classify
from generators.recipes.memory.memory_request import weights_of_another
from hardware.errors import BrokenInput
from hardware.testing.checkpoints import weight_files, weights_hash

CONFIG = {
    "model_type": "bert",
    "architectures": ["BertForMaskedLM"],
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 64,
    "max_position_embeddings": 32,
    "torch_dtype": "float32",
    "id2label": {"0": "a", "1": "b"},
    "text_config": {"model_type": "bert", "hidden_size": 32},
}
INDEX = {"metadata": {"total_size": 8}, "weight_map": {"a": "model.safetensors", "b": "model.safetensors"}}


SOURCES = ("modeling_evil.py", "configuration_evil.py", "tokenization_evil.py", "torch.py", "numpy.py", "setup.py")
SOURCES += ("conftest.py", "sitecustomize.py", "custom_generate/generate.py")


def safetensors(header: Any, data: bytes = b"\0" * 8) -> bytes:
    """A file with this header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


class Touch:
    """Pickles into something that makes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return open, (str(self.path), "w")


def with_code(folder: Path, sentinel: Path) -> None:
    """Everything in a folder that a careless loader would run."""
    code = f"open({str(sentinel)!r}, 'w').close()\nclass Evil: pass\n"
    for name in SOURCES:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(code)
    for name in ("pytorch_model.bin", "model.pkl", "model.pt", "training_args.bin", "optimizer.pt"):
        (folder / name).write_bytes(pickle.dumps(Touch(sentinel)))
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "preprocessor_config.json"):
        told = {
            "auto_map": {"AutoTokenizer": ["tokenization_evil.Evil", None]},
            "tokenizer_class": "Evil",
            "a": [[1] * 9],
        }
        (folder / name).write_text(json.dumps(told))
    (folder / "generation_config.json").write_text(
        json.dumps({"custom_generate": "custom_generate", "max_length": 5})
    )


@pytest.mark.fuzz(250)
def test_a_configuration_is_read_or_refused(fuzz: Any, place: Path, sentinel: Sentinel) -> None:
    folder = place / "checkpoint"
    folder.mkdir()
    with_code(folder, sentinel.path)
    (folder / "model.safetensors").write_bytes(
        safetensors({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})
    )
    auto = {
        "AutoConfig": "configuration_evil.Evil",
        "AutoModel": "modeling_evil.Evil",
        "AutoModelForMaskedLM": "x--y.Z",
    }

    for hostile in fuzz:
        config = hostile.changed({**CONFIG, "auto_map": auto} if hostile.random() < 0.5 else CONFIG)
        (folder / "config.json").write_bytes(hostile.line(config))
        with Opened(folder) as opened:
            read = refused_or(read_checkpoint, folder)
            found = refused_or(classify, str(folder))
            if found is not None:
                json.dumps(found.to_dict())
        assert opened.names <= {"open config.json", "open model.safetensors"}, "a header has the size"
        if read is not None:
            assert len(read.config_hash) == 64


@pytest.mark.fuzz(150)
def test_weights_are_looked_at_or_refused(fuzz: Any, place: Path, sentinel: Sentinel) -> None:
    folder = place / "checkpoint"
    header = {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
        "b": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]},
    }

    for hostile in fuzz:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        with_code(folder, sentinel.path)
        (folder / "config.json").write_text(json.dumps(CONFIG))
        kind = hostile.randrange(6)
        if kind == 0:
            told = struct.pack("<Q", hostile.choice((0, 1, 2**31, 2**63, 2**64 - 1, 100_000_001)))
            data = told + json.dumps(header).encode() + b"\0" * 8
        elif kind == 1:
            data = hostile.bytes(safetensors(header))
        elif kind == 2:
            many = {f"t{n}": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**62]} for n in range(1000)}
            data = safetensors(many)
        else:
            data = safetensors(hostile.json(hostile.changed(header)))
        (folder / "model.safetensors").write_bytes(data)
        (folder / "model.safetensors.index.json").write_bytes(hostile.line(hostile.changed(INDEX)))
        if hostile.random() < 0.05:
            hostile.trap(folder / hostile.choice(("model.safetensors", "model.safetensors.index.json")), place.parent)
            limited(lambda: (weight_files(folder), weights_hash(folder), weights_of_another(folder, 10)))
            continue
        files = refused_or(weight_files, folder)
        refused_or(read_checkpoint, folder, needs_weights=True)
        if files is not None:
            assert {path.parent for path in files} == {folder}
            refused_or(weights_hash, folder)
        assert isinstance(weights_of_another(folder, 10), str)


def test_weights_that_are_pickles_are_refused(place: Path, sentinel: Sentinel) -> None:
    (place / "config.json").write_text(json.dumps(CONFIG))
    for name in ("pytorch_model.bin", "model.PKL", "model.pt", "a.pth", "b.ckpt", "c.joblib"):
        (place / name).write_bytes(pickle.dumps(Touch(sentinel.path)))
        with pytest.raises(BrokenInput, match="pickles"):
            read_checkpoint(place)
        (place / name).unlink()


def test_a_configuration_that_names_code_to_fetch_is_refused(place: Path) -> None:
    (place / "config.json").write_text(json.dumps({**CONFIG, "attn_implementation": "sdpa"}))
    read_checkpoint(place)
    inner = {"_attn_implementation_internal": {"": "evil/kernels"}}
    for changes, word in (
        ({"attn_implementation": "evil/kernels"}, "attn_implementation"),
        ({"_attn_implementation": "evil/kernels@main:fn"}, "_attn_implementation"),
        ({"text_config": inner}, "_attn_implementation_internal"),
        ({"a": [{"experts_implementation": "evil/kernels"}]}, "experts_implementation"),
    ):
        (place / "config.json").write_text(json.dumps({**CONFIG, **changes}))
        with pytest.raises(BrokenInput, match=f"sets {word} to"):
            read_checkpoint(place)


def test_an_adapter_is_refused_since_its_base_lies_elsewhere(place: Path) -> None:
    (place / "config.json").write_text(json.dumps(CONFIG))
    (place / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "/somewhere/else"}))
    with pytest.raises(BrokenInput, match="names another model"):
        read_checkpoint(place)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that can be loaded."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("whole")
    config = transformers.BertConfig(**{k: v for k, v in CONFIG.items() if k.endswith(("size", "heads", "layers"))})
    transformers.BertForMaskedLM(config).save_pretrained(folder)
    return folder


@pytest.mark.fuzz(20)
def test_loading_runs_nothing_of_the_folder(fuzz: Any, place: Path, sentinel: Sentinel, whole: Path) -> None:
    from transformers import BertForMaskedLM

    from hardware.testing.checkpoints import load_checkpoint

    folder = place / "checkpoint"
    config = json.loads((whole / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "configuration_evil.Evil", "AutoModelForMaskedLM": "modeling_evil.Evil"}
    weights = (whole / "model.safetensors").read_bytes()
    loaded = []

    for hostile in fuzz:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        with_code(folder, sentinel.path)
        kind = hostile.randrange(4)
        changed = hostile.changed(config, most=2) if kind < 2 else config
        (folder / "config.json").write_bytes(json.dumps(changed).encode())
        (folder / "model.safetensors").write_bytes(hostile.bytes(weights) if kind == 2 else weights)
        around = Surroundings(place.parent)

        def load() -> tuple[bool, set[str]]:
            with Opened(folder) as opened:
                model = refused_or(load_checkpoint, BertForMaskedLM, folder)
            return model is not None, opened.names

        done, names = limited(load, memory=2 << 30)
        loaded.append(done)
        read = {"open config.json", "open model.safetensors", "open generation_config.json"}
        assert names <= read, names
        around.check()
    assert any(loaded)
