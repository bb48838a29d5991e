"""ONNX files give torch's numbers, and so do operators that are replaced for the converters of ONNX and OpenVINO."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hardware.backends.base import ModelInput, Unsupported
from hardware.evidence.record import Stage
from hardware.export import export_onnx
from hardware.export.convert_model import computed_beforehand
from hardware.export.onnx_export import OnnxModel
from hardware.export.onnx_operators import exportable_operators
from hardware.export.openvino_operators import convertible_operators
from hardware.export.traceable import RULED_OUT, arithmetic_masks
from hardware.export.verify_export import made_for

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

VALUES = {"values": np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)}
functional = torch.nn.functional
SMALLEST = torch.finfo(torch.float32).min


class Model(torch.nn.Module):
    """A function of `values` that gives `output`, or another name."""

    def __init__(self, function: Callable[[Any], Any], output: str = "output") -> None:
        super().__init__()
        self.function, self.output = function, output

    def forward(self, values: Any) -> Any:
        return {self.output: self.function(values)}


class Positions(torch.nn.Module):
    """Adds a constant of one row in front of a normalization, as positions are added to a text."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.position = torch.nn.Parameter(torch.randn(1, 3, 4))
        self.norm = torch.nn.LayerNorm(4)

    def forward(self, values: Any) -> Any:
        return {"output": self.norm(values + self.position)}


class Scaled(torch.nn.Module):
    """Divides tokens by a number that belongs to none of them, such as the size of an image."""

    def forward(self, input_ids: Any, sizes: Any) -> Any:
        return {"output": input_ids / torch.arange(1, int(sizes.max()) + 1).sum()}


def exported(model: Any, values: Any = VALUES, name: str = "") -> tuple[Any, Any, Any]:
    """The export, its graph, and its output for the values."""
    subject = ModelInput(model=model.eval(), task="other", identity=name or type(model).__name__)
    made = export_onnx(subject, values)
    (output,) = OnnxModel(made.folder / "model.onnx", subject)(values).values()
    return made, onnx.load(str(made.folder / "model.onnx")).graph, output


def test_an_export_gives_torchs_numbers_and_is_cached_for_its_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    made, graph, output = exported(Positions())
    with torch.no_grad():
        want = Positions()(torch.as_tensor(VALUES["values"]))["output"].numpy()
    assert np.allclose(output, want, atol=1e-6)
    assert made.conditions() == {"export": "torchscript", "shapes": "static"}
    (added,) = (node for node in graph.node if node.op_type == "Add")
    shapes = {one.name: list(one.dims) for one in graph.initializer}
    assert [shapes[name] for name in added.input if name in shapes] == [[2, 3, 4]], "the shape of the sum"
    other, _, _ = exported(Positions(), {"values": VALUES["values"][:1]})
    assert other.folder != made.folder
    monkeypatch.setattr(torch.onnx, "export", lambda *_, **__: pytest.fail("exported again"))
    assert exported(Positions())[0] == made


def test_a_trace_that_froze_a_value_is_refused() -> None:
    first = float(VALUES["values"][0, 0, 0])
    frozen = Model(lambda values: values * 2 if float(values[0, 0, 0]) == first else values * 3)
    with pytest.raises(Unsupported, match="different numbers than torch for other values") as caught:
        exported(frozen)
    assert (caught.value.error_type, caught.value.stage) == ("conversion_wrong", Stage.CONVERT)


def test_only_a_result_holds_constants_beyond_float16() -> None:
    def ruled_out(values: Any) -> Any:
        return torch.where(values > 0, values, torch.full_like(values, SMALLEST))

    _, graph, _ = exported(Model(lambda values: torch.softmax(ruled_out(values), dim=-1)), name="inside")
    numbers = [onnx.numpy_helper.to_array(one) for one in graph.initializer]
    assert max(float(np.abs(one).max()) for one in numbers if one.dtype == np.float32) == -RULED_OUT
    _, _, output = exported(Model(ruled_out), name="result")
    assert np.array_equal(np.isneginf(output), VALUES["values"] <= 0)


