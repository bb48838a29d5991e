"""A pass that leaves its device shows, for whichever inputs and in whichever thread it does."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from hardware.backends._torch import TorchRunnable
from hardware.backends._trace import host_calls_elsewhere, host_products, operator_trace
from hardware.backends.base import Execution, ModelSubject, Runnable, coarsest
from hardware.backends.factory import get_backend
from hardware.testing.passes import WatchedPasses

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
    assert not runnable.left_to_host(TWO)
    assert "aten.addmm" in runnable.left_to_host(THREE)


def test_another_thread_that_computes_on_the_host_is_seen() -> None:
    left = loaded(thread=True).left_to_host(THREE)
    assert {"aten.linear", "aten.addmm"} <= set(left)
    assert not loaded(thread=True).left_to_host(TWO)


def test_a_device_whose_driver_keeps_no_ledger_is_watched_as_well() -> None:
    assert "aten.addmm" in loaded(TorchRunnable).left_to_host(THREE)
    assert "aten.linear" in loaded(TorchRunnable, thread=True).left_to_host(THREE)
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

    def left_to_host(self, inputs: Mapping[str, Any]) -> Mapping[str, int]:
        return {}


def test_a_runtime_that_says_nothing_of_torch_is_not_taken_at_its_word() -> None:
    passes, runnable = WatchedPasses(), Pretends()
    outputs, took, left = passes.run(runnable, THREE)
    assert outputs["out"].shape == (3, 3)
    assert took > 0
    assert left == {"aten.mm": 1}
    assert passes.run(runnable, TWO)[2] == {}


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
