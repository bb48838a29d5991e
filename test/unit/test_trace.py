"""Operators that ran on the host: the dispatcher's view, the profiler's, the kernel table, and another thread's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from generators.recipes.probe_code import host_functions
from hardware.backends._torch import TorchRunnable
from hardware.backends._trace import (
    has_kernel,
    host_calls_elsewhere,
    host_calls_inside,
    host_products,
    operator_trace,
)
from hardware.backends.base import Execution, ModelInput, Runnable
from hardware.backends.factory import get_backend
from hardware.errors import BackendUnavailable
from hardware.testing.measurement import Measurement, Outputs
from hardware.testing.model_test import ModelTest
from hardware.testing.watched_passes import WatchedPasses

TWO = {"x": np.ones((2, 4), dtype=np.float32)}
THREE = {"x": np.ones((3, 4), dtype=np.float32)}


@pytest.fixture
def place() -> torch.device:
    """The simulated device, which computes with the host's kernels and says so."""
    return get_backend("simulated").torch_device()


class Linear(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"out": self.linear(x)}


def loaded(model: torch.nn.Module, kind: Any = None, **facts: Any) -> Runnable:
    """A model on the simulated device; as a `TorchRunnable`, which doesn't read that device's launch log."""
    backend = get_backend("simulated")
    subject = replace(ModelInput(model=model, task="none", identity="0"), **facts)
    return kind(backend, subject, TWO, "float32") if kind else backend.load(subject, TWO, "float32")