def test_masks_as_sums_mask_what_the_librarys_do() -> None:
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
    rows = want.any(dim=-1)  # a row of padding has no key at all: its result is never used
    assert torch.equal((got == 0)[rows], want[rows])
    assert float(got.min()) >= 3 * RULED_OUT


def put_rows(values: Any) -> Any:
    """Rows where a mask is set, as features of a picture go into a text."""
    found = values.clone()
    found[torch.tensor([True, False, True])] = values[:2] * 2
    return found


def put_number(values: Any) -> Any:
    found = values.clone()
    found[values > 0] = 7.0
    return found


def put_nowhere(values: torch.Tensor) -> torch.Tensor:
    written = values * 2
    written[1, values.shape[1] :] = values[0, 0]
    return written


def written_through(values: Any) -> Any:
    mask = values > 0
    mask |= values < -1
    mask &= values < 2
    return mask * values


def rows_scattered(values: Any) -> Any:
    mask = torch.tensor([True, False, True])[:, None].expand_as(values)
    return values.masked_scatter(mask, values[:2] * 3)


def grouped_heads(values: torch.Tensor) -> torch.Tensor:
    """Four heads of one number, with a key and a value for each two of them."""
    queries = values[None, :, :, None].transpose(1, 2)
    keys = queries[:, :2] * 0.5
    return functional.scaled_dot_product_attention(queries, keys, keys + 1, enable_gqa=True)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "put_rows": put_rows,
    "put_number": put_number,
    "put_nowhere": put_nowhere,
    "written_through": written_through,
    "rows_scattered": rows_scattered,
    "grouped_heads": grouped_heads,
    "masked_scatter": lambda values: values.masked_scatter(values > 0, values.flatten() * 3),
    "nothing_scattered": lambda values: values.masked_scatter(values > 100, values[:0]),
    "counted": lambda values: torch.cumsum(values > 0, dim=-1) * values,
    "rounded": lambda values: values[:, : round(values.shape[1] * 0.6)] * 2,
    "diff": lambda values: torch.diff(values, dim=-1),
    "take_along_dim": lambda values: torch.take_along_dim(values, torch.tensor([[0, 2]]), dim=1),
    "rms_norm": lambda values: functional.rms_norm(values, (4,), torch.arange(4.0), 1e-6),
    "asinh": lambda values: torch.asinh(values),
    "expm1": lambda values: torch.expm1(values),
    "full": lambda values: values[torch.full((2,), 1)],
    "full_of_a_fraction": lambda values: values * torch.full((4,), 1.5),
    "full_in_a_dtype": lambda values: values + torch.full((4,), 3, dtype=torch.float32) // 2,
    "isin": lambda values: torch.isin((values * 2).to(torch.int64), torch.tensor([0, 1])) * values,
    "pooled_without_a_batch": lambda values: functional.max_pool2d(values[None], 2),
    "repeat_interleave": lambda values: values.repeat_interleave(2, dim=-1),
    "averaged_beyond_the_image": lambda values: functional.avg_pool2d(values[None, None], 64, ceil_mode=True),
    "resized": lambda values: functional.interpolate(values[None, None], (2, 7), mode="bilinear", antialias=True),
    "resized_smoothly": lambda values: functional.interpolate(
        values[None, None], (5, 3), mode="bicubic", align_corners=False, antialias=True
    ),
    "patches_cut": lambda values: functional.unfold(values.reshape(1, 1, 2, 6), (2, 3), stride=(2, 3)),
    "patches_that_overlap": lambda values: functional.unfold(values.reshape(1, 1, 2, 6), (2, 3), stride=1),
    "patches_joined": lambda values: functional.fold(values.reshape(1, 6, 2), (2, 6), (2, 3), stride=(2, 3)),
}


def test_replaced_operators_give_torchs_numbers_in_torch_and_in_the_file() -> None:
    values = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    for name, function in FUNCTIONS.items():
        want = function(torch.as_tensor(values))
        with exportable_operators():
            got = function(torch.as_tensor(values))
        assert torch.allclose(got, want, atol=1e-6), name
        assert got.dtype == want.dtype, name
        _, graph, output = exported(Model(function, output="values"), {"values": values}, name)
        assert np.abs(output - want.numpy()).max() < 1e-6, name
        assert not {node.op_type for node in graph.node} & {"NonZero", "ScatterND", "GatherND"}, name


