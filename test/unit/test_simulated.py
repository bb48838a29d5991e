"""The simulated device: it obeys the whole contract, and breaks in exactly the way that it is told to."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardware import known_answer
from hardware.backends.base import ModelSubject, Unsupported
from hardware.backends.factory import get_backend
from hardware.backends.simulated import FAULT_KINDS, FAULT_VARIABLE, SimulatedFault
from hardware.cell import Cell
from hardware.detection import detect
from hardware.errors import UsageError
from hardware.evidence.versions import relevant_versions, versions_of

INPUTS = {"x": np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8)}


class Stopped(BaseException):
    """Stands for the end of a process."""


def model() -> Any:
    import torch

    from hardware.testing.seeded_weights import fill

    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(8, 8)
            self.norm = torch.nn.LayerNorm(8)

        def forward(self, x):
            return {"out": self.norm(self.first(x))}

    return fill(Two())


def loaded(precision: str = "float32") -> Any:
    subject = ModelSubject(model=model(), task="none", identity="0")
    return get_backend("simulated").load(subject, INPUTS, precision)


def break_it(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    monkeypatch.setenv(FAULT_VARIABLE, fault)


def test_without_a_fault_it_computes_what_the_cpu_computes():
    want = get_backend("cpu").load(ModelSubject(model=model(), task="none", identity="0"), INPUTS, "float32")
    np.testing.assert_array_equal(loaded()(**INPUTS)["out"], want(**INPUTS)["out"])


def test_the_proof_names_what_ran_and_says_what_it_cannot_see():
    proof = loaded().execution()
    assert proof.native["aten.addmm"] == 2  # a forward pass, and one for gradients
    assert proof.native["aten.native_layer_norm"] == 2
    assert proof.offloaded == {}
    assert proof.dtype == "float32"
    assert "simulated" in proof.unseen


def test_every_result_says_that_the_device_is_simulated(monkeypatch):
    assert loaded().conditions["device"] == "simulated"
    assert "fault" not in loaded().conditions
    break_it(monkeypatch, "wrong:aten.mm")
    assert loaded().conditions["fault"] == "wrong:aten.mm"


def test_a_wrong_kernel_changes_the_output_a_little(monkeypatch):
    right = loaded()(**INPUTS)["out"]
    break_it(monkeypatch, "wrong:aten.native_layer_norm")
    np.testing.assert_allclose(loaded()(**INPUTS)["out"], right * 1.01, rtol=1e-5)


def test_a_nan_kernel_gives_nan(monkeypatch):
    break_it(monkeypatch, "nan:aten.addmm")
    assert np.isnan(loaded()(**INPUTS)["out"]).any()


TOKENS = {
    "input_ids": np.arange(14).reshape(2, 7),
    "attention_mask": np.array([[1] * 7, [1] * 5 + [0] * 2]),
}


def language_model(name: str) -> Any:
    """A small bert or gpt2 on the simulated device."""
    import transformers

    from hardware.testing.seeded_weights import fill

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
    subject = ModelSubject(model=fill(built.eval()), task="none", identity="0")
    return get_backend("simulated").load(subject, TOKENS, "float32")


WITH_NUMBERS = ("embedding", "native_layer_norm", "addmm", "add", "view", "transpose", "t")
OPERATORS = [
    *(("bert", f"aten.{name}") for name in (*WITH_NUMBERS, "gelu")),
    *(("gpt2", f"aten.{name}") for name in (*WITH_NUMBERS, "mm", "mul", "split", "tanh")),
    *((name, operator) for name in ("bert", "gpt2") for operator in ("aten.bmm", "aten._safe_softmax")),
]


@pytest.mark.parametrize(("name", "operator"), OPERATORS)
def test_each_kind_of_wrong_result_reaches_the_logits_of_a_language_model(monkeypatch, name, operator):
    right = language_model(name)(**TOKENS)["logits"]
    break_it(monkeypatch, f"nan:{operator}")
    assert np.isnan(language_model(name)(**TOKENS)["logits"]).any()
    break_it(monkeypatch, f"wrong:{operator}")
    wrong = language_model(name)(**TOKENS)["logits"]
    assert np.isfinite(wrong).all()
    assert not np.array_equal(wrong, right)
    break_it(monkeypatch, f"host:{operator}")
    runnable = language_model(name)
    np.testing.assert_array_equal(runnable(**TOKENS)["logits"], right)
    assert set(runnable.execution().offloaded) == {operator}


@pytest.mark.parametrize(
    ("kind", "module", "call"), [("crash", os, "abort"), ("hang", time, "sleep"), ("oom", None, "")]
)
@pytest.mark.parametrize(("name", "operator"), [("bert", "aten.gelu"), ("gpt2", "aten.split")])
def test_each_kind_of_break_stops_a_language_model(monkeypatch, kind, module, call, name, operator):
    import torch

    def stop(*_: object) -> None:
        raise Stopped

    break_it(monkeypatch, f"{kind}:{operator}")
    runnable = language_model(name)
    if module is not None:
        monkeypatch.setattr(module, call, stop)
    with pytest.raises((Stopped, torch.OutOfMemoryError)):
        runnable(**TOKENS)


@pytest.mark.parametrize("operator", ["aten.mm", "aten.tanh", "aten.sum"])
def test_a_nan_kernel_does_not_give_the_known_answer(monkeypatch, operator):
    break_it(monkeypatch, f"nan:{operator}")
    assert not known_answer.agrees(get_backend("simulated").known_answer())


def test_nan_is_put_into_one_row_of_what_was_expanded_and_nothing_into_what_is_empty(monkeypatch):
    import torch

    break_it(monkeypatch, "nan:aten.expand")
    device = get_backend("simulated").torch_device()
    spoiled = torch.ones(4, device=device).expand(3, 4)
    empty = torch.ones(1, 2, device=device).expand(0, 2)
    assert spoiled.cpu().isnan().any(dim=1).tolist() == [False, False, True]
    assert empty.shape == (0, 2)


def test_a_fault_in_an_operator_that_never_runs_changes_nothing(monkeypatch):
    right = loaded()(**INPUTS)["out"]
    break_it(monkeypatch, "nan:aten.convolution")
    np.testing.assert_array_equal(loaded()(**INPUTS)["out"], right)


def test_a_full_device_is_told_as_out_of_memory(monkeypatch):
    import torch

    break_it(monkeypatch, "oom")
    with pytest.raises(torch.OutOfMemoryError):
        loaded()(**INPUTS)


@pytest.mark.parametrize(("kind", "module", "name"), [("crash", os, "abort"), ("hang", time, "sleep")])
def test_a_crash_aborts_and_a_hang_sleeps(monkeypatch, kind, module, name):
    def stop(*_: object) -> None:
        raise Stopped

    break_it(monkeypatch, kind)
    runnable = loaded()
    monkeypatch.setattr(module, name, stop)
    with pytest.raises(Stopped):
        runnable(**INPUTS)


def test_an_operator_that_ran_on_the_host_is_missing_in_the_ledger_though_numbers_are_right(monkeypatch):
    right = loaded()(**INPUTS)["out"]
    break_it(monkeypatch, "host:aten.addmm")
    runnable = loaded()
    np.testing.assert_array_equal(runnable(**INPUTS)["out"], right)
    assert runnable.execution().beyond_allowed == {"aten.addmm": 2}
    assert "aten.addmm" not in runnable.execution().native


def test_the_proof_is_the_same_however_often_it_is_taken():
    runnable = loaded()
    runnable(**INPUTS)
    assert runnable.execution() == runnable.execution()


def test_the_known_answer_is_known_and_a_full_device_does_not_give_it(monkeypatch):
    import torch

    assert known_answer.agrees(get_backend("simulated").known_answer())
    break_it(monkeypatch, "oom")
    with pytest.raises(torch.OutOfMemoryError):
        get_backend("simulated").known_answer()


def test_half_precision_computes_in_half_precision():
    assert loaded("bfloat16").execution().dtype == "bfloat16"


def test_a_precision_that_it_lacks_is_unsupported():
    with pytest.raises(Unsupported, match="int4") as caught:
        loaded("int4")
    assert caught.value.error_type == "unsupported_dtype"


def test_gradients_are_those_of_the_cpu():
    want = get_backend("cpu").load(ModelSubject(model=model(), task="none", identity="0"), INPUTS, "float32")
    got, expected = loaded().gradients(INPUTS), want.gradients(INPUTS)
    assert set(got) == {"first.weight", "first.bias", "norm.weight", "norm.bias"}
    for name, value in expected.items():
        np.testing.assert_array_equal(got[name], value)


@pytest.mark.parametrize("kind", FAULT_KINDS)
def test_each_kind_of_fault_parses_and_prints_back(kind):
    for text in (kind, f"{kind}:aten.mm"):
        assert str(SimulatedFault.parse(text)) == text


def test_a_seed_always_chooses_the_same_operator_and_seeds_differ():
    assert SimulatedFault.parse("wrong@7") == SimulatedFault.parse("wrong@7")
    assert len({SimulatedFault.parse(f"wrong@{seed}").operator for seed in range(30)}) > 3


def test_a_fault_without_an_operator_hits_those_with_parameters_only():
    fault = SimulatedFault.parse("wrong")
    assert fault.hits("aten.addmm")
    assert not fault.hits("aten.view")
    assert not SimulatedFault.parse("wrong:aten.mm").hits("aten.addmm")


@pytest.mark.parametrize("text", ["", "wrng", "wrong:", "wrong@", "wrong@x", "wrong:aten mm", "crash;ls", "CRASH"])
def test_what_is_no_fault_is_refused_with_the_known_ones(text):
    with pytest.raises(UsageError, match=r"no fault of the simulated device.*Known: wrong, nan"):
        SimulatedFault.parse(text)


def test_a_misspelt_fault_is_offered_the_right_one(monkeypatch):
    break_it(monkeypatch, "crsh:aten.mm")
    with pytest.raises(UsageError, match="Did you mean 'crash'"):
        get_backend("simulated")


def test_evidence_of_a_device_that_was_told_to_break_expires_with_the_fault(monkeypatch):
    inventory = detect()
    cell = Cell.parse("bert/fill-mask/simulated/float32")
    whole = relevant_versions(cell, versions_of(inventory))
    monkeypatch.setenv("HWCOMPAT_SIMULATED_FAULT", "wrong:aten.mm")
    assert relevant_versions(cell, versions_of(inventory)) != whole


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_what_is_saved_and_loaded_computes_the_same_and_the_model_stays_on_the_device(tmp_path, name):
    runnable = language_model(name)
    want = runnable(**TOKENS)["logits"]
    again = runnable.save_and_reload(tmp_path)
    np.testing.assert_array_equal(again(**TOKENS)["logits"], want)
    np.testing.assert_array_equal(runnable(**TOKENS)["logits"], want)
    assert {p.device.type for one in (runnable, again) for p in one.model.parameters()} == {"simulated"}


def test_whole_numbers_are_counted_as_on_other_accelerators():
    import torch

    there = torch.tensor([0, 2, 2, 1], dtype=torch.int32).to(get_backend("simulated").torch_device())
    assert torch.histc(there, bins=3, min=0, max=2).cpu().tolist() == [1, 1, 2]


def test_what_torch_reads_and_marks_behind_its_dispatcher_is_right():
    import torch

    get_backend("simulated").load(ModelSubject(model=model(), task="none", identity="0"), INPUTS, "float32")
    place, rows = torch.device("simulated", 0), torch.arange(6.0).reshape(2, 3)
    there, columns = rows.to(place), torch.tensor([2, 0])
    assert there.tolist() == rows.tolist()
    assert there[:, columns].cpu().equal(rows[:, columns])  # places may lie on the host
    assert torch.tensor([there[1, 1]], device=place).cpu().tolist() == [4.0]
    there[torch.tensor([1])] = 7.0
    assert there[1].tolist() == [7.0] * 3

    def turned(x):
        spectrum = torch.fft.rfft(x * 1.0)
        return torch.fft.irfft(spectrum * torch.conj(spectrum * (2 - 1j)), n=3)

    want, got = rows.clone().requires_grad_(), rows.to(place).requires_grad_()
    turned(want).square().sum().backward()
    turned(got).square().sum().backward()
    np.testing.assert_allclose(turned(got).detach().cpu().numpy(), turned(want).detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(got.grad.cpu().numpy(), want.grad.numpy(), rtol=1e-5)


def test_a_tensor_takes_over_the_bytes_of_another_with_its_shape():
    import torch

    place = get_backend("simulated").torch_device()
    layer, other = torch.nn.Linear(2, 3).to(place), torch.arange(20.0).reshape(5, 4).to(place)
    layer.weight.data = other
    assert layer.weight.shape == (5, 4)
    assert torch.equal(layer.weight.detach().cpu(), torch.arange(20.0).reshape(5, 4))
    assert torch.equal(layer.weight.data.cpu(), torch.arange(20.0).reshape(5, 4))
    assert f"{other.sum():.1f}" == "190.0"


ROOT = Path(__file__).parents[2]

GRADIENTS = """
from types import SimpleNamespace
import torch
from hardware.cell import Cell
from hardware.testing.pytest_plugin import _register_devices
suites = [SimpleNamespace(cell=Cell.parse(f"bert/fill-mask/{name}/float32")) for name in ("cpu", "simulated")]
if REGISTERED:
    _register_devices(suites)
