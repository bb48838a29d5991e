"""Backends that run modules: the simulated device, which breaks exactly as its fault says, and device calls."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from optimized_modules import Text

from hardware import known_answer
from hardware.backends.base import ModelInput, Unsupported
from hardware.backends.factory import BackendFactory, built_in_targets, get_backend, get_optimizer
from hardware.backends.simulated import FAULT_VARIABLE
from hardware.errors import BackendUnavailable, UsageError
from hardware.legacy import get_device_info_dict, optimize_legacy
from hardware.optimization import CPUOptimizer
from hardware.target import Target
from hardware.testing.seeded_weights import fill

ROOT = Path(__file__).parents[2]
INPUTS = {"x": np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8)}
TOKENS = {"input_ids": np.arange(14).reshape(2, 7), "attention_mask": np.array([[1] * 7, [1] * 5 + [0] * 2])}


class Stopped(BaseException):
    """Stands for the end of a process."""


class Two(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"out": self.norm(self.first(x))}


def loaded(precision: str = "float32", target: str = "simulated") -> Any:
    subject = ModelInput(model=fill(Two()), task="none", identity="0")
    return get_backend(target).load(subject, INPUTS, precision)


def language_model(name: str) -> Any:
    """A small bert or gpt2 on the simulated device."""
    import transformers

    if name == "bert":
        config = transformers.BertConfig(
            vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
        )
        built = transformers.BertForMaskedLM(config)
    else:
        config = transformers.GPT2Config(
            vocab_size=32, n_embd=16, n_layer=1, n_head=2, n_positions=32, bos_token_id=1, eos_token_id=1
        )
        built = transformers.GPT2LMHeadModel(config)
    subject = ModelInput(model=fill(built.eval()), task="none", identity="0")
    return get_backend("simulated").load(subject, TOKENS, "float32")


@pytest.fixture
def break_it(monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda fault: monkeypatch.setenv(FAULT_VARIABLE, fault)


@pytest.fixture
def place() -> torch.device:
    return get_backend("simulated").torch_device()


def test_without_a_fault_it_computes_what_the_cpu_computes() -> None:
    want, runnable = loaded(target="cpu"), loaded()
    np.testing.assert_array_equal(runnable(**INPUTS)["out"], want(**INPUTS)["out"])
    got, expected = runnable.gradients(INPUTS), want.gradients(INPUTS)
    assert set(got) == {"first.weight", "first.bias", "norm.weight", "norm.bias"}
    for name, value in expected.items():
        np.testing.assert_array_equal(got[name], value)
    assert loaded("bfloat16").execution().dtype == "bfloat16"
    with pytest.raises(Unsupported, match="int4") as caught:
        loaded("int4")
    assert caught.value.error_type == "unsupported_dtype"


def test_the_proof_names_what_ran_and_is_the_same_however_often_it_is_made(break_it: Any) -> None:
    runnable = loaded()
    proof = runnable.execution()
    assert proof.native["aten.addmm"] == 2  # a forward pass, and one for gradients
    assert proof.native["aten.native_layer_norm"] == 2
    assert proof.offloaded == {}
    assert proof.dtype == "float32"
    assert "simulated" in proof.unseen
    assert runnable.execution() == proof
    assert runnable.conditions["device"] == "simulated"
    assert "fault" not in runnable.conditions
    break_it("wrong:aten.mm")
    assert loaded().conditions["fault"] == "wrong:aten.mm"


def test_a_fault_changes_what_it_says_and_nothing_else(break_it: Any) -> None:
    right = loaded()(**INPUTS)["out"]
    break_it("wrong:aten.native_layer_norm")
    np.testing.assert_allclose(loaded()(**INPUTS)["out"], right * 1.01, rtol=1e-5)
    break_it("nan:aten.addmm")
    assert np.isnan(loaded()(**INPUTS)["out"]).any()
    break_it("nan:aten.convolution")
    np.testing.assert_array_equal(loaded()(**INPUTS)["out"], right)
    break_it("oom")
    with pytest.raises(torch.OutOfMemoryError):
        loaded()(**INPUTS)
    break_it("host:aten.addmm")
    runnable = loaded()
    np.testing.assert_array_equal(runnable(**INPUTS)["out"], right)
    assert runnable.execution().beyond_allowed == {"aten.addmm": 2}
    assert "aten.addmm" not in runnable.execution().native


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_each_wrong_result_reaches_the_logits_of_a_language_model(break_it: Any, name: str) -> None:
    right = language_model(name)(**TOKENS)["logits"]
    own = {"bert": ("gelu",), "gpt2": ("mm", "mul", "split", "tanh")}[name]
    both = ("embedding", "native_layer_norm", "addmm", "add", "view", "transpose", "t", "bmm", "_safe_softmax")
    for operator in (f"aten.{one}" for one in (*both, *own)):
        break_it(f"nan:{operator}")
        assert np.isnan(language_model(name)(**TOKENS)["logits"]).any(), operator
        break_it(f"wrong:{operator}")
        wrong = language_model(name)(**TOKENS)["logits"]
        assert np.isfinite(wrong).all(), operator
        assert not np.array_equal(wrong, right), operator
        break_it(f"host:{operator}")
        runnable = language_model(name)
        np.testing.assert_array_equal(runnable(**TOKENS)["logits"], right)
        assert set(runnable.execution().offloaded) == {operator}


def test_a_crash_aborts_a_hang_sleeps_and_a_full_device_raises(break_it, monkeypatch):
    def stop(*_: object) -> None:
        raise Stopped

    makers = {"": loaded, ":aten.gelu": lambda: language_model("bert"), ":aten.split": lambda: language_model("gpt2")}
    for operator, make in makers.items():
        for kind, module, call in (("crash", os, "abort"), ("hang", time, "sleep"), ("oom", None, "")):
            break_it(f"{kind}{operator}")
            runnable = make()
            with monkeypatch.context() as patch:
                if module is not None:
                    patch.setattr(module, call, stop)
                with pytest.raises(torch.OutOfMemoryError if module is None else Stopped):
                    runnable(**(TOKENS if operator else INPUTS))


def test_the_known_answer_shows_a_fault(break_it: Any) -> None:
    assert known_answer.agrees(get_backend("simulated").known_answer())
    for operator in ("mm", "tanh", "sum"):
        break_it(f"nan:aten.{operator}")
        assert not known_answer.agrees(get_backend("simulated").known_answer()), operator
    break_it("oom")
    with pytest.raises(torch.OutOfMemoryError):
        get_backend("simulated").known_answer()


def test_nan_goes_into_one_row_of_an_expanded_tensor_and_nothing_into_an_empty_one(break_it: Any) -> None:
    break_it("nan:aten.expand")
    device = get_backend("simulated").torch_device()
    spoiled = torch.ones(4, device=device).expand(3, 4)
    assert spoiled.cpu().isnan().any(dim=1).tolist() == [False, False, True]
    assert torch.ones(1, 2, device=device).expand(0, 2).shape == (0, 2)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_a_saved_and_loaded_model_computes_the_same_on_the_device(tmp_path: Path, name: str) -> None:
    runnable = language_model(name)
    want = runnable(**TOKENS)["logits"]
    again = runnable.save_and_reload(tmp_path)
    np.testing.assert_array_equal(again(**TOKENS)["logits"], want)
    np.testing.assert_array_equal(runnable(**TOKENS)["logits"], want)
    assert {p.device.type for one in (runnable, again) for p in one.model.parameters()} == {"simulated"}


def test_operations_of_torch_behind_its_dispatcher_are_right(place: torch.device) -> None:
    whole = torch.tensor([0, 2, 2, 1], dtype=torch.int32).to(place)
    assert torch.histc(whole, bins=3, min=0, max=2).cpu().tolist() == [1, 1, 2], "as on other accelerators"
    rows = torch.arange(6.0).reshape(2, 3)
    there, columns = rows.to(place), torch.tensor([2, 0])
    assert there.tolist() == rows.tolist()
    assert there[:, columns].cpu().equal(rows[:, columns])  # places may lie on the host
    assert torch.tensor([there[1, 1]], device=place).cpu().tolist() == [4.0]
    there[torch.tensor([1])] = 7.0
    assert there[1].tolist() == [7.0] * 3

    def filtered(x: torch.Tensor) -> torch.Tensor:
        spectrum = torch.fft.rfft(x * 1.0)
        return torch.fft.irfft(spectrum * torch.conj(spectrum * (2 - 1j)), n=3)

    want, got = rows.clone().requires_grad_(), rows.to(place).requires_grad_()
    filtered(want).square().sum().backward()
    filtered(got).square().sum().backward()
    np.testing.assert_allclose(filtered(got).detach().cpu().numpy(), filtered(want).detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(got.grad.cpu().numpy(), want.grad.numpy(), rtol=1e-5)
    layer, values = torch.nn.Linear(2, 3).to(place), torch.arange(20.0).reshape(5, 4)
    layer.weight.data = values.to(place)
    assert layer.weight.shape == (5, 4)
    assert torch.equal(layer.weight.detach().cpu(), values)
    assert torch.equal(layer.weight.data.cpu(), values)
    assert f"{layer.weight.data.sum():.1f}" == "190.0"


GRADIENTS = """
from types import SimpleNamespace
import torch
from hardware.cell import Cell
from hardware.testing.pytest_plugin import _register_devices
suites = [SimpleNamespace(cell=Cell.parse(f"bert/fill-mask/{name}/float32")) for name in ("cpu", "simulated")]
_register_devices(suites)
torch.ones(3, requires_grad=True).sum().backward()  # a suite on the host comes first
from hardware.backends.factory import BackendFactory, built_in_targets, get_backend, get_optimizer
assert get_backend("simulated").unavailable() == ""
there = torch.ones(3).to("simulated").requires_grad_()
(there * there).sum().backward()
print(there.grad.cpu().tolist())
"""


def test_a_device_that_is_registered_before_the_first_gradient_has_gradients() -> None:
    done = subprocess.run([sys.executable, "-c", GRADIENTS], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[2.0, 2.0, 2.0]", done.stderr[-500:]


def test_operators_that_a_model_brings_run_where_they_are_made_for(place: torch.device) -> None:
    library = torch.library.Library("hwcompat_brought", "DEF")
    for name, key, compute in (
        ("anywhere", "CompositeExplicitAutograd", lambda x: x * 2),
        ("on_host", "CPU", lambda x: x * 2),
        ("aside", "CompositeExplicitAutograd", lambda x: (x.cpu() * 2).to(x.device)),
    ):
        library.define(f"{name}(Tensor x) -> Tensor")
        library.impl(name, compute, key)
    brought, device = torch.ops.hwcompat_brought, get_backend("simulated")
    there = torch.ones(3, device=device.torch_device())
    try:
        before = device.ledger["aten.mul"]
        assert brought.anywhere(there).tolist() == [2.0, 2.0, 2.0]
        assert device.ledger["aten.mul"] == before + 1, "it is made of torch's operators"
        assert brought.aside(there).device == there.device
        assert brought.aside(there).tolist() == [2.0, 2.0, 2.0]
        assert device.ledger["aten.mul"] == before + 1, "what is copied to the host is computed there"
        assert brought.on_host(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]
        with pytest.raises(NotImplementedError, match="simulated has no kernel for hwcompat_brought::on_host"):
            brought.on_host(there)
    finally:
        library._destroy()


def test_tensors_and_what_holds_them_go_to_the_device() -> None:
    backend = get_backend("simulated")
    moved = backend.to_device({"a": torch.ones(2), "b": [torch.zeros(1), "text"], "c": 3})
    assert [moved["a"].device.type, moved["b"][0].device.type] == ["simulated"] * 2
    assert (moved["b"][1:], moved["c"]) == (["text"], 3)
    assert next(backend.to_device(Text()).parameters()).device.type == "simulated"
    backend.synchronize()
    assert backend.device_count == 1


# Other backends whose runtimes are asked


def test_what_is_here_has_devices_and_what_is_missing_a_reason(monkeypatch):
    monkeypatch.setattr("hardware.backends.factory.known_targets", lambda: ("cpu", "simulated", "cuda"))
    found = BackendFactory.get_all_backend_info()
    (processor,) = found["cpu"]["devices"]
    assert found["cpu"]["available"]
    assert found["simulated"]["available"]
    assert processor["total_memory_bytes"] > 2**30
    assert "not found" in get_backend(Target(name="cpu", index=7)).unavailable()
    for name in built_in_targets():  # an unused backend closes, whether its device is here or not
        with get_backend(Target(name=name)) as backend:
            assert name == backend.BACKEND_NAME
    if torch.version.cuda or torch.version.hip:
        pytest.skip("this torch is built for a GPU")
    why = "this torch is built without CUDA"
    assert found["cuda"] == {"available": False, "class": "NVIDIABackend", "reason": why, "devices": []}
    info = get_backend("nvidia").get_device_info()
    assert (info.vendor, info.is_available, info.reason) == ("nvidia", False, why)
    assert not get_backend(Target(name="rocm")).is_available
    assert not get_backend("cuda:99").is_available
    missing = get_backend("cuda")
    assert missing.device_count == 0
    with pytest.raises(BackendUnavailable, match="cuda:0 not found"):
        missing.set_device(0)
    with pytest.raises(BackendUnavailable, match="built without CUDA"):
        missing.prepare_model(torch.nn.Linear(2, 2))


def test_a_runtime_of_graphs_prepares_and_optimizes_no_modules():
    backend = get_backend("openvino")
    model = torch.nn.Linear(2, 2)
    assert backend.prepare_model(model, "O3") is model
    assert "load() compiles them" in backend.optimized.warnings[0]
    assert backend.device_count == 1
    assert type(get_optimizer("cpu")) is CPUOptimizer
    with pytest.raises(UsageError, match="no optimizer for 'openvino'"):
        get_optimizer("openvino")


def test_older_names_work_and_say_what_to_use():
    with pytest.warns(DeprecationWarning, match=r"get_backend\(name\).get_device_info"):
        assert get_device_info_dict("cpu") == get_backend("cpu").get_device_info().to_dict()
    with pytest.warns(DeprecationWarning, match="prepare_model"):
        assert isinstance(optimize_legacy(torch.nn.Linear(2, 2), "none", "cpu"), torch.nn.Linear)
