"""Graph files through the whole job: right ones pass on the runtimes that read them, wrong results fail."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from command_line import CommandLine
from onnx import numpy_helper

from generators.models.given_recipe import draw_inputs
from generators.recipes.graph_file import derive_graph
from hardware.backends.base import FileInput
from hardware.backends.factory import get_backend
from hardware.cell import model_of_weights
from hardware.evidence.record import Outcome
from hardware.target import Target
from hardware.testing import GraphTest
from hardware.testing.graph_files import open_reference
from hardware.testing.graph_weights import graph_hash

pytestmark = pytest.mark.slow


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.out = torch.nn.Linear(8, 5)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.out(torch.nn.functional.gelu(self.conv(pixels)).mean((2, 3)))


class Text(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(30, 16)
        self.layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.layer(self.embed(ids))


def exported(file: Path, model: torch.nn.Module, example: torch.Tensor, name: str) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter that needs no further package is the older one, and says so
        torch.onnx.export(
            model.eval(),
            (example,),
            str(file),
            input_names=[name],
            output_names=["scores"],
            dynamic_axes={name: {0: "batch"}},
            dynamo=False,
        )
    return file


@pytest.fixture
def net(tmp_path: Path) -> Path:
    return exported(tmp_path / "net.onnx", Net(), torch.zeros(1, 3, 12, 12), "pixels")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return exported(tmp_path / "text.onnx", Text(), torch.zeros(1, 6, dtype=torch.int64), "ids")


def as_openvino(file: Path) -> Path:
    import openvino

    target = file.with_suffix(".xml")
    openvino.save_model(openvino.convert_model(str(file)), target, compress_to_fp16=False)
    return target


def cell_of(file: Path, device: str) -> str:
    """A graph file's cell: its name, and the hash of its weights."""
    return f"{model_of_weights(file.name, graph_hash(file))}/graph-forward/{device}/float32"


def test_an_onnx_file_passes_on_cpu_and_openvino(command_line: CommandLine, net: Path, tmp_path: Path) -> None:
    ran = command_line.run(tmp_path, "--model", net, "--device", "cpu", "--device", "openvino", "--run")
    assert ran.code == 0
    for device in ("cpu", "openvino"):
        cell = cell_of(net, device)
        assert set(ran.outcomes(cell).values()) == {Outcome.PASSED}
        assert ran.verdict(cell) == "high"
        assert ran.lines(cell)["matches_reference"].subject == "checkpoint"
    assert "onnx.Conv" in ran.lines(cell_of(net, "cpu"))["runs_natively"].native_ops


def test_a_target_that_reads_no_such_file_says_so(command_line: CommandLine, net: Path, tmp_path: Path) -> None:
    ran = command_line.run(tmp_path, "--model", net, "--device", "simulated", "--run")
    line = ran.lines(cell_of(net, "simulated"))["matches_reference"]
    assert (ran.code, line.outcome, line.error_type) == (1, Outcome.FAILED, "unsupported_format")
    assert ran.verdict(cell_of(net, "simulated")) == "unknown"  # the device was never asked


@pytest.mark.nightly
def test_an_openvino_file_is_held_against_plain_kernels_and_says_that_they_are_float32(
    command_line: CommandLine, text: Path, tmp_path: Path
) -> None:
    file = as_openvino(text)
    ran = command_line.run(tmp_path, "--model", file, "--device", "openvino", "--device", "cpu", "--run")
    cell = cell_of(file, "openvino")
    assert set(ran.outcomes(cell).values()) == {Outcome.PASSED}
    assert ran.verdict(cell) == "medium"
    assert "reference kernels" in ran.lines(cell)["matches_reference"].conditions["reference"]
    assert ran.verdict(cell_of(file, "cpu")) == "unknown"
    assert "--device openvino" in ran.lines(cell_of(file, "cpu"))["matches_reference"].error_message


def test_the_plain_kernels_agree_with_onnx(net: Path, text: Path) -> None:
    for file in (net, text):
        recipe = derive_graph(str(file))
        inputs = draw_inputs(recipe.inputs, recipe.sizes)
        exact, plain = (open_reference(one)(inputs)["scores"] for one in (file, as_openvino(file)))
        assert np.abs(exact - plain).max() < 1e-5 * exact.std()


def changed(file: Path, folder: Path, how: str) -> Path:
    """The file with one weight or one operator other than it was."""
    model = onnx.load(str(file))
    if how == "weight":
        weight = next(one for one in model.graph.initializer if len(one.dims) == 4)
        array = numpy_helper.to_array(weight).copy()
        array.ravel()[0] += 0.05
        weight.CopyFrom(numpy_helper.from_array(array, weight.name))
    else:
        node = next(node for node in model.graph.node if node.op_type in ("Erf", "Gelu"))
        node.op_type = "Tanh"
        del node.attribute[:]
    folder.mkdir()
    onnx.save(model, str(folder / file.name))
    return folder / file.name


def test_a_runtime_that_computes_another_graph_is_detected(
    net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = derive_graph(str(net))
    inputs = draw_inputs(recipe.inputs, recipe.sizes)
    files = {"right": net, **{how: changed(net, tmp_path / how, how) for how in ("weight", "operator")}}
    for device in ("cpu", "openvino"):
        backend = type(get_backend(Target(name=device)))
        plain = backend.load_file
        for how, loaded in files.items():

            def other(self: object, _: FileInput, *how: object, plain: Any = plain, loaded: Path = loaded) -> object:
                return plain(self, FileInput(file=loaded), *how)

            monkeypatch.setattr(backend, "load_file", other)
            cell = cell_of(net, device)
            with GraphTest(
                cell, lambda: net, inputs, gain=None, outputs=recipe.outputs, weights="checkpoint"
            ) as case:
                error = case.error(case.run(inputs), case.reference(inputs))
                assert (error <= case.tolerance) == (how == "right"), (device, how)
