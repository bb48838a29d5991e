"""GPUs of NVIDIA, AMD and Intel: easily confused figures, variables that hide devices, and machines without driver.

All figures of the recorded machines are in test_recorded_machines.py.
What torch's profiler recorded on an H100 (torch 2.11), and which of it counts as work of the host.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from recorded_machines import Counted, machine

from hardware.backends import _trace
from hardware.detection import detect, targets
from hardware.errors import UsageError
from hardware.inventory.vendors import _levelzero
from hardware.inventory.vendors._kernel_drivers import driver_version
from hardware.inventory.vendors._visibility import visible
from hardware.inventory.vendors.amd import AmdAccelerators, _vram_type, violation_reasons
from hardware.inventory.vendors.intel import IntelAccelerators
from hardware.inventory.vendors.intel import throttle_reasons as intel_throttle_reasons
from hardware.inventory.vendors.nvidia import NvidiaAccelerators, _memory_type, throttle_reasons
from hardware.inventory.vendors.vendor import AcceleratorBackend, AcceleratorInfo, NoSuchIndex
from hardware.machine import Library, LiveMachine, Machine, SourceReading

VENDORS = {"nvidia": NvidiaAccelerators, "amd": AmdAccelerators, "intel": IntelAccelerators}


def backend(name: str, found: Machine | None = None) -> AcceleratorBackend:
    kind: Any = VENDORS[name.partition("/")[0]]
    return kind(found or machine(name))


def target(name: str, wanted: str) -> Any:
    (found,) = [one for one in targets(detect(machine(name))) if one.target == wanted]
    return found


class NoLibrary(Library):
    NAME = "no library"

    def ask(self, function: str, *arguments: Any) -> SourceReading[Any]:
        return SourceReading(value=None, reason="libnvidia-ml can't be loaded")


class BusAlone(LiveMachine):
    """A folder with /sys, and neither a vendor's library nor a program."""

    def library(self, kind: type[Library]) -> Library:
        return NoLibrary()

    def run(self, *words: str, accept: int = 0) -> SourceReading[str]:
        return SourceReading(value=None, reason=f"{words[0]} isn't installed")


def test_reasons_say_what_keeps_a_device_from_use():
    for name in ("nvidia/h100-container", "amd/mi300x-container"):
        assert "the bus shows 8, but only 2 can be used" in backend(name).facts().reason
    assert "group render" in backend("amd/mi300x-denied").facts().reason
    assert "group render" in target("amd/mi300x-denied", "rocm").reason
    assert target("amd/mi300x-x2", "rocm").expected
    assert "built for rocm" in target("amd/mi300x-x2", "cuda").reason


def test_a_mask_of_gpus_hides_no_npu(monkeypatch):
    gpu = AcceleratorInfo(vendor="Intel", device_type="gpu", model="Arc A770", index=0)
    npu = AcceleratorInfo(vendor="Intel", device_type="npu", model="AI Boost", index=1)
    monkeypatch.setenv("ZE_AFFINITY_MASK", "1")
    hidden, other = IntelAccelerators().finished((gpu, npu))
    assert hidden.extra_info == {"hidden_by": "ZE_AFFINITY_MASK=1"}
    assert other == npu


def test_a_list_of_visible_devices_ends_at_its_first_invalid_entry():
    wanted = {
        None: (True, True, True),
        "": (False, False, False),
        "-1": (False, False, False),
        "2,0": (True, False, True),
        "0,7,1": (True, False, False),
        "GPU-bb": (False, True, False),
        "gpu-bb11,2": (False, True, True),
        "GPU-": (False, False, False),
        "1.0,1.1": (False, True, False),
        "²": (False, False, False),
        "9" * 5000: (False, False, False),
    }
    assert {text: visible(text, [["GPU-aa00"], ["GPU-bb11"], ["GPU-cc22"]]) for text in wanted} == wanted


def test_a_vendor_that_is_absent_starts_no_program():
    for vendor in VENDORS:
        counted = Counted(machine("amd/mi300x-x2" if vendor != "amd" else "nvidia/h100-x8"))
        found = backend(vendor, counted.told)
        assert found.facts().state == "hardware absent"
        assert found.list_devices() == ()
        assert counted.programs == []


