"""TorchScript files, exported programs and `.tflite` files: right ones agree with float64, faults are seen."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_tflite import write_tflite

from generators.models.given_recipe import GivenRecipe, draw_inputs
from generators.recipes.graph_file import derive_graph
from hardware.backends.base import FileInput
from hardware.backends.factory import get_backend
from hardware.backends.simulated import FAULT_VARIABLE
from hardware.compare import Array
from hardware.errors import BrokenInput, ModelError
from hardware.testing import GraphTest
from hardware.testing.graph_files import open_reference


@pytest.fixture(autouse=True)
def _level_of_messages() -> Iterator[None]:
    """OpenVINO's converter sets the level of the root logger, and the reference restores it."""
    before = logging.root.level
    yield
    assert logging.root.level == before


IDS, MASK = torch.arange(14).reshape(2, 7), torch.tensor([[1] * 7, [1] * 5 + [0] * 2])


class Text(torch.nn.Module):
    """Casts to float32, tensors made inside, and outputs by name, one of whole numbers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(30, 16)
        self.out = torch.nn.Linear(16, 5)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
        rows = self.table(ids) * mask.unsqueeze(-1).to(torch.float32)
        places = torch.arange(ids.shape[1], dtype=torch.float32).unsqueeze(-1) / 3
        hidden = torch.tanh(rows + places).float()
        return {"scores": self.out(hidden.mean(1)), "best": hidden.argmax(-1)}


class Steps(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, steps: int) -> torch.Tensor:
        for _ in range(steps):
            x = torch.tanh(self.layer(x))
        return x


class Remembers(torch.nn.Module):
    """Adds the input of the call before."""

    def __init__(self) -> None:
        super().__init__()
        self.before = torch.zeros(2, 4)
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x + self.before)
        self.before = x
        return y


def scripted(file: Path, model: torch.nn.Module) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated
        torch.jit.script(model.eval()).save(str(file))
    return file


def traced(file: Path, model: torch.nn.Module, *inputs: torch.Tensor) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated
        torch.jit.trace(model, inputs, strict=False, check_trace=False).save(str(file))
    return file


def exported(file: Path, model: torch.nn.Module) -> Path:
    sizes = {0: torch.export.Dim("batch", min=2, max=64), 1: torch.export.Dim("length", min=2, max=64)}
    program = torch.export.export(model.eval(), (IDS, MASK), dynamic_shapes={"ids": sizes, "mask": sizes})
    torch.export.save(program, str(file))
    return file


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    folder = tmp_path_factory.mktemp("programs")
    weights = np.random.default_rng(0).normal(size=(3, 4))
    found = {
        "traced": traced(folder / "text.pt", Text().eval(), IDS, MASK),
        "exported": exported(folder / "text.pt2", Text()),
        "tflite": write_tflite(folder / "small.tflite", weights, np.array([0.1, 0.2, 0.3])),
    }
    (folder / "changed").mkdir()
    other = Text()
    with torch.no_grad():
        other.out.weight[3, 2] += 0.05
    traced(folder / "changed" / "text.pt", other.eval(), IDS, MASK)
    exported(folder / "changed" / "text.pt2", other)
    weights[1, 2] += 0.001
    write_tflite(folder / "changed" / "small.tflite", weights, np.array([0.1, 0.2, 0.3]))
    return found


def made(recipe: GivenRecipe, seed: int = 0, **sizes: int) -> dict[str, Array]:
    return draw_inputs(recipe.inputs, {**recipe.sizes, **sizes}, seed)


def error_of(file: Path, target: str) -> tuple[float, float]:
    """The error and the tolerance on a target, of the given inputs of a file's recipe."""
    recipe = derive_graph(str(file))
    inputs = made(recipe)
    options: dict[str, Any] = {
        "outputs": recipe.outputs,
        "scales": recipe.scales,
        "parts": recipe.parts,
        "float32_costs": recipe.float32_costs,
    }
    cell = f"{file.name}/graph-forward/{target}/float32"
    with GraphTest(cell, lambda: file, inputs, gain=None, weights="checkpoint", **options) as case:
        return case.error(case.run(inputs), case.reference(inputs)), case.tolerance


@pytest.mark.parametrize("kind", ["traced", "exported"])
def test_the_reference_of_a_program_is_float64_throughout(files: Mapping[str, Path], kind: str) -> None:
    recipe = derive_graph(str(files[kind]))
    assert (recipe.outputs, recipe.parameters) == (("scores", "best"), 30 * 16 + 16 * 5 + 5)
    inputs = made(recipe)
    got = open_reference(files[kind])(inputs)
    model, ids, mask = Text().double(), torch.as_tensor(inputs["ids"]), torch.as_tensor(inputs["mask"]).double()
    places = torch.arange(ids.shape[1]).double().unsqueeze(-1) / 3
    hidden = torch.tanh(model.table(ids) * mask.unsqueeze(-1) + places)
    assert np.abs(got["scores"] - model.out(hidden.mean(1)).detach().numpy()).max() < 1e-14
    assert got["best"].dtype.kind == "i"


def test_inputs_are_those_that_the_file_states(files: Mapping[str, Path]) -> None:
    recipe = derive_graph(str(files["traced"]))
    assert [one.shape for one in recipe.inputs.values()] == [("batch", 7)] * 2
    assert (recipe.sizes, recipe.other_sizes) == ({"batch": 2}, {"batch": 3})
    assert (recipe.inputs["ids"].high, recipe.inputs["mask"].high) == (30, 2)  # within the table
    recipe = derive_graph(str(files["exported"]))
    assert (recipe.inputs["ids"].high, recipe.inputs["mask"].high) == (14, 2)  # as in the example of the export
    assert sorted(recipe.sizes.values()) == [2, 7]
    assert sorted(recipe.other_sizes.values()) == [3, 14]


