"""Graphs that decode as ONNX files: what torch decodes, for a cache of any length, or a reason; and in fewer bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from generators.models.inputs import make_inputs
from generators.models.recipe_store import load_recipe
from generators.recipes.build_model import build
from hardware.backends.base import ModelSubject, Unsupported
from hardware.export import decoding_graphs
from hardware.export.decoding_graphs import decode
from hardware.export.exported import ENCODER, PROMPT, STEP
from hardware.export.onnx_decoding_graphs import axes_of, export_onnx_decoding, graph_files, with_sizes
from hardware.export.onnx_export import export_onnx
from hardware.export.weight_compression import in_float16, with_int8_weights_in
from hardware.testing.seeded_weights import fill

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HWCOMPAT_CACHE", str(tmp_path / "cache"))


def decoder(model_type: str) -> tuple[ModelSubject, dict[str, Any]]:
    recipe = load_recipe(model_type)
    model = fill(
        build(recipe.config_class, recipe.model_class, recipe.config),
        gain=recipe.gain,
        zero_centered=recipe.zero_centered,
    )
    subject = ModelSubject(
        model=model,
        task=recipe.task,
        identity=model_type,
        generates=recipe.generate,
        masked_by=recipe.masked_by,
    )
    return subject, make_inputs(recipe.inputs, recipe.recorded["seed"], recipe.recorded["lengths"])


@pytest.mark.parametrize(("model_type", "graphs"), [("gpt2", {PROMPT, STEP}), ("t5", {ENCODER, PROMPT, STEP})])
def test_a_token_takes_a_cache_of_any_length(model_type: str, graphs: set[str]) -> None:
    files = graph_files(export_onnx_decoding(*decoder(model_type)))
    assert set(files) == graphs
    named = {name: axes for name, axes in axes_of(files[STEP]).items() if any(axes)}
    assert any(name.startswith("past") for name in named)
    assert not any(any(axes) for axes in axes_of(files[PROMPT]).values())


def test_a_step_for_one_length_alone_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding_graphs, "grown_axes", lambda *_: {})
    with pytest.raises(Unsupported, match="doesn't decode"):
        export_onnx_decoding(*decoder("gpt2"))


def test_a_cache_that_was_changed_in_memory_does_not_meet_graphs_from_before(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.cache_utils import DynamicLayer

    subject, example = decoder("gpt2")
    before = export_onnx_decoding(subject, example)
    times = (before.folder / "verified.json").stat().st_mtime_ns
    assert export_onnx_decoding(subject, example) == before
    assert (before.folder / "verified.json").stat().st_mtime_ns == times, "an export of the same module is kept"
    right = DynamicLayer.update
    monkeypatch.setattr(
        DynamicLayer, "update", lambda self, keys, values, *rest, **more: right(self, keys / 2, values, *rest, **more)
    )
    again = export_onnx_decoding(subject, example)
    assert (again.folder / "verified.json").stat().st_mtime_ns != times, "graphs of the right cache were given"


def test_a_module_that_does_not_decode_says_why_and_its_forward_pass_is_exported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subject, example = decoder("gpt2")

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the size of tensor a must match")

    monkeypatch.setattr("hardware.model.greedy_decoding.greedy", broken)
    with pytest.raises(Unsupported, match="RuntimeError: the size of tensor a must match"):
        export_onnx_decoding(subject, example)
    assert export_onnx(subject, example).static


def test_axes_get_sizes_and_what_follows_from_them_is_computed(tmp_path: Path) -> None:
    step = graph_files(export_onnx_decoding(*decoder("gpt2")))[STEP]
    model = onnx.load(str(step))
    dims = {one.name: one.type.tensor_type.shape.dim for one in model.graph.input}
    shapes = {name: tuple(axis.dim_value or 5 for axis in axes) for name, axes in dims.items()}
    fixed = with_sizes(step, shapes, tmp_path)
    assert with_sizes(step, shapes, tmp_path) == fixed
    assert not any(any(axes) for axes in axes_of(fixed).values())
    assert "Shape" not in {node.op_type for node in onnx.load(str(fixed)).graph.node}
    other = with_sizes(
        step, {name: tuple(6 if one == 5 else one for one in of) for name, of in shapes.items()}, tmp_path
    )
    assert other != fixed


@pytest.fixture
def product(tmp_path: Path) -> Path:
    """A product with a matrix, and one with a constant of three axes."""
    random = np.random.default_rng(0)
    matrix, cube = random.normal(size=(64, 64)).astype(np.float32), random.normal(size=(2, 64, 8)).astype(np.float32)
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["values", "matrix"], ["inner"], name="first"),
            helper.make_node("MatMul", ["inner", "cube"], ["result"], name="second"),
        ],
        "product",
        [helper.make_tensor_value_info("values", onnx.TensorProto.FLOAT, [2, 3, 64])],
        [helper.make_tensor_value_info("result", onnx.TensorProto.FLOAT, [2, 3, 8])],
        [numpy_helper.from_array(matrix, "matrix"), numpy_helper.from_array(cube, "cube")],
    )
    file = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(file))
    return file


def results(file: Path) -> Any:
    values = np.random.default_rng(1).normal(size=(2, 3, 64)).astype(np.float32)
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return session.run(None, {"values": values})[0]


@pytest.mark.parametrize(("made_by", "limit"), [(with_int8_weights_in, 0.05), (in_float16, 0.01)])
def test_fewer_bits_give_nearly_the_same(product: Path, tmp_path: Path, made_by: Any, limit: float) -> None:
    folder = tmp_path / "fewer"
    folder.mkdir()
    made, want = made_by(product, folder), results(product)
    error = np.abs(results(made) - want).max() / want.std()
    assert 1e-5 < error < limit
    graph = onnx.load(str(made)).graph
    types = {one.name: one.data_type for one in graph.initializer}
    if made_by is in_float16:
        assert onnx.TensorProto.FLOAT not in types.values()
    else:
        assert onnx.TensorProto.INT8 in types.values()
        assert types["cube"] == onnx.TensorProto.FLOAT, "its scales would be taken for blocks"


def test_a_graph_that_asks_the_module_itself_is_no_graph() -> None:
    import torch

    subject, example = decoder("gpt2")
    head = subject.model.lm_head

    def in_torch(_: Any) -> dict[str, Any]:
        return {"logits": head(torch.ones(1, 1, head.in_features)).detach().numpy()}

    with pytest.raises(Unsupported, match="lm_head would run in torch while the graphs decode") as caught:
        decode(subject.model, {PROMPT: in_torch, STEP: in_torch}, example, steps=2)
    assert caught.value.error_type == "silent_offload"
