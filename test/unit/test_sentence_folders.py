"""Folders of sentence-transformers run with their modules, and other folders than checkpoints are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from generators.models.classifier import classify, graph_path, kind_of
from generators.recipes.derive import open_checkpoint
from hardware.errors import BrokenInput, HwCompatError, ModelRefused
from hardware.export.optimum_exporter import with_exporter
from hardware.model.model_types import ModelInput, Unsupported
from hardware.testing.checkpoints import load_checkpoint, weights_hash

MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])


def write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


@pytest.fixture(scope="module")
def transformer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 32, "max_position_embeddings": 32}
    config = transformers.BertConfig(num_hidden_layers=1, num_attention_heads=2, **sizes)
    folder = tmp_path_factory.mktemp("transformer")
    transformers.BertForMaskedLM(config).save_pretrained(folder)  # no pooler, as many such folders
    return folder


def sentence_folder(transformer: Path, folder: Path, *kinds: str, **pooling: Any) -> Path:
    for path in transformer.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    places = ["", *(f"{place}_{kind}" for place, kind in enumerate(kinds, 1))]
    types = [f"sentence_transformers.models.{kind}" for kind in ("Transformer", *kinds)]
    listed = [{"idx": n, "path": one, "type": types[n]} for n, one in enumerate(places)]
    write(folder / "modules.json", listed)
    write(folder / "1_Pooling/config.json", pooling)
    if "Dense" in kinds:
        settings = {"in_features": 16 * len(pooling), "out_features": 8, "bias": True}
        write(folder / "2_Dense/config.json", {**settings, "activation_function": "torch.nn.modules.linear.Identity"})
    return folder


def dense(width: int) -> dict[str, torch.Tensor]:
    return {"linear.weight": torch.randn(8, width), "linear.bias": torch.randn(8)}


@pytest.mark.parametrize(
    ("setting", "pooled"),
    [
        ("pooling_mode_cls_token", lambda one: one[0]),
        ("pooling_mode_max_tokens", lambda one: one.max(0).values),
        ("pooling_mode_mean_tokens", lambda one: one.mean(0)),
        ("pooling_mode_mean_sqrt_len_tokens", lambda one: one.sum(0) / len(one) ** 0.5),
        (
            "pooling_mode_weightedmean_tokens",
            lambda one: torch.arange(1.0, len(one) + 1) @ one * 2 / (len(one) ** 2 + len(one)),
        ),
        ("pooling_mode_lasttoken", lambda one: one[-1]),
    ],
)
def test_each_pooling_reads_the_tokens_that_the_mask_keeps(transformer, tmp_path, setting, pooled):
    folder = sentence_folder(transformer, tmp_path, "Pooling", "Normalize", **{setting: True})
    opened = open_checkpoint(folder)
    with torch.no_grad():
        found = opened.model(input_ids=torch.arange(10).reshape(2, 5), attention_mask=MASK)
    rows = zip(found.last_hidden_state, MASK.sum(1), strict=True)
    want = torch.stack([pooled(states[:length]) for states, length in rows])
    torch.testing.assert_close(found.sentence_embedding, torch.nn.functional.normalize(want))
    assert opened.entry.outputs[0] == "sentence_embedding"
    assert type(opened.model).__name__ == "BertModel"
    assert any("Pooling" in one and "Normalize" in one for one in opened.remarks)


@pytest.mark.parametrize("is_pickle", [False, True])
def test_dense_weights_are_read_from_either_file_and_belong_to_the_hash(transformer, tmp_path, is_pickle):
    names = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}
    folder = sentence_folder(transformer, tmp_path, "Pooling", "Dense", **names)
    hashes = set()
    for _ in range(2):
        weights = dense(32)
        if is_pickle:
            torch.save(weights, folder / "2_Dense/pytorch_model.bin")
        else:
            save_file(weights, folder / "2_Dense/model.safetensors")
        hashes.add(weights_hash(folder))
        model = load_checkpoint(type(open_checkpoint(folder, empty=True).model).__base__, folder)
        with torch.no_grad():
            found = model(input_ids=torch.arange(10).reshape(2, 5), attention_mask=MASK)
        states = found.last_hidden_state
        means = torch.stack([states[0].mean(0), states[1, :3].mean(0)])
        want = torch.cat([states[:, 0], means], 1) @ weights["linear.weight"].T + weights["linear.bias"]
        torch.testing.assert_close(found.sentence_embedding, want)
    assert len(hashes) == 2


def test_the_exporter_that_knows_no_modules_is_not_used(transformer, tmp_path):
    folder = sentence_folder(transformer, tmp_path, "Pooling", pooling_mode_mean_tokens=True)
    model = open_checkpoint(folder).model
    with pytest.raises(Unsupported, match="leaves out the modules"):
        with_exporter(ModelInput(model=model, task="feature-extraction", identity=""), {}, tmp_path)


class Code:
    def __reduce__(self) -> Any:
        return print, ("ran",)


def test_modules_that_cannot_be_run_are_refused_with_the_reason(transformer, tmp_path, capsys):
    folder = sentence_folder(transformer, tmp_path, "Pooling", "Dense", pooling_mode_mean_tokens=True)
    file, pickle = folder / "2_Dense/model.safetensors", folder / "2_Dense/pytorch_model.bin"

    def reason(empty: bool = True) -> str:
        with pytest.raises(ModelRefused) as caught:
            open_checkpoint(folder, empty=empty)
        return str(caught.value)

    assert "2_Dense has no weights" in reason()
    torch.save({"linear.weight": Code()}, pickle)
    assert "2_Dense/pytorch_model.bin can't be read" in reason()
    assert capsys.readouterr().out == ""
    save_file(dense(12), file)
    assert "linear.weight of 2_Dense doesn't fit: (8, 12) in the file, (8, 16)" in reason()
    save_file({**dense(16), "linear.bias": torch.full((8,), torch.nan)}, file)
    assert "2_Dense.linear.bias has 8 NaN" in reason(empty=False)
    file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:a\nsize 1\n")
    assert "git lfs pull" in reason()
    sentence_folder(transformer, folder, "Pooling", "LSTM", pooling_mode_mean_tokens=True)
    assert "the module 'LSTM'" in reason()
    sentence_folder(transformer, folder, "Normalize")
    assert "a Pooling" in reason()
    write(folder / "modules.json", [{"path": "../..", "type": "Transformer"}])
    assert "outside the folder" in reason()


ADAPTER = {"base_model_name_or_path": "org/base"}
KINDS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["it is empty", "hf download"]),
    ({"adapter_config.json": ADAPTER}, ["adapter", "'org/base'", "merge_and_unload"]),
    ({"config.json": {"model_type": "bert"}, "adapter_config.json": ADAPTER}, ["adapter", "to test the rest alone"]),
    ({"a.gguf": 0}, ["GGUF", "safetensors"]),
    ({"config.json": {"model_type": "bert"}, "a.gguf": 0}, ["GGUF", "safetensors"]),
    ({"model_index.json": {"_class_name": "StableDiffusionPipeline"}}, ["pipeline", "--model stable-diffusion"]),
    ({f"checkpoint-{n}/model.safetensors": 0 for n in (9, 100)}, ["checkpoint-9, checkpoint-100", "/checkpoint-100"]),
    ({"model.safetensors": 0}, ["no config.json", "hf download NAME config.json"]),
    ({"training_args.bin": 0, "tokenizer.json": {}}, ["tokenizer", "no weights"]),
    ({"config.json": {"architecture": "resnet18", "pretrained_cfg": {"tag": "a"}}}, ["timm", "module:factory"]),
    ({"config.json": {"model_type": "mine", "auto_map": {"AutoModel": "a.B"}}}, ["own code", "module:factory"]),
    ({"config.json": {"model_type": "llama9", "transformers_version": "99.0"}}, ["transformers 99.0", "--upgrade"]),
    ({"a.onnx": 0, "b.onnx": 0}, ["a.onnx, b.onnx", "/a.onnx"]),
    ({"config.json": {"model_type": "bert"}, "pytorch_model.bin": 0, "onnx/model.onnx": 0}, ["pickle"]),
]


@pytest.mark.parametrize(("files", "says"), KINDS)
def test_a_folder_that_is_no_checkpoint_is_named_with_what_helps(tmp_path, files, says):
    for name, content in files.items():
        write(tmp_path / name, content)
    with pytest.raises(HwCompatError) as caught:
        classify(str(tmp_path))
    for text in says:
        assert text in str(caught.value)


@pytest.mark.parametrize("name", ["model.onnx", "onnx/model.onnx", "MODEL.ONNX", "other.onnx", "openvino_model.xml"])
def test_a_folder_without_weights_for_torch_means_its_graph(tmp_path, name):
    more = {"other.onnx": "config.json", "openvino_model.xml": "openvino_model.bin"}
    for one in (name, more.get(name, "onnx/model_quantized.onnx")):
        write(tmp_path / one, {"model_type": "bert"})
    assert kind_of(str(tmp_path)) == "graph"
    assert graph_path(str(tmp_path)) == tmp_path / name
    write(tmp_path / "model.safetensors", 0)
    assert kind_of(str(tmp_path)) == ""


def test_a_file_of_another_format_is_named(tmp_path):
    write(tmp_path / "a.gguf", 0)
    with pytest.raises(BrokenInput, match=r"llama\.cpp"):
        classify(str(tmp_path / "a.gguf"))
