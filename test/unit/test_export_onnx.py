"""ONNX files: held against torch on the example and on other values, and rewritten where HTP computes otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardware.backends.base import ModelSubject, Unsupported
from hardware.evidence.record import Stage
from hardware.export import export_onnx
from hardware.export import onnx_export as exporting
from hardware.export.traceable import RULED_OUT, arithmetic_masks

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

VALUES = {"values": np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)}


class Positions(torch.nn.Module):
    """Adds a constant of one row in front of a normalisation, as positions are added to a text."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.position = torch.nn.Parameter(torch.randn(1, 3, 4))
        self.norm = torch.nn.LayerNorm(4)

    def forward(self, values: Any) -> Any:
        return {"output": self.norm(values + self.position)}


class Masked(torch.nn.Module):
    """Rules scores out by the smallest number of float32."""

    def forward(self, values: Any) -> Any:
        smallest = torch.full_like(values, torch.finfo(torch.float32).min)
        return {"output": torch.softmax(torch.where(values > 0, values, smallest), dim=-1)}


class Frozen(torch.nn.Module):
    """Has a branch in Python, which a trace freezes."""

    def forward(self, values: Any) -> Any:
        return {"output": values * 2 if float(values[0, 0, 0]) == float(VALUES["values"][0, 0, 0]) else values * 3}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HWCOMPAT_CACHE", str(tmp_path))


def _subject(model: Any) -> ModelSubject:
    return ModelSubject(model=model.eval(), task="other", identity=type(model).__name__)


def _graph(folder: Path) -> Any:
    return onnx.load(str(folder / "model.onnx")).graph


def test_an_export_gives_torchs_numbers_and_is_static() -> None:
    subject = _subject(Positions())
    exported = export_onnx(subject, VALUES)
    got = exporting.OnnxModel(exported.folder / "model.onnx", subject)(VALUES)["output"]
    with torch.no_grad():
        want = subject.model(torch.as_tensor(VALUES["values"]))["output"].numpy()
    assert np.allclose(got, want, atol=1e-6)
    assert exported.conditions() == {"export": "torchscript", "shapes": "static"}


def test_what_was_exported_once_is_taken_from_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    first = export_onnx(_subject(Positions()), VALUES)
    monkeypatch.setattr(torch.onnx, "export", lambda *_, **__: pytest.fail("exported again"))
    assert export_onnx(_subject(Positions()), VALUES) == first


def test_another_shape_is_another_file() -> None:
    first = export_onnx(_subject(Masked()), VALUES)
    again = export_onnx(_subject(Masked()), {"values": VALUES["values"][:1]})
    assert first.folder != again.folder


def test_a_trace_that_froze_a_value_is_refused() -> None:
    with pytest.raises(Unsupported, match="other numbers than torch for other values") as caught:
        export_onnx(_subject(Frozen()), VALUES)
    assert caught.value.error_type == "conversion_wrong"
    assert caught.value.stage is Stage.CONVERT


def test_a_constant_that_is_added_has_the_shape_of_the_sum() -> None:
    graph = _graph(export_onnx(_subject(Positions()), VALUES).folder)
    (added,) = (node for node in graph.node if node.op_type == "Add")
    shapes = {one.name: list(one.dims) for one in graph.initializer}
    assert [shapes[name] for name in added.input if name in shapes] == [[2, 3, 4]]


def test_no_constant_is_beyond_float16() -> None:
    graph = _graph(export_onnx(_subject(Masked()), VALUES).folder)
    numbers = [onnx.numpy_helper.to_array(one) for one in graph.initializer]
    largest = max(float(np.abs(one).max()) for one in numbers if one.dtype == np.float32)
    assert largest == -RULED_OUT


def test_a_result_that_is_the_smallest_number_keeps_its_constant() -> None:
    class Ruled(torch.nn.Module):
        def forward(self, values: Any) -> Any:
            smallest = torch.full_like(values, torch.finfo(torch.float32).min)
            return {"output": torch.where(values > 0, values, smallest)}

    subject = _subject(Ruled())
    got = exporting.OnnxModel(export_onnx(subject, VALUES).folder / "model.onnx", subject)(VALUES)["output"]
    assert np.array_equal(np.isneginf(got), VALUES["values"] <= 0)


def test_masks_as_sums_rule_out_what_the_librarys_do() -> None:
    transformers = pytest.importorskip("transformers")
    masking = pytest.importorskip("transformers.masking_utils")
    config = transformers.LlamaConfig(
        hidden_size=8, num_attention_heads=2, num_hidden_layers=1, attn_implementation="sdpa"
    )
    mask = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]])
    how = {"config": config, "inputs_embeds": torch.zeros(2, 4, 8), "attention_mask": mask, "past_key_values": None}
    how["position_ids"] = torch.arange(4)[None]
    want = masking.create_causal_mask(**how)
    with arithmetic_masks():
        got = masking.create_causal_mask(**how)
    assert got.shape == want.shape
    rows = want.any(dim=-1)  # a row of padding has no key at all: what it gets is never looked at
    assert torch.equal((got == 0)[rows], want[rows])
    assert float(got.min()) >= 3 * RULED_OUT