def test_a_vendor_without_a_library_has_no_metrics_and_says_why(tmp_path):
    unknown = NvidiaAccelerators(BusAlone(tmp_path))
    assert (unknown.facts().hardware, unknown.facts().state) == ("unknown", "library missing")
    assert (unknown.is_available(), unknown.get_device_count()) == (False, 0)
    with pytest.raises(NoSuchIndex, match="libnvidia-ml"):
        unknown.get_memory_usage(0)


def test_throttle_reasons_have_names():
    wanted = {
        0x000: (),
        0x001: (),
        0x004: ("sw_power_cap",),
        0x060: ("thermal",),
        0x088: ("hw_slowdown", "power_limit"),
        0x1004: ("sw_power_cap", "unknown_0x1000"),
    }
    assert {bits: throttle_reasons(bits) for bits in wanted} == wanted
    assert intel_throttle_reasons(0x103) == ("power_limit", "thermal")
    assert intel_throttle_reasons(0x400) == ("unknown_0x400",)
    assert violation_reasons({"active_ppt_pwr": "N/A", "active_socket_thrm": "N/A"}) is None
    assert violation_reasons({"active_ppt_pwr": False, "active_socket_thrm": "N/A"}) == ()


def test_the_memory_type_follows_from_the_bus_only_if_no_other_type_exists():
    wanted = {
        (5120, 9, True): "HBM",
        (384, 5, True): "GDDR",
        (192, 8, True): "GDDR",
        (64, 3, True): None,
        (128, 9, False): None,
    }
    for (bits, architecture, own), kind in wanted.items():
        assert _memory_type({"memory_bus_bits": bits, "nvml_architecture": architecture}, own) == kind, bits
    types = {1: "HBM", 5: "HBM", 9: None, 10: "DDR", 16: None, 17: "GDDR", 23: "GDDR", 24: None, "GDDR6": "GDDR"}
    assert {written: _vram_type(written) for written in types} == types


def test_frameworks_have_their_own_names_for_a_device():
    nvidia, amd, intel = NvidiaAccelerators(), AmdAccelerators(), backend("intel/core-ultra-laptop")
    names = [nvidia.get_framework_device_string(3, one) for one in ("pytorch", "TensorFlow")]
    assert [*names, amd.get_framework_device_string(3)] == ["cuda:3", "GPU:3", "cuda:3"]
    assert intel.get_framework_device_string(0) == "xpu:0"
    assert intel.get_framework_device_string(1, "openvino") == "NPU"
    for found, index, framework, words in (
        (nvidia, 0, "pytroch", r"Did you mean 'pytorch'.*jax.*onnxruntime"),
        (amd, 0, "openvino", r"pytorch.*onnxruntime"),
        (intel, 1, "pytorch", "openvino, onnxruntime"),
    ):
        with pytest.raises(UsageError, match=words):
            found.get_framework_device_string(index, framework)


def test_a_rate_is_the_difference_of_two_samples_within_a_tenth_of_a_second(monkeypatch):
    slept: list[float] = []
    monkeypatch.setattr(_levelzero.time, "sleep", slept.append)
    samples = iter([SimpleNamespace(timestamp=100, energy=50), SimpleNamespace(timestamp=110, energy=80)])
    assert _levelzero._rate(lambda: next(samples), "energy") == 3.0
    assert 0 < sum(slept) <= 0.1, "a monitor reads several times a second"
    still = SimpleNamespace(timestamp=100, energy=50)
    assert _levelzero._rate(lambda: still, "energy") is None


def test_a_driver_without_a_version_has_that_of_the_kernel(tmp_path):
    own = tmp_path / "sys" / "module" / "xe" / "version"
    own.parent.mkdir(parents=True)
    own.write_text("1.2.3\n")
    here = LiveMachine(tmp_path)
    assert driver_version(here, "xe") == "1.2.3"
    assert driver_version(here, "i915") == f"Linux {here.host().release}"


