"""A pass that leaves its device shows, for whichever inputs and in whichever thread it does."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from hardware.backends._torch import TorchRunnable
from hardware.backends._trace import host_calls_elsewhere, host_products, operator_trace
from hardware.backends.base import Execution, ModelSubject, Runnable, coarsest
from hardware.backends.factory import get_backend
from hardware.testing.measurement import Measurement, Outputs
from hardware.testing.model_test import ModelTest
from hardware.testing.watched_passes import WatchedPasses

TWO = {"x": np.ones((2, 4), dtype=np.float32)}
THREE = {"x": np.ones((3, 4), dtype=np.float32)}


class LeavesForThree(torch.nn.Module):
    """Computes a batch of three on the host, where nobody looked."""

    def __init__(self, *, thread: bool = False) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
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


def loaded(kind: Any = None, **facts: Any) -> Runnable:
    backend = get_backend("simulated")
    subject = ModelSubject(model=LeavesForThree(**facts), task="none", identity="0")
    return kind(backend, subject, TWO, "float32") if kind else backend.load(subject, TWO, "float32")


def test_inputs_for_which_a_model_leaves_its_device_are_told_from_others() -> None:
    runnable = loaded()
    assert not runnable.execution().offloaded, "the example stays there"
    assert not runnable.watched(TWO)[1]
    assert "aten.addmm" in runnable.watched(THREE)[1]


def test_another_thread_that_computes_on_the_host_is_seen() -> None:
    left = loaded(thread=True).watched(THREE)[1]
    assert {"aten.linear", "aten.addmm"} <= set(left)
    assert not loaded(thread=True).watched(TWO)[1]


def test_a_device_whose_driver_keeps_no_ledger_is_watched_as_well() -> None:
    assert "aten.addmm" in loaded(TorchRunnable).watched(THREE)[1]
    assert "aten.linear" in loaded(TorchRunnable, thread=True).watched(THREE)[1]
    assert not loaded(TorchRunnable, thread=True).execution().offloaded.get("aten.linear")


def test_only_what_other_threads_compute_of_the_hosts_numbers_counts_there() -> None:
    def work() -> None:
        torch.ones(2, 2) @ torch.ones(2, 2)
        worker = threading.Thread(target=lambda: torch.ones(3) + torch.arange(3).cumsum(0))
        worker.start()
        worker.join()

    assert "aten.add" in (found := host_calls_elsewhere(work, operator_trace("cpu")))
    assert not {"aten.mm", "aten.cumsum"} & set(found)
    assert set(host_products(work)) == {"aten.mm"}


class Pretends(Runnable):
    """A runtime of somebody else's that catches its own error and computes with torch on the host."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        rows = torch.as_tensor(inputs["x"])
        self.asked.append(len(rows))
        return {"out": (rows @ rows.t() if len(rows) == 3 else rows).numpy()}

    def execution(self) -> Execution:
        return Execution(native={"chip.MatMul": 1}, offloaded={}, dtype="float32", device="chip", unseen="")

    def watched(self, inputs: Mapping[str, Any]) -> tuple[dict[str, Any], Mapping[str, int]]:
        return self(**inputs), {}


def test_a_runtime_that_says_nothing_of_torch_is_not_taken_at_its_word() -> None:
    passes, runnable = WatchedPasses(), Pretends()
    done = passes.run(runnable, THREE)
    assert done.outputs["out"].shape == (3, 3)
    assert done.latency_ms > 0
    assert done.left == {"aten.mm": 1}
    assert passes.run(runnable, TWO).left == {}


def test_the_same_inputs_are_watched_once() -> None:
    passes, runnable = WatchedPasses(), Pretends()
    passes.run(runnable, TWO)
    assert runnable.asked == [2, 2]
    passes.run(runnable, TWO)
    assert runnable.asked == [2, 2, 2]
    passes.run(runnable, {"x": TWO["x"] + 1})
    assert len(runnable.asked) == 5


def test_the_coarsest_product_is_the_dtype_of_a_proof() -> None:
    assert coarsest(["float32", "bfloat16", "float32"]) == "bfloat16"
    assert coarsest(["float32", "int64"]) == "float32"
    assert coarsest(["int64"]) == ""


class Acts(Runnable):
    """A runtime that computes rightly only while it is watched, or only while it isn't."""

    def __init__(self, *, right_when_watched: bool) -> None:
        self.right_when_watched = right_when_watched
        self.is_watched = False

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        right = self.is_watched is self.right_when_watched
        return {"out": inputs["x"] * (1.0 if right else 2.0)}

    def execution(self) -> Execution:
        return Execution(native={"chip.Mul": 1}, offloaded={}, dtype="float32", device="chip", unseen="")

    def watched(self, inputs: Mapping[str, Any]) -> tuple[dict[str, Any], Mapping[str, int]]:
        self.is_watched = True
        try:
            return self(**inputs), {}
        finally:
            self.is_watched = False


@pytest.mark.parametrize("right_when_watched", [True, False])
def test_the_watched_pass_and_the_ordinary_one_are_both_compared(right_when_watched: bool) -> None:
    done = WatchedPasses().run(Acts(right_when_watched=right_when_watched), TWO)
    assert done.watched is not None
    assert not np.array_equal(done.outputs["out"], done.watched["out"])
    case = object.__new__(ModelTest)
    case.__dict__ |= {"runnable": Acts(right_when_watched=True), "required": ("out",), "measured": Measurement()}
    case.runnable.gives_all = True
    got = Outputs(arrays=done.outputs, watched=done.watched, masks={}, inputs=TWO)
    want = Outputs(arrays={"out": TWO["x"]}, masks={}, inputs=TWO)
    assert case.difference(got, want) > 0.1