def test_what_the_first_exporter_lacks_the_one_by_torch_export_writes() -> None:
    pytest.importorskip("onnxscript")
    made, _, output = exported(Model(lambda values: torch.fft.fft(values).abs()), name="fft")
    assert np.abs(output - np.abs(np.fft.fft(VALUES["values"]))).max() < 1e-5
    found = made.conditions()
    assert (found["export"], found["shapes"]) == ("dynamo", "static")
    assert "no rule for aten::fft" in found["why_not_exporter"]


def test_numbers_that_belong_to_no_token_can_be_constants() -> None:
    inputs = {"input_ids": np.arange(6).reshape(2, 3), "sizes": np.array([[1, 3]])}
    subject = ModelInput(model=Scaled().eval(), task="other", identity="scaled")
    made = export_onnx(subject, inputs, hold=True)
    assert made.conditions()["held"] == "sizes"
    assert [one.name for one in onnx.load(str(made.folder / "model.onnx")).graph.input] == ["input_ids"]
    others = {**inputs, "sizes": np.array([[1, 4]])}
    for given, divisor in ((inputs, 6), (others, 10)):
        folder = export_onnx(subject, given, hold=True).folder
        (output,) = OnnxModel(folder / "model.onnx", subject)(given).values()
        assert np.allclose(output, inputs["input_ids"] / divisor), "the sizes are those of the inputs"
    assert made_for(inputs) != made_for(others)
    assert export_onnx(subject, inputs).conditions()["held"] == "sizes", "a trace that froze it says so"
    of_rows = {**inputs, "sizes": np.array([[1, 3], [1, 5]])}
    assert export_onnx(subject, of_rows, hold=True).held == "sizes", "rows with sizes of their own"


