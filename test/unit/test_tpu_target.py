"""Target `tpu` without its runtime: what of a TPU is here, what counts as beside it, and what `auto` takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from generators.compatibility.grade import level_rules
from generators.compatibility.selection import StepResult, select
from hardware.backends._torch_checks import loss_weights
from hardware.backends._xla_model import _leaves_device
from hardware.backends.base import ModelSubject, Unsupported
from hardware.backends.factory import get_backend, resolve_target
from hardware.backends.tpu import TPUBackend, missing_tpu
from hardware.errors import UsageError
from hardware.machine import LiveMachine
from hardware.target import Target
from hardware.testing.tolerances import tolerance_for
from hardware.workers.xla_compiled import instructions_of

HLO = """HloModule jit_compute, is_scheduled=true

%fused (p: f32[2,3]) -> f32[2,3] {
  %p = f32[2,3]{1,0} parameter(0)
  ROOT %tanh.1 = f32[2,3]{1,0} tanh(%p)
}

ENTRY %main (a: f32[2,3], b: bf16[3,4]) -> (f32[2,4]) {
  %a = f32[2,3]{1,0:T(8,128)} parameter(0)
  %dot.7 = f32[2,4]{1,0} dot(%a, %b), lhs_contracting_dims={1}, operand_precision={highest,highest}
  %custom-call = (f32[2,2]{1,0}, s32[2,2]{1,0}) custom-call(%dot.7), custom_call_target="TopK"
  %call.2 = (f32[2,4]{1,0}) custom-call(%dot.7), custom_call_target="xla_ffi_python_cpu_callback", api_version=5
  %send.1 = (f32[2,4]{1,0}, u32[], token[]) send(%dot.7, %tok), channel_id=1, is_host_transfer=true
  %out = token[] outfeed(%dot.7, %tok), outfeed_shape=f32[2,4]{1,0}
  ROOT %tuple = (f32[2,4]{1,0}) tuple(%dot.7)
}
"""


def machine(root: Path, *devices: tuple[int, int], nodes: tuple[str, ...] = ()) -> LiveMachine:
    """Of PCI devices (vendor, device) and device nodes."""
    for number, (vendor, device) in enumerate(devices):
        folder = root / "sys" / "bus" / "pci" / "devices" / f"0000:00:0{number}.0"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor:#06x}\n")
        (folder / "device").write_text(f"{device:#06x}\n")
        (folder / "class").write_text("0xff0000\n")
    for node in nodes:
        file = root / "dev" / node
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    return LiveMachine(root)


def test_with_chip_node_and_library_nothing_is_missing(tmp_path: Path) -> None:
    here = machine(tmp_path, (0x1AE0, 0x005E), nodes=("accel0",))
    assert missing_tpu({"libtpu": "0.0.30"}, here) == ""


def test_a_network_card_of_google_is_no_tpu(tmp_path: Path) -> None:
    reason = missing_tpu({}, machine(tmp_path, (0x1AE0, 0x0042), nodes=("vfio/vfio",)))
    assert reason == "the bus shows no TPU, no libtpu in its environment"


def test_each_thing_that_is_missing_is_named_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = machine(tmp_path / "here", (0x1AE0, 0x005E), nodes=("accel0",))
    assert missing_tpu({}, here) == "no libtpu in its environment"
    monkeypatch.setenv("TPU_LIBRARY_PATH", "/dev/accel0")  # any file of that machine
    assert missing_tpu({}, here) == ""
    bare = machine(tmp_path / "bare", (0x1AE0, 0x005E))
    assert missing_tpu({"libtpu": "0.0.30"}, bare).startswith("there is no node for it")


def test_without_its_environment_the_reason_is_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HWCOMPAT_XLA_PYTHON", "nowhere/bin/python")
    for name in ("tpu", "tpu:xla-cpu"):
        assert get_backend(name).unavailable() == "HWCOMPAT_XLA_PYTHON names no Python (make setup-xla)"
        assert get_backend(name).device_count == 0


def test_the_host_is_taken_only_where_it_is_named() -> None:
    assert resolve_target("TPU:XLA-CPU") == Target(name="tpu", variant="xla-cpu")
    assert TPUBackend(Target(name="tpu")).platform == "tpu"
    assert TPUBackend(Target(name="tpu", variant="xla-cpu")).platform == "cpu"
    assert not TPUBackend.is_shared(Target(name="tpu")), "a TPU belongs to one process"
    for wrong in ("tpu:cpu", "tpu:0"):
        with pytest.raises(UsageError, match="unknown device"):
            resolve_target(wrong)


@dataclass(frozen=True)
class Status:
    target: str
    expected: bool = True
    reason: str = ""
    memory_bytes: int | None = None
    device_name: str = ""


def test_auto_takes_a_tpu_and_never_what_stands_in_for_one() -> None:
    def taken(*statuses: Status) -> tuple[str, list[StepResult]]:
        found = select("other", "encoder-only", (), "other", statuses, None)
        return found.target, [step.result for step in found.steps if step.target.startswith("tpu")]

    assert taken(Status("tpu", device_name="TPU v5e"), Status("cpu")) == ("tpu", [StepResult.TAKEN])
    assert taken(Status("tpu:xla-cpu"), Status("cpu")) == ("cpu", [StepResult.NOT_PREFERRED])


def test_what_stands_in_limits_the_level() -> None:
    (said,) = level_rules().limiting({"stands_in": "XLA on the host's CPU, not a TPU"})
    assert "XLA on the host's CPU, not a TPU" in said


def test_no_tolerance_is_its_own() -> None:
    for precision in ("float32", "bfloat16"):
        own = tolerance_for(Target(name="tpu", variant="xla-cpu"), precision)
        assert own == tolerance_for(Target(name="cpu"), precision)


def test_instructions_are_read_off_a_compiled_module() -> None:
    found, products = instructions_of(HLO)
    assert found == {
        "tanh": 1,
        "dot": 1,
        "custom-call:TopK": 1,
        "custom-call:xla_ffi_python_cpu_callback": 1,
        "send:host": 1,
        "outfeed": 1,
    }
    assert products == {"f32": 1}
    assert {one for one in found if _leaves_device(one)} == {
        "custom-call:xla_ffi_python_cpu_callback",
        "send:host",
        "outfeed",
    }
    assert _leaves_device("custom-call:nobody_knows"), "what isn't known is no proof"


def test_the_loss_weighs_as_the_references_does() -> None:
    import torch

    from hardware.backends._torch import _loss

    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(()))

        def forward(self, values: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"rows": values * self.scale, "number": values.sum() * self.scale}

    values = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4)
    mask = np.array([[1, 1, 0], [1, 1, 1]])
    model = Two()
    tensors = {"values": values}
    outputs = {name: one.detach().numpy() for name, one in model(values).items()}
    plain = sum(float((loss_weights(one.shape) * one).sum()) for one in outputs.values())
    assert plain == pytest.approx(float(_loss(model, tensors, {}).detach()), rel=1e-5)
    masked = loss_weights(outputs["rows"].shape, mask)
    assert not masked[0, 2].any()
    assert masked[1].all()


def test_a_precision_that_xla_is_not_asked_for_is_refused_before_anything_starts() -> None:
    subject = ModelSubject(model=None, task="other", identity="none")
    with (
        get_backend("tpu:xla-cpu") as backend,
        pytest.raises(Unsupported, match="tpu:xla-cpu doesn't compute in float16") as caught,
    ):
        backend.load(subject, {}, "float16")
    assert caught.value.error_type == "unsupported_dtype"


def test_an_edge_tpu_is_no_tpu_that_xla_compiles_for(tmp_path: Path) -> None:
    here = machine(tmp_path, (0x1AC1, 0x089A), nodes=("apex_0",))
    assert missing_tpu({"libtpu": "0.0.30"}, here).endswith("Coral Edge TPU, which no target here drives")