def test_kernels_on_the_host_are_found_inside_an_operator(place: torch.device) -> None:
    there, here, nothing = (torch.ones(2, 3, device=device) for device in (place, "cpu", "meta"))
    assert host_calls_inside(lambda: torch.mm(there, there.t()), "simulated")["aten.mm"] == 1
    assert not host_calls_inside(there.cpu, "simulated"), "a copy is no kernel"
    assert not host_calls_inside(lambda: torch.mm(here, here.t()), "simulated"), "nor is work of the host alone"
    assert not host_calls_inside(lambda: torch.nn.functional.gelu(nothing @ nothing.t()), "meta")

    @torch.library.custom_op("hwcompat_test::linear", mutates_args=())
    def linear(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return (left.cpu() @ right.cpu().t()).to(left.device)

    assert host_calls_inside(lambda: linear(there, there), "simulated")["hwcompat_test.linear"] == 1


def test_the_table_of_kernels_says_what_a_device_has() -> None:
    aten = torch.ops.aten
    assert has_kernel(aten.addmm.default, "cpu")
    assert has_kernel(aten.addmm.default, "cuda") is (torch.version.cuda is not None)
    assert has_kernel(aten.transpose.int, "cuda"), "it is made of other operators on every device"
    assert has_kernel(aten.as_strided_.default, "cpu")
    assert has_kernel(aten.as_strided_.default, "cuda")


def test_an_operator_of_another_device_is_offloaded() -> None:
    here = torch.ones(2, 3)
    with operator_trace("cuda") as trace:
        torch.mm(here, here.t())
    assert trace.offloaded["aten.mm"] == 1
    with operator_trace("cpu") as trace:
        torch.mm(here, here.t())
    assert (trace.native["aten.mm"], trace.dtypes) == (1, {"float32": 1})
    assert not trace.offloaded
    with operator_trace("simulated") as trace:
        torch.tensor(5.0) * 2  # single numbers are no work of the device
    assert not trace.native
    assert not trace.offloaded


def test_only_what_other_threads_compute_of_the_hosts_numbers_counts_there() -> None:
    def work() -> None:
        torch.ones(2, 2) @ torch.ones(2, 2)
        worker = threading.Thread(target=lambda: torch.ones(3) + torch.arange(3).cumsum(0))
        worker.start()
        worker.join()

    assert "aten.add" in (found := host_calls_elsewhere(work, operator_trace("cpu")))
    assert not {"aten.mm", "aten.cumsum"} & set(found)
    assert set(host_products(work)) == {"aten.mm"}


class OnHostWhileLearning(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2.0

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(gradient.cpu()).to(gradient.device)


def test_a_proof_counts_the_host_in_both_passes_and_names_what_it_could_not_run() -> None:
    class Learning(Linear):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"out": OnHostWhileLearning.apply(self.linear(x))}

    class NoDecoding(Linear):
        def generate(self, **inputs: Any) -> None:
            raise RuntimeError("no decoding here")

    class WithoutGradients(Linear):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            if torch.is_grad_enabled():
                raise RuntimeError("no gradients here")
            return super().forward(x)

    proof = loaded(Linear(), TorchRunnable).execution()
    assert proof.offloaded["aten.addmm"] >= 2, "the forward pass, and that of the gradients"
    assert "aten.addmm" not in proof.native
    assert "aten.mm" in proof.offloaded, "the backward pass"
    assert "raise" not in proof.unseen
    assert loaded(Learning(), TorchRunnable).execution().offloaded["aten.gelu"] >= 1
    assert loaded(Learning()).execution().beyond_allowed == {"aten.gelu": 1}
    assert "gradients, raising RuntimeError" in loaded(WithoutGradients(), TorchRunnable).execution().unseen
    proof = loaded(NoDecoding(), TorchRunnable, generates="decoder").execution()
    assert "decoding, raising" in proof.unseen
    assert "gradients" not in proof.unseen


class LeavesForThree(Linear):
    """Computes a batch of three on the host."""

    def __init__(self, *, thread: bool = False) -> None:
        super().__init__()
        self.thread = thread

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        if x.shape[0] != 3:
            return {"out": self.linear(x)}
        found: list[torch.Tensor] = []

        def compute() -> None:
            with torch.no_grad():
                weight, bias = self.linear.weight.cpu(), self.linear.bias.cpu()
                found.append(torch.nn.functional.linear(x.cpu(), weight, bias))

        if self.thread:
            worker = threading.Thread(target=compute)
            worker.start()
            worker.join()
        else:
            compute()
        return {"out": found[0].to(x.device)}


def test_inputs_for_which_a_model_leaves_its_device_are_detected_in_any_thread() -> None:
    runnable = loaded(LeavesForThree())
    assert not runnable.execution().offloaded, "the example stays there"
    assert not runnable.watched(TWO)[1]
    assert "aten.addmm" in runnable.watched(THREE)[1]
    assert "aten.addmm" in loaded(LeavesForThree(), TorchRunnable).watched(THREE)[1]
    runnable = loaded(LeavesForThree(thread=True))
    assert {"aten.linear", "aten.addmm"} <= set(runnable.watched(THREE)[1])
    assert not runnable.watched(TWO)[1]
    runnable = loaded(LeavesForThree(thread=True), TorchRunnable)
    assert "aten.linear" in runnable.watched(THREE)[1]
    assert not runnable.execution().offloaded.get("aten.linear")


class Foreign(Runnable):
    """A runtime from elsewhere; `compute` gets its input and whether its pass is watched."""

    def __init__(self, compute: Callable[[Any, bool], Any]) -> None:
        self.compute, self.is_watched, self.batches = compute, False, [0] * 0

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        self.batches.append(len(inputs["x"]))
        return {"out": self.compute(inputs["x"], self.is_watched)}

    def execution(self) -> Execution:
        return Execution(native={"chip.MatMul": 1}, offloaded={}, dtype="float32", device="chip", unseen="")

    def watched(self, inputs: Mapping[str, Any]) -> tuple[dict[str, Any], Mapping[str, int]]:
        self.is_watched = True
        try:
            return self(**inputs), {}
        finally:
            self.is_watched = False


def test_products_that_a_runtime_hides_in_torch_are_counted_once_for_each_input() -> None:
    def compute(x: Any, watched: bool) -> Any:
        rows = torch.as_tensor(x)
        return (rows @ rows.t() if len(rows) == 3 else rows).numpy()

    passes, runnable = WatchedPasses(), Foreign(compute)
    done = passes.run(runnable, THREE)
    assert done.outputs["out"].shape == (3, 3)
    assert done.latency_ms > 0
    assert done.left == {"aten.mm": 1}
    runnable.batches.clear()
    assert passes.run(runnable, TWO).left == {}
    assert runnable.batches == [2, 2], "an ordinary pass and a watched one"
    passes.run(runnable, TWO)
    assert runnable.batches == [2, 2, 2]
    passes.run(runnable, {"x": TWO["x"] + 1})
    assert len(runnable.batches) == 5


@pytest.mark.parametrize("right_when_watched", [True, False])
def test_the_watched_pass_and_the_ordinary_one_are_both_compared(right_when_watched: bool) -> None:
    runnable = Foreign(lambda x, watched: x * (1.0 if watched is right_when_watched else 2.0))
    done = WatchedPasses().run(runnable, TWO)
    assert done.watched is not None
    assert not np.array_equal(done.outputs["out"], done.watched["out"])
    case = object.__new__(ModelTest)
    case.__dict__ |= {"runnable": runnable, "required": ("out",), "measured": Measurement()}
    case.runnable.gives_all = True
    got = Outputs(arrays=done.outputs, watched=done.watched, masks={}, inputs=TWO)
    assert case.difference(got, Outputs(arrays={"out": TWO["x"]}, masks={}, inputs=TWO)) > 0.1


def test_a_backend_whose_device_is_another_is_refused() -> None:
    class Elsewhere(type(get_backend("simulated"))):  # type: ignore[misc]
        def torch_device(self) -> torch.device:
            return torch.device("cpu")

    subject = ModelInput(model=Linear(), task="none", identity="0")
    with pytest.raises(BackendUnavailable, match="its device is cpu"):
        Elsewhere(get_backend("simulated").target).load(subject, TWO, "float32")


def test_functions_of_a_model_that_would_compute_on_the_host_are_found_on_the_cpu() -> None:
    class Model(torch.nn.Module):
        """A weight that moves with the model, and a table that doesn't."""

        def __init__(self, compute: Callable[[Any, Any], Any]) -> None:
            super().__init__()
            self.compute, self.table = compute, torch.ones(3)
            self.weight = torch.nn.Parameter(torch.ones(3))
            self.register_buffer("kept", torch.ones(3))

        def forward(self, x: Any) -> Any:
            return self.compute(self, x)

    computed: list[tuple[Callable[[Any, Any], Any], set[str]]] = [
        (lambda m, x: x * m.weight + torch.arange(3, device=x.device), set()),
        (lambda m, x: x + torch.zeros(3, device=m.weight.device) + m.kept, set()),
        (lambda m, x: x + torch.ones_like(x) + x.new_zeros(3), set()),
        (lambda m, x: x * torch.tensor(2.0) + x.sum().item(), set()),
        (lambda m, x: x[:, torch.tensor([0, 2], device=x.device)], set()),
        (lambda m, x: x[:, [0, 2]], set()),
        (lambda m, x: x + torch.zeros(3, device=str(x.device)), set()),
        (lambda m, x: x.clone().mul_(2).add_(m.weight), set()),
        (lambda m, x: x + torch.arange(3).to(x.device), {"arange", "to"}),
        (lambda m, x: x + (torch.ones(3) * 2).to(x), {"ones", "mul", "to"}),
        (lambda m, x: x + torch.zeros(3, device="cpu").to(x.device), {"zeros", "to"}),
        (lambda m, x: x + m.table.type_as(x), {"type_as"}),
        (lambda m, x: torch.stack([x.sum()] * len(x[0].tolist())), {"tolist"}),
        (lambda m, x: x.to("cpu") * 2, {"to", "mul"}),
    ]
    x = torch.ones(2, 3)
    for number, (compute, wanted) in enumerate(computed):
        model = Model(compute)
        found = host_functions(model, [x], lambda model=model: model(x))
        assert set(found) == wanted, number
