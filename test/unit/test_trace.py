"""Where operators of torch ran: the dispatcher's view, the profiler's view inside operators, and the kernel table."""

import pytest
import torch

from hardware.backends._trace import has_kernel, host_calls_inside, operator_trace
from hardware.backends.factory import get_backend


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
        (torch.ops.aten.addmm.default, "cuda", torch.cuda.is_available()),
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