def test_an_npu_that_is_removed_after_a_shutdown_is_no_longer_listed(tmp_path):
    device = tmp_path / "sys" / "devices" / "0000:00:0b.0"
    accel = tmp_path / "sys" / "class" / "accel" / "accel0"
    for folder in (device, accel, tmp_path / "sys" / "drivers" / "intel_vpu", tmp_path / "dev" / "accel"):
        folder.mkdir(parents=True)
    for name, text in (("vendor", "0x8086"), ("device", "0x7d1d"), ("class", "0x120000")):
        (device / name).write_text(f"{text}\n")
    (device / "driver").symlink_to(tmp_path / "sys" / "drivers" / "intel_vpu")
    (accel / "device").symlink_to(device)
    (tmp_path / "dev" / "accel" / "accel0").touch()
    found = IntelAccelerators(BusAlone(tmp_path))
    assert [(one.device_type, one.seen_by) for one in found.list_devices()] == [("npu", "driver")]
    shutil.rmtree(accel)
    shutil.rmtree(device)
    found.shutdown()
    assert found.list_devices() == ()


RECORDED = json.loads((Path(__file__).parents[1] / "fixtures" / "torch" / "h100-events.json").read_text())
HOST_INTEGERS, HOST_FLOATS = [[[3], "cpu", "int64"]], [[[3], "cpu", "float32"]]
ON_DEVICE, DEVICE_INTEGERS = [[[3], "cuda", "float32"]], [[[3], "cuda", "int64"]]


def event(name: str, tensors: Any = (), children: Any = ()) -> Any:
    """One record, as the profiler's event tree gives it."""

    def dtype(of: str) -> Any:
        return SimpleNamespace(is_floating_point=of.startswith("float"), is_complex=of.startswith("complex"))

    inputs = [
        SimpleNamespace(sizes=sizes, device=SimpleNamespace(type=device), dtype=dtype(of))
        for sizes, device, of in tensors
    ]
    children = [event(**child) if isinstance(child, dict) else child for child in children]
    return SimpleNamespace(name=name, children=children, extra_fields=SimpleNamespace(inputs=inputs))


def leaving(*events: Any) -> list[str]:
    return [name for one in events for name in _trace._left_device(one, "cuda")]


def test_what_cuda_does_by_itself_is_no_work_of_the_host() -> None:
    names = [name for name in RECORDED if name != "recorded_on"]
    assert names
    assert [name for name in names if leaving(*(event(**one) for one in RECORDED[name]))] == []
    steered = event(**RECORDED["repeat"][0])
    assert leaving(event("aten::tile", ON_DEVICE, [steered])) == []


def test_an_operator_may_be_steered_by_whole_numbers_and_may_not_compute_on_the_host() -> None:
    to_host = event("aten::copy_", HOST_INTEGERS + DEVICE_INTEGERS)
    steered = event("aten::_grouped_mm", ON_DEVICE, [event("aten::to", DEVICE_INTEGERS, [to_host])])
    assert leaving(steered) == []
    for name, tensors in (
        ("aten::mm", HOST_FLOATS),
        ("aten::mm", [[[3], "cpu", "complex64"]]),
        ("aten::copy_", HOST_FLOATS + ON_DEVICE),
        ("aten::copy_", DEVICE_INTEGERS + HOST_INTEGERS),
        ("aten::_copy_from_and_resize", HOST_INTEGERS + ON_DEVICE),
        ("aten::arange", HOST_INTEGERS + DEVICE_INTEGERS),
    ):
        assert leaving(event("aten::repeat", ON_DEVICE, [event(name, tensors)])) == ["aten::repeat"], (name, tensors)


def test_an_operator_that_computes_on_the_host_is_found_whatever_its_dtype() -> None:
    for name in ("aten::cumsum", "vendor::linear"):
        for dtype in ("float32", "int8", "int64", "bool", "complex64"):
            there = event("aten::copy_", [[[3], "cpu", dtype], [[3], "cuda", dtype]])
            computes = event("aten::add", [[[3], "cpu", dtype]])
            assert leaving(event(name, [[[3], "cuda", dtype]], [there, computes])) == [name], dtype


def test_the_inner_operator_is_named_and_a_copy_only_if_it_goes_by_the_host() -> None:
    inner = event("aten::gelu", ON_DEVICE, [event("aten::gelu", HOST_FLOATS)])
    assert leaving(event("aten::linear", ON_DEVICE, [inner])) == ["aten::gelu"]
    both = HOST_FLOATS + ON_DEVICE
    assert leaving(event("aten::copy_", both, [event("aten::mul", both)])) == []
    by_host = [event("aten::copy_", both), event("aten::copy_", ON_DEVICE + HOST_FLOATS)]
    assert leaving(event("aten::copy_", ON_DEVICE + ON_DEVICE, by_host)) == ["aten::copy_"]