torch.ones(3, requires_grad=True).sum().backward()  # a suite on the host comes first
from hardware.backends.factory import get_backend
assert get_backend("simulated").unavailable() == ""
there = torch.ones(3).to("simulated").requires_grad_()
(there * there).sum().backward()
print(there.grad.cpu().tolist())
"""


@pytest.mark.parametrize("registered", [True, False])
def test_a_device_that_is_there_before_the_first_gradient_has_gradients(registered):
    code = GRADIENTS.replace("REGISTERED", str(registered))
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) is registered, done.stderr[-500:]
    assert done.stdout.strip() == ("[2.0, 2.0, 2.0]" if registered else "")


@pytest.fixture(scope="module")
def brought():
    """Operators that a model brings along: made of torch's own for any device, or with a kernel of the host's."""
    import torch

    library = torch.library.Library("hwcompat_brought", "DEF")
    for name, key in (("anywhere", "CompositeExplicitAutograd"), ("on_host", "CPU")):
        library.define(f"{name}(Tensor x) -> Tensor")
        library.impl(name, lambda x: x * 2, key)
    library.define("aside(Tensor x) -> Tensor")
    library.impl("aside", lambda x: (x.cpu() * 2).to(x.device), "CompositeExplicitAutograd")
    yield torch.ops.hwcompat_brought
    library._destroy()


def test_somebodys_operator_made_of_torchs_runs_on_the_device_operator_by_operator(brought):
    import torch

    device = get_backend("simulated")
    there = torch.ones(3, device=device.torch_device())
    before = device.ledger["aten.mul"]
    assert brought.anywhere(there).tolist() == [2.0, 2.0, 2.0]
    assert device.ledger["aten.mul"] == before + 1


def test_what_somebodys_operator_copies_to_the_host_is_computed_there(brought):
    import torch

    device = get_backend("simulated")
    there = torch.ones(3, device=device.torch_device())
    before = device.ledger["aten.mul"]
    assert brought.aside(there).device == there.device
    assert brought.aside(there).tolist() == [2.0, 2.0, 2.0]
    assert device.ledger["aten.mul"] == before


def test_somebodys_kernel_of_the_host_is_none_of_the_devices(brought):
    import torch

    place = get_backend("simulated").torch_device()
    assert brought.on_host(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(NotImplementedError, match="simulated has no kernel for hwcompat_brought::on_host"):
        brought.on_host(torch.ones(3, device=place))
