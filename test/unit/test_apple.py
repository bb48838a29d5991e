"""Apple silicon, from what Macs printed: unified memory told once, figures that only root is told, Intel Macs."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded_machines import Counted, changed, machine

from hardware.errors import UsageError
from hardware.inventory.vendors.apple import AppleAccelerators
from hardware.testing.contract.machines import EmptyMachine

GIB = 2**30


def test_gpu_and_neural_engine_of_an_m3_max() -> None:
    gpu, engine = AppleAccelerators(machine("apple/m3-max")).list_devices()
    assert (gpu.model, gpu.device_type, gpu.index, gpu.bus_type) == ("Apple M3 Max", "gpu", 0, "integrated")
    assert (gpu.compute_capability, gpu.extra_info["gpu_cores"]) == ("metal3", 30)
    assert (engine.model, engine.device_type, engine.index) == ("Apple Neural Engine", "npu", 1)
    assert (engine.extra_info["cores"], engine.extra_info["architecture"]) == (16, "h15g")


def test_unified_memory_is_told_once() -> None:
    gpu, engine = AppleAccelerators(machine("apple/m3-max")).list_devices()
    assert (gpu.memory_bytes, gpu.memory_type) == (36 * GIB, "unified")
    assert engine.memory_bytes is None
    assert engine.extra_info["unified_memory"] == "told with the GPU"


def test_metrics_of_a_user_who_is_not_root() -> None:
    backend = AppleAccelerators(machine("apple/m3-max"))
    assert backend.get_utilization(0) == {"compute": 48.0}
    assert backend.get_memory_usage(0) == {"total": 36 * GIB, "used": 1221361664, "free": 8 * GIB}
    assert backend.get_temperature(0) is None
    assert backend.get_power_usage(0) is None
    assert backend.get_throttle_reasons(0) is None
    assert "superuser" in backend.told(0, "power").reason
    assert "own" in backend.told(1, "memory").reason


def test_root_is_told_power_and_thermal_pressure() -> None:
    backend = AppleAccelerators(machine("apple/m3-max-root"))
    assert backend.get_power_usage(0) == 21.046
    assert backend.get_power_usage(1) == 0.323
    assert backend.get_throttle_reasons(0) == ("thermal",)
    gpu = backend.list_devices()[0]
    assert gpu.memory_bytes == 64 * GIB
    assert gpu.bandwidth_gbps == 400
    assert "table" in str(gpu.extra_info["bandwidth_source"])


def test_a_bandwidth_that_depends_on_the_cores_is_not_that_of_another_width() -> None:
    assert AppleAccelerators(machine("apple/m3-max")).list_devices()[0].bandwidth_gbps is None


def test_an_m1_without_an_entry_of_the_neural_engine() -> None:
    (gpu,) = AppleAccelerators(machine("apple/m1")).list_devices()
    assert (gpu.model, gpu.memory_bytes, gpu.extra_info["gpu_cores"]) == ("Apple M1", 8 * GIB, 7)


def test_the_gpus_of_an_intel_mac_are_not_apples() -> None:
    backend = AppleAccelerators(machine("apple/intel-mac"))
    assert backend.list_devices() == ()
    facts = backend.facts()
    assert facts.state == "hardware absent"
    assert "AMD Radeon Pro 5500M" in facts.reason


def test_memory_in_use_by_the_driver_is_not_taken_for_that_of_the_gpu(tmp_path: Path) -> None:
    told = changed("apple/m3-max", tmp_path)
    registry = sorted((told.folder / "commands").glob("*ioreg*"))[-1]
    registry.write_text(registry.read_text().replace(',"In use system memory"=1221361664', ""))
    assert AppleAccelerators(told).get_memory_usage(0) is None


def test_nothing_is_started_where_there_is_no_macos() -> None:
    empty = EmptyMachine()
    backend = AppleAccelerators(empty)
    assert backend.facts().state == "hardware absent"
    assert "Linux" in backend.facts().reason
    assert empty.started == []


def test_apple_silicon_under_linux_is_present_and_unusable(tmp_path: Path) -> None:
    told = changed(
        "other/rock-5b", tmp_path, files={"/proc/device-tree/compatible": "apple,j293\0apple,arm-platform\0"}
    )
    assert AppleAccelerators(told).facts().state == "present but unusable"


def test_a_mac_whose_tools_say_nothing_is_unknown(tmp_path: Path) -> None:
    told = changed("apple/m3-max", tmp_path, index=lambda index: index.update(commands=[]))
    facts = AppleAccelerators(told).facts()
    assert facts.state == "unknown"
    assert "system_profiler" in facts.reason


def test_each_program_runs_once_for_a_list() -> None:
    counted = Counted(machine("apple/m3-max"))
    backend = AppleAccelerators(counted.told)
    backend.facts()
    backend.list_devices()
    assert sorted(words[0] for words in counted.programs) == ["ioreg", "ioreg", "system_profiler"]


def test_names_of_frameworks() -> None:
    backend = AppleAccelerators(machine("apple/m3-max"))
    assert backend.get_framework_device_string(0) == "mps"
    assert backend.get_framework_device_string(0, "jax") == "METAL:0"
    assert backend.get_framework_device_string(1, "onnxruntime") == "CoreMLExecutionProvider"
    with pytest.raises(UsageError, match="Core ML"):
        backend.get_framework_device_string(1)
    with pytest.raises(UsageError, match="Known: pytorch, tensorflow, jax, onnxruntime"):
        backend.get_framework_device_string(0, "openvino")
