"""Target `tpu` without its runtime: which part of a TPU is missing, what leaves it, and what `auto` takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from generators.compatibility.grade import level_rules
from generators.compatibility.selection import StepResult, select
from hardware.backends._xla_model import _leaves_device, _placed
from hardware.backends.base import ModelInput, Unsupported
from hardware.backends.factory import get_backend
from hardware.backends.tpu import TPUBackend, missing_tpu
from hardware.machine import LiveMachine
from hardware.target import Target
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


def test_what_is_missing_for_a_tpu_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = machine(tmp_path / "here", (0x1AE0, 0x005E), nodes=("accel0",))
    library = {"libtpu": "0.0.30"}
    assert missing_tpu(library, here) == ""
    assert missing_tpu({}, here) == "libtpu isn't installed in its environment"
    bare = machine(tmp_path / "bare", (0x1AE0, 0x005E))
    assert missing_tpu(library, bare).startswith("it has no device node")
    card = machine(tmp_path / "card", (0x1AE0, 0x0042), nodes=("vfio/vfio",))
    assert missing_tpu({}, card) == "the bus shows no TPU, libtpu isn't installed in its environment", (
        "a network card"
    )
    edge = machine(tmp_path / "edge", (0x1AC1, 0x089A), nodes=("apex_0",))
    assert missing_tpu(library, edge).endswith("Coral Edge TPU, which no target supports")
    monkeypatch.setenv("TPU_LIBRARY_PATH", "/dev/accel0")  # any file of that machine
    assert missing_tpu({}, here) == ""


def test_the_host_computes_only_if_it_is_named() -> None:
    tpu, host = Target(name="tpu"), Target(name="tpu", variant="xla-cpu")
    assert (TPUBackend(tpu).platform, TPUBackend(host).platform) == ("tpu", "cpu")
    assert not TPUBackend.is_shared(tpu), "a TPU belongs to one process"
    (said,) = level_rules().limiting({"stands_in": "XLA on the host's CPU, not a TPU"})
    assert "XLA on the host's CPU, not a TPU" in said
    subject = ModelInput(model=None, task="other", identity="none")
    refused = pytest.raises(Unsupported, match="tpu:xla-cpu doesn't compute in float16")
    with get_backend("tpu:xla-cpu") as backend, refused as caught:
        backend.load(subject, {}, "float16")
    assert caught.value.error_type == "unsupported_dtype", "it is refused before anything starts"


@dataclass(frozen=True)
class Status:
    target: str
    expected: bool = True
    reason: str = ""
    memory_bytes: int | None = None
    device_name: str = ""


def test_auto_takes_a_tpu_and_never_the_host_in_its_place() -> None:
    def taken(*statuses: Status) -> tuple[str, list[StepResult]]:
        found = select("other", "encoder-only", (), "other", statuses, None)
        return found.target, [step.result for step in found.steps if step.target.startswith("tpu")]

    assert taken(Status("tpu", device_name="TPU v5e"), Status("cpu")) == ("tpu", [StepResult.TAKEN])
    assert taken(Status("tpu:xla-cpu"), Status("cpu")) == ("cpu", [StepResult.NOT_PREFERRED])


def test_instructions_of_a_compiled_module_are_counted() -> None:
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
    assert _leaves_device("custom-call:unknown"), "an unknown call is no proof"
    proof = {"platforms": ["tpu"], "instructions": dict(found), "torch": {"aten.mm": 2}}
    native, offloaded = _placed(proof, "tpu")
    assert native == {"hlo.tanh": 1, "hlo.dot": 1, "hlo.custom-call:TopK": 1}
    assert offloaded["aten.mm"] == 2
    assert offloaded["hlo.send:host"] == 1
    assert not _placed(proof, "cpu")[0], "its results are elsewhere"