def test_onnx_runtime_keeps_no_identity_of_the_machine_and_sends_nothing(tmp_path: Path) -> None:
    """From 1.29 on it would, as soon as it is imported."""
    code = "import hardware, onnxruntime; onnxruntime.get_available_providers()"
    # Nothing else of this environment: under CI and in its own tests it sends nothing anyway.
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    root = Path(__file__).parents[2]
    for given, kept in ((code, False), (code.replace("import hardware,", "import"), True)):
        ran = subprocess.run(
            [sys.executable, "-c", given], env=environment, cwd=root, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stderr
        assert bool(list(tmp_path.rglob("deviceid"))) is kept, "without us it does, or this test shows nothing"


# OpenVINO's converter


GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(3, 7, generator=GENERATOR)
WHOLE = torch.randint(-4, 9, (3, 7), generator=GENERATOR)
BAD = X.clone()
BAD[0, 0], BAD[1, 1], BAD[2, 2] = float("nan"), float("inf"), -float("inf")


def _set(key: Any, value: Any) -> Any:
    changed = X.clone()
    changed[key] = value
    return changed


CALLS: dict[str, Callable[[], Any]] = {
    "sum": lambda: torch.sum(X, dim=-1),
    "index_put": lambda: X.index_put((torch.tensor([0]), torch.tensor([1])), torch.tensor([5.0])),
    "avg_pool2d": lambda: functional.avg_pool2d(X[None, None], 9, ceil_mode=True),
    "avg_pool2d within": lambda: functional.avg_pool2d(X[None, None], 3, stride=1, padding=1),
    "diff": lambda: torch.diff(X),
    "diff of rows": lambda: WHOLE.diff(dim=0),
    "diff with a beginning": lambda: torch.diff(WHOLE, prepend=WHOLE[:, :1]),
    "diff of diff": lambda: torch.diff(X, n=2),
    "histc": lambda: torch.histc(WHOLE.float(), bins=6, min=-2, max=7),
    "histc of one value": lambda: torch.histc(torch.zeros(5), bins=1, min=0, max=0),
    "nan_to_num": lambda: BAD.nan_to_num(),
    "nan_to_num by others": lambda: torch.nan_to_num(BAD, nan=2.0, posinf=9.0, neginf=-9.0),
    "floor division": lambda: WHOLE // 3,
    "floor division by a tensor": lambda: WHOLE // torch.tensor(3),
    "div": lambda: torch.div(WHOLE, 4, rounding_mode="floor"),
    "div of fractions": lambda: torch.div(X, 2),
    "divide": lambda: torch.divide(X, 2),
    "subtract": lambda: torch.subtract(X, 2),
    "argmax": lambda: (WHOLE > 3).int().argmax(1),
    "argmax of columns": lambda: WHOLE.argmax(dim=0, keepdim=True),
    "argmax of all": lambda: torch.argmax(WHOLE),
    "isin": lambda: torch.isin(WHOLE, torch.tensor([1, 4])),
    "logit": lambda: torch.special.logit(X.sigmoid(), eps=1e-5),
    "cummax": lambda: torch.cummax(WHOLE, dim=1)[0],
    "cummax, where": lambda: torch.cummax(WHOLE, dim=1)[1],
    "cummin": lambda: torch.cummin(WHOLE, 0)[0],
    "mse_loss": lambda: functional.mse_loss(X, BAD.nan_to_num(0.0, 1.0, 1.0)),
    "unfold": lambda: X.unfold(-1, 3, 2),
    "set by a mask": lambda: _set(WHOLE > 3, -1.0),
    "set rows by a mask": lambda: _set(WHOLE[:, 0] > 0, X[0]),
    "set by a mask, one by one": lambda: _set(WHOLE > 3, X[WHOLE > 3] + 1),
    "set places": lambda: _set((slice(None), [1, -2]), -1.0),
    "set places by a mask of them": lambda: _set((slice(None), [True, *[False] * 6]), -1.0),
    "set places in two rows": lambda: _set((slice(None), torch.tensor([[1], [4]])), -1.0),
    "set one column": lambda: _set((slice(None), 2), X[:, 0]),
    "attention of one head": lambda: functional.scaled_dot_product_attention(*[X[None, None]] * 3, scale=0.3),
    "causal attention of one head": lambda: functional.scaled_dot_product_attention(
        *[X[None, None]] * 3, is_causal=True
    ),
    "attention": lambda: functional.scaled_dot_product_attention(
        X[None], X[None], X[None], (WHOLE[None, :, :3] > -9)
    ),
}


def test_replaced_operators_give_the_same_and_are_restored() -> None:
    before = torch.sum, torch.Tensor.__floordiv__, functional.avg_pool2d, "argmax" in vars(torch.Tensor)
    for name, call in CALLS.items():
        want = call()
        with convertible_operators():
            assert torch.sum is not before[0]
            got = call()
        assert got.dtype == want.dtype, name
        assert got.shape == want.shape, name
        assert torch.allclose(got.double(), want.double(), atol=1e-6), name
    assert before == (
        torch.sum,
        torch.Tensor.__floordiv__,
        functional.avg_pool2d,
        "argmax" in vars(torch.Tensor),
    )
    mask = torch.zeros(1, 3, 3, dtype=torch.bool)
    with convertible_operators():
        out = functional.scaled_dot_product_attention(X[None], X[None], X[None], mask)
    assert torch.isfinite(out).all(), "a row that attends to nothing"


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace:DeprecationWarning")
def test_a_trace_holds_nothing_that_follows_from_constants() -> None:
    sizes, numbers = torch.tensor([[2, 2], [2, 2]]), torch.tensor([1.0, 2.0])

    class Counts(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            with computed_beforehand([sizes]):
                found = torch.unique_consecutive(sizes.flatten())
                assert isinstance(x.shape[0], int)
                return x * found + len({x.shape[0]: 1}[x.shape[0]] * [1])

    class Writes(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            with computed_beforehand([numbers]):
                mine = numbers * 2
                mine[0] = x
                return mine + 1

    traced = torch.jit.trace(Counts(), X)
    assert "unique_consecutive" not in str(traced.graph)
    assert torch.equal(traced(X), X * 2 + 1)
    written = torch.jit.trace(Writes(), torch.tensor(5.0))
    assert written(torch.tensor(7.0)).tolist() == [8.0, 5.0], "a constant that is written into belongs to the trace"