def test_a_scripted_program_needs_arrays_and_takes_numbers(tmp_path: Path) -> None:
    file = scripted(tmp_path / "steps.ts", Steps())
    with pytest.raises(ModelError, match=r"'x' of 'steps.ts' has an unknown shape.*--inputs"):
        derive_graph(str(file))
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    np.savez(tmp_path / "given.npz", x=x, steps=np.int64(2))
    recipe = derive_graph(str(file), str(tmp_path / "given.npz"))
    assert (recipe.inputs["x"].shape, recipe.inputs["steps"].shape) == ((3, 4), ())
    model = Steps().double()
    want = torch.tanh(model.layer(torch.tanh(model.layer(torch.as_tensor(x).double()))))
    got = open_reference(file)({"x": x, "steps": np.int64(2)})["output"]
    assert np.abs(got - want.detach().numpy()).max() < 1e-14


def test_a_program_that_keeps_a_state_is_called_for_the_first_time_in_each_pass(tmp_path: Path) -> None:
    file = scripted(tmp_path / "remembers.jit", Remembers())
    inputs = {"x": np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)}
    loaded = get_backend("cpu").load_file(FileInput(file=file), inputs, "float32")
    first, again, exact = loaded(**inputs), loaded(**inputs), open_reference(file)(inputs)
    assert np.array_equal(first["output"], again["output"])
    assert np.abs(first["output"] - exact["output"]).max() < 1e-6


def test_what_has_no_reference_is_refused_with_the_reason(tmp_path: Path) -> None:
    noisy = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5)).train()
    with pytest.raises(ModelError, match=r"different results each time.*model\.eval\(\)"):
        derive_graph(str(traced(tmp_path / "noisy.pt", noisy, torch.ones(2, 4))))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        packed = torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(torch.nn.Linear(8, 4)), {torch.nn.Linear})
    with pytest.raises(ModelError, match=r"has no reference.*float64.*float32"):
        derive_graph(str(traced(tmp_path / "packed.pt", packed, torch.ones(2, 8))))
    whole = traced(tmp_path / "whole.pt", torch.nn.Linear(4, 4), torch.ones(2, 4)).read_bytes()
    (tmp_path / "other.pt").write_bytes(whole.replace(b"torch.nn", b"torch.xx"))
    with pytest.raises(BrokenInput, match=r"torch can't load 'other\.pt'"):
        derive_graph(str(tmp_path / "other.pt"))


@pytest.mark.parametrize(("kind", "target"), [("traced", "cpu"), ("exported", "cpu"), ("tflite", "openvino")])
def test_a_file_passes_and_another_weight_fails(
    files: Mapping[str, Path], kind: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = files[kind]
    error, limit = error_of(file, target)
    assert error <= limit
    backend: Any = type(get_backend(target))
    changed, plain = FileInput(file=file.parent / "changed" / file.name), backend.load_file
    monkeypatch.setattr(backend, "load_file", lambda self, _, *others: plain(self, changed, *others))
    error, limit = error_of(file, target)
    assert error > limit


def test_a_faulty_device_is_seen(files: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    backend = partial(get_backend, "simulated")
    recipe = derive_graph(str(files["exported"]))
    inputs = made(recipe)
    proof = backend().load_file(FileInput(file=files["exported"]), inputs, "float32").execution()
    assert (proof.offloaded, proof.native["aten.addmm"]) == ({}, 1)
    error, limit = error_of(files["exported"], "simulated")
    assert error <= limit
    monkeypatch.setenv(FAULT_VARIABLE, "wrong:aten.addmm")
    error, limit = error_of(files["exported"], "simulated")
    assert error > limit
    monkeypatch.setenv(FAULT_VARIABLE, "host:aten.addmm")
    proof = backend().load_file(FileInput(file=files["exported"]), inputs, "float32").execution()
    assert "aten.addmm" in proof.offloaded


@pytest.mark.parametrize(("kind", "target"), [("traced", "cpu"), ("exported", "cpu"), ("exported", "simulated")])
def test_a_program_is_the_same_after_it_is_saved_again(
    files: Mapping[str, Path], kind: str, target: str, tmp_path: Path
) -> None:
    inputs = made(derive_graph(str(files[kind])))
    loaded = get_backend(target).load_file(FileInput(file=files[kind]), inputs, "float32")
    again = loaded.save_and_reload(tmp_path)
    assert np.array_equal(loaded(**inputs)["scores"], again(**inputs)["scores"])


def test_nested_and_complex_outputs_are_all_compared(tmp_path: Path) -> None:
    class Spectrum(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.LSTM(8, 6)
            self.register_buffer("table", torch.zeros(9, dtype=torch.bfloat16))

        def forward(self, x: torch.Tensor) -> Any:
            out, state = self.layer(x)
            return torch.fft.fft(out), state

    file = tmp_path / "s.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.trace(Spectrum(), torch.rand(4, 2, 8)).save(str(file))
    recipe = derive_graph(str(file))
    assert set(recipe.outputs) == {"output_0_real", "output_0_imag", "output_1_0", "output_1_1"}
    assert recipe.computes_in == "float32", "one buffer in half precision doesn't decide"
