"""Operators that are computed by others while an ONNX file is made: the same numbers, and no list of places."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardware.backends.base import ModelSubject
from hardware.export import export_onnx
from hardware.export.exported import ONNX
from hardware.export.onnx_export import OnnxModel, output_name
from hardware.export.onnx_operators import exportable_operators

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

VALUES = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


class Model(torch.nn.Module):
    """A function of the input `sample`; its output has the same name."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, sample: Any) -> Any:
        return {"sample": self.function(sample)}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HWCOMPAT_CACHE", str(tmp_path))


def put_rows(values: Any) -> Any:
    """Rows where a mask is set, as features of a picture go into a text."""
    mask = torch.tensor([True, False, True])
    found = values.clone()
    found[mask] = values[:2] * 2
    return found


def rows_scattered(values: Any) -> Any:
    """As features of a picture go into a text: the mask is one of rows."""
    mask = torch.tensor([True, False, True])[:, None].expand_as(values)
    return values.masked_scatter(mask, values[:2] * 3)


def put_number(values: Any) -> Any:
    found = values.clone()
    found[values > 0] = 7.0
    return found


def written_through(values: Any) -> Any:
    mask = values > 0
    mask |= values < -1
    mask &= values < 2
    return mask * values


def grouped_heads(values: torch.Tensor) -> torch.Tensor:
    """Four heads of one number, with a key and a value for each two of them."""
    queries = values[None, :, :, None].transpose(1, 2)
    keys = queries[:, :2] * 0.5
    attend = torch.nn.functional.scaled_dot_product_attention
    return attend(queries, keys, keys + 1, enable_gqa=True)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "put_rows": put_rows,
    "put_number": put_number,
    "written_through": written_through,
    "masked_scatter": lambda values: values.masked_scatter(values > 0, values.flatten() * 3),
    "rows_scattered": rows_scattered,
    "nothing_scattered": lambda values: values.masked_scatter(values > 100, values[:0]),
    "counted": lambda values: torch.cumsum(values > 0, dim=-1) * values,
    "rounded": lambda values: values[:, : round(values.shape[1] * 0.6)] * 2,
    "diff": lambda values: torch.diff(values, dim=-1),
    "take_along_dim": lambda values: torch.take_along_dim(values, torch.tensor([[0, 2]]), dim=1),
    "rms_norm": lambda values: torch.nn.functional.rms_norm(values, (4,), torch.arange(4.0), 1e-6),
    "asinh": lambda values: torch.asinh(values),
    "expm1": lambda values: torch.expm1(values),
    "full": lambda values: values[torch.full((2,), 1)],
    "full_of_a_fraction": lambda values: values * torch.full((4,), 1.5),
    "full_in_a_dtype": lambda values: values + torch.full((4,), 3, dtype=torch.float32) // 2,
    "isin": lambda values: torch.isin((values * 2).to(torch.int64), torch.tensor([0, 1])) * values,
    "pooled_without_a_batch": lambda values: torch.nn.functional.max_pool2d(values[None], 2),
    "grouped_heads": grouped_heads,
    "repeat_interleave": lambda values: values.repeat_interleave(2, dim=-1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_exported_gives_the_same_numbers(name: str) -> None:
    subject = ModelSubject(model=Model(FUNCTIONS[name]).eval(), task="other", identity=name)
    exported = export_onnx(subject, {"sample": VALUES})
    got = OnnxModel(exported.folder / "model.onnx", subject)({"sample": VALUES})["sample"]
    want = FUNCTIONS[name](torch.as_tensor(VALUES)).numpy()
    assert np.abs(got - want).max() < 1e-6
    kinds = {node.op_type for node in onnx.load(str(exported.folder / ONNX)).graph.node}
    assert not kinds & {"NonZero", "ScatterND", "GatherND"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_ways_round_give_what_torch_gives(name: str) -> None:
    values = torch.as_tensor(VALUES)
    want = FUNCTIONS[name](values)
    with exportable_operators():
        got = FUNCTIONS[name](values)
    assert torch.allclose(got, want, atol=1e-6)
    assert got.dtype == want.dtype


def test_an_output_with_an_inputs_name_keeps_it_for_who_reads_it() -> None:
    assert output_name("result.sample") == output_name("sample") == "sample"


def test_onnx_runtime_keeps_no_identity_of_the_machine_and_sends_nothing(tmp_path: Path) -> None:
    """From 1.29 on it would, as soon as it is imported."""
    code = "import hardware, onnxruntime; onnxruntime.get_available_providers()"
    # Nothing else of this environment: under CI and in tests of its own it keeps silent by itself.
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    root = Path(__file__).parents[2]
    for given, kept in ((code, False), (code.replace("import hardware,", "import"), True)):
        ran = subprocess.run(
            [sys.executable, "-c", given], env=environment, cwd=root, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stderr
        assert bool(list(tmp_path.rglob("deviceid"))) is kept, "without us it does, or this test shows nothing"


def test_without_onnx_runtime_a_file_is_refused_with_what_installs_it(monkeypatch):
    from hardware.backends._onnx import OnnxRunnable
    from hardware.backends.base import Unsupported

    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(Unsupported, match=r"onnxruntime isn't installed .pip install") as caught:
        OnnxRunnable(None, None, {}, "float32")
    assert caught.value.error_type == "missing_dependency"
