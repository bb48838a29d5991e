"""Where operators of torch ran: the dispatcher's view, the profiler's view inside operators, and the kernel table."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from hardware.backends._torch import TorchRunnable
from hardware.backends._trace import has_kernel, host_calls_inside, operator_trace
from hardware.backends.base import ModelSubject
from hardware.backends.factory import get_backend
from hardware.errors import BackendUnavailable


def simulated() -> torch.device:
    return get_backend("simulated").torch_device()


def test_kernels_that_compute_on_the_host_are_seen_inside_an_operator():
    left = torch.ones(2, 3).to(simulated())  # this device computes with the host's kernels, and says so
    found = host_calls_inside(lambda: torch.mm(left, left.t()), "simulated")
    assert found["aten.mm"] == 1


def test_a_copy_to_the_host_that_is_one_is_no_kernel_on_the_host():
    there = torch.ones(2, 3).to(simulated())
    assert not host_calls_inside(there.cpu, "simulated")


def test_work_of_the_host_alone_is_nobodys_kernel():
    here = torch.ones(2, 3)
    assert not host_calls_inside(lambda: torch.mm(here, here.t()), "simulated")


def test_tensors_without_bytes_touch_no_host():
    left = torch.ones(2, 3, device="meta")
    assert not host_calls_inside(lambda: torch.nn.functional.gelu(left @ left.t()), "meta")


@pytest.mark.parametrize(
    ("operator", "device", "known"),
    [
        (torch.ops.aten.addmm.default, "cpu", True),
        (torch.ops.aten.addmm.default, "cuda", torch.version.cuda is not None),
        (torch.ops.aten.transpose.int, "cuda", True),  # made of other operators on every device
        (torch.ops.aten.as_strided_.default, "cpu", True),
        (torch.ops.aten.as_strided_.default, "cuda", True),
    ],
)
def test_the_table_says_what_has_a_kernel(operator, device, known):
    assert has_kernel(operator, device) is known


def test_an_operator_of_another_device_counts_as_offloaded():
    here = torch.ones(2, 3)
    with operator_trace("cuda") as trace:
        torch.mm(here, here.t())
    assert trace.offloaded["aten.mm"] == 1
    with operator_trace("cpu") as trace:
        torch.mm(here, here.t())
    assert not trace.offloaded
    assert trace.native["aten.mm"] == 1
    assert trace.dtypes == {"float32": 1}


def test_single_numbers_of_the_host_are_no_work_of_the_device():
    with operator_trace("simulated") as trace:
        torch.tensor(5.0) * 2
    assert not trace.native
    assert not trace.offloaded


class Linear(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return {"out": self.linear(x)}


class NoDecoding(Linear):
    def generate(self, **inputs):
        raise RuntimeError("no decoding here")


class WithoutGradients(Linear):
    def forward(self, x):
        if torch.is_grad_enabled():
            raise RuntimeError("no gradients here")
        return super().forward(x)


def proof_of(model, **facts):
    """Of a runnable that doesn't ask the simulated device's ledger, as that of a vendor's device doesn't."""
    subject = replace(ModelSubject(model=model, task="none", identity="0"), **facts)
    example = {"x": np.ones((2, 4), dtype=np.float32)}
    return TorchRunnable(get_backend("simulated"), subject, example, "float32").execution()


def test_the_proof_of_a_device_that_computes_on_the_host_says_so():
    proof = proof_of(Linear())
    assert proof.offloaded["aten.addmm"] >= 2, "the forward pass, and that of the gradients"
    assert "aten.addmm" not in proof.native
    assert "aten.mm" in proof.offloaded, "the backward pass"
    assert "raise" not in proof.unseen


def test_the_proof_names_what_it_could_not_look_at():
    assert "gradients, raising RuntimeError" in proof_of(WithoutGradients()).unseen
    proof = proof_of(NoDecoding(), generates="decoder")
    assert "decoding, raising" in proof.unseen
    assert "gradients" not in proof.unseen


def test_an_operator_of_a_vendor_that_computes_on_the_host_is_seen():
    @torch.library.custom_op("hwcompat_test::linear", mutates_args=())
    def linear(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return (left.cpu() @ right.cpu().t()).to(left.device)

    there = torch.ones(2, 4).to(simulated())
    assert host_calls_inside(lambda: linear(there, there), "simulated")["hwcompat_test.linear"] == 1


class OnHostWhileLearning(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x * 2.0

    @staticmethod
    def backward(context, gradient):
        return torch.nn.functional.gelu(gradient.cpu()).to(gradient.device)


def test_whatever_the_host_computes_while_a_model_learns_is_offloaded():
    class Learning(Linear):
        def forward(self, x):
            return {"out": OnHostWhileLearning.apply(self.linear(x))}

    assert proof_of(Learning()).offloaded["aten.gelu"] >= 1
    ledger = get_backend("simulated").load(
        ModelSubject(model=Learning(), task="none", identity="0"), {"x": np.ones((2, 4), dtype=np.float32)}, "float32"
    )
    assert ledger.execution().beyond_allowed == {"aten.gelu": 1}


def test_a_backend_whose_device_is_another_is_refused():
    class Elsewhere(type(get_backend("simulated"))):
        def torch_device(self):
            return torch.device("cpu")

    backend = Elsewhere(get_backend("simulated").target)
    subject = ModelSubject(model=Linear(), task="none", identity="0")
    with pytest.raises(BackendUnavailable, match="its device is cpu"):
        backend.load(subject, {"x": np.ones((2, 4), dtype=np.float32)}, "float32")
