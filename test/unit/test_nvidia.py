"""NVIDIA inventory and telemetry, through the real Python binding and a library that calls itself simulated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import stub_libraries
from stub_libraries import python

from hardware.errors import UsageError
from hardware.inventory.vendors import nvidia
from hardware.inventory.vendors.nvidia import NvidiaAccelerators, throttle_reasons

ROOT = Path(__file__).parents[2]
NO_LIBRARY = """
import pynvml
def no_library(name): raise OSError(name)
pynvml.CDLL = no_library
"""
Run = Callable[..., Any]


@pytest.fixture(scope="session")
def stub_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stub_libraries.nvml(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def with_stub(stub_folder: Path) -> Run:
    def run(code: str, **environment: str) -> Any:
        return python(code, LD_LIBRARY_PATH=str(stub_folder), **environment)

    return run


DETECT = """
import json
from hardware.detection import detect, targets
from dataclasses import asdict
found = detect()
print(json.dumps({**found.to_dict(), "targets": {one.target: asdict(one) for one in targets(found)}}))
"""

METRICS = """
import json
from hardware.inventory.vendors import get_accelerator_backend
backend = get_accelerator_backend("nvidia")
print(json.dumps([backend.get_temperature(0), backend.get_memory_usage(0), backend.get_utilization(0),
                  backend.get_power_usage(0), backend.get_throttle_reasons(0)]))
"""


def vendor(inventory: dict[str, Any]) -> dict[str, Any]:
    (facts,) = [one for one in inventory["vendors"] if one["vendor"] == "NVIDIA"]
    return facts


@pytest.mark.parametrize("count", [1, 8])
def test_every_device_is_listed_with_its_figures(with_stub: Run, count: int) -> None:
    found = with_stub(DETECT, SIM_NVML_COUNT=str(count))
    assert found["accelerator_count"] == count
    assert [device["index"] for device in found["accelerators"]] == list(range(count))
    first = found["accelerators"][0]
    assert first["memory_bytes"] == 80 * 2**30
    assert first["memory_gb"] == 80.0
    assert first["compute_capability"] == "9.0"
    assert first["memory_type"] == "HBM"
    assert first["bandwidth_gbps"] == pytest.approx(3352.3)
    assert first["bus_type"] == "pcie"
    assert first["pcie_gen"] == 5
    assert first["extra_info"]["cuda_driver_version"] == "13.1"


def test_a_simulated_library_is_labelled_and_never_expected_to_compute(with_stub: Run) -> None:
    found = with_stub(DETECT)
    assert found["accelerators"][0]["simulated"]
    assert vendor(found)["state"] == "simulated"
    assert not found["targets"]["cuda"]["expected"]
    assert "simulated" in found["targets"]["cuda"]["reason"]


def test_metrics_come_in_degrees_bytes_percent_and_watts(with_stub: Run) -> None:
    temperature, memory, utilization, power, reasons = with_stub(METRICS)
    assert temperature == 40.0
    assert memory == {"total": 80 * 2**30, "used": 2**30, "free": 79 * 2**30}
    assert utilization == {"compute": 30.0, "memory": 5.0}
    assert power == 100.0
    assert reasons == []


def test_what_the_hardware_does_not_tell_is_none_and_has_a_reason(with_stub: Run) -> None:
    code = """
import json
from hardware.inventory.vendors.nvidia import NvidiaAccelerators
backend = NvidiaAccelerators()
reading = backend.told(0, "power")
print(json.dumps([backend.get_power_usage(0), reading.value, reading.reason, backend.get_temperature(0)]))
"""
    power, value, reason, temperature = with_stub(code, SIM_NVML_FAIL="nvmlDeviceGetPowerUsage=3")
    assert power is None
    assert value is None
    assert "Not Supported" in reason
    assert temperature == 40.0


def test_older_drivers_still_tell_why_they_throttle(with_stub: Run) -> None:
    assert with_stub(METRICS, SIM_NVML_REASONS="68", SIM_NVML_OLD="1")[-1] == ["sw_power_cap", "thermal"]


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        (0x000, ()),
        (0x001, ()),
        (0x004, ("sw_power_cap",)),
        (0x060, ("thermal",)),
        (0x088, ("hw_slowdown", "power_limit")),
        (0x1004, ("sw_power_cap", "unknown_0x1000")),
    ],
)
def test_throttle_bits_have_names(bits: int, names: tuple[str, ...]) -> None:
    assert throttle_reasons(bits) == names


@pytest.mark.parametrize(
    ("code", "driver", "word"),
    [("9", "missing", "kernel module"), ("4", "denied", "/dev/nvidia"), ("18", "unknown", "versions")],
)
def test_a_library_without_a_working_driver_is_told_apart(with_stub: Run, code: str, driver: str, word: str) -> None:
    facts = vendor(with_stub(DETECT, SIM_NVML_INIT=code))
    assert (facts["library"], facts["driver"]) == ("ok", driver)
    assert word in facts["reason"]


def test_a_device_lost_while_it_is_read_stays_in_the_list_with_the_reason(with_stub: Run) -> None:
    found = with_stub(DETECT, SIM_NVML_COUNT="3", SIM_NVML_LOST="1:6")
    lost = found["accelerators"][1]
    assert lost["memory_bytes"] is None
    assert "lost" in lost["extra_info"]["reason"]
    assert [found["accelerators"][index]["memory_gb"] for index in (0, 2)] == [80.0, 80.0]


def test_a_lost_device_has_no_metrics_and_the_others_keep_theirs(with_stub: Run) -> None:
    code = """
import json
from hardware.inventory.vendors.nvidia import NvidiaAccelerators
backend = NvidiaAccelerators()
before, *others = (backend.get_temperature(1) for _ in range(100))
print(json.dumps([before, others[-1], backend.get_temperature(0)]))
"""
    assert with_stub(code, SIM_NVML_COUNT="2", SIM_NVML_LOST="1:60") == [41.0, None, 40.0]


def test_eight_threads_never_read_another_device(with_stub: Run) -> None:
    code = """
import json
from concurrent.futures import ThreadPoolExecutor
from hardware.inventory.vendors.nvidia import NvidiaAccelerators
backend = NvidiaAccelerators()
def read(index):
    return [[backend.get_temperature(index) - 40, backend.get_power_usage(index) - 100,
             backend.get_memory_usage(index)["used"] / 2**30 - 1, backend.get_utilization(index)["compute"] - 30]
            for _ in range(100)]
with ThreadPoolExecutor(8) as pool:
    results = list(pool.map(read, range(8)))
print(json.dumps([sorted({value for row in rows for value in row}) for rows in results]))
"""
    assert with_stub(code, SIM_NVML_COUNT="8") == [[float(index)] for index in range(8)]


def test_an_index_beyond_the_devices_names_the_range(with_stub: Run) -> None:
    code = """
import json
from hardware.inventory.vendors.nvidia import NvidiaAccelerators
try:
    NvidiaAccelerators().get_temperature(2)
except IndexError as error:
    print(json.dumps(str(error)))
"""
    assert "0 to 1" in with_stub(code, SIM_NVML_COUNT="2")


def test_shut_down_twice_and_used_again(with_stub: Run) -> None:
    code = """
import json
from hardware.inventory.vendors.nvidia import NvidiaAccelerators
backend = NvidiaAccelerators()
backend.get_temperature(0); backend.shutdown(); backend.shutdown()
print(json.dumps(backend.get_temperature(0)))
"""
    assert with_stub(code) == 40.0


def fake_bus(folder: Path, devices: dict[str, tuple[str, str, str]], modules: tuple[str, ...] = ()) -> Path:
    for address, (vendor_id, device_id, class_code) in devices.items():
        device = folder / "sys" / "bus" / "pci" / "devices" / address
        device.mkdir(parents=True)
        for name, text in (("vendor", vendor_id), ("device", device_id), ("class", class_code)):
            (device / name).write_text(text + "\n")
    (folder / "sys" / "bus" / "pci" / "devices").mkdir(parents=True, exist_ok=True)
    (folder / "sys" / "module").mkdir()
    for name in modules:
        (folder / "sys" / "module" / name).mkdir()
    return folder


H200_AND_SWITCH = {
    "0000:17:00.0": ("0x10de", "0x2335", "0x030200"),
    "0000:17:00.1": ("0x10de", "0x0fb9", "0x040300"),
    "0000:07:00.0": ("0x10de", "0x22a3", "0x068000"),
    "0000:00:02.0": ("0x8086", "0x4680", "0x030000"),
}


def without_library(root: Path) -> dict[str, Any]:
    code = f"""{NO_LIBRARY}
import json
from pathlib import Path
from hardware.detection import detect
from hardware.machine import LiveMachine
class Elsewhere(LiveMachine):
    def text(self, path):
        return super().text(path) if path.startswith("/sys") else LiveMachine().text(path)
    def run(self, *words):
        return LiveMachine().run("a-tool-that-is-nowhere")
print(json.dumps(detect(Elsewhere(Path({str(root)!r}))).to_dict()))
"""
    found: dict[str, Any] = python(code)
    return found


def test_a_gpu_without_driver_is_seen_on_the_bus(tmp_path: Path) -> None:
    found = without_library(fake_bus(tmp_path, H200_AND_SWITCH))
    facts = vendor(found)
    assert (facts["hardware"], facts["driver"], facts["library"]) == ("present", "missing", "missing")
    assert facts["state"] == "present but unusable"
    assert facts["on_bus"] == 1
    (device,) = [one for one in found["accelerators"] if one["vendor"] == "NVIDIA"]
    assert device["seen_by"] == "bus"
    assert device["index"] is None
    assert device["memory_bytes"] is None
    assert device["extra_info"] == {"pci_address": "0000:17:00.0", "pci_device_id": "0x2335"}
    assert {one["address"] for one in found["on_bus"]} == {"0000:17:00.0", "0000:00:02.0"}


def test_a_loaded_driver_without_library_is_told_apart(tmp_path: Path) -> None:
    facts = vendor(without_library(fake_bus(tmp_path, H200_AND_SWITCH, modules=("nvidia",))))
    assert (facts["driver"], facts["library"]) == ("ok", "missing")


def test_no_gpu_at_all_is_absent_and_no_bus_is_unknown(tmp_path: Path) -> None:
    absent = vendor(without_library(fake_bus(tmp_path / "machine", {})))
    unknown = vendor(without_library(tmp_path / "nothing"))
    assert (absent["hardware"], absent["state"]) == ("absent", "hardware absent")
    assert (unknown["hardware"], unknown["state"]) == ("unknown", "library missing")


def test_without_the_python_binding_the_reason_names_the_command(with_stub: Run) -> None:
    code = f"""
import sys
sys.modules["pynvml"] = None
{DETECT}
"""
    facts = vendor(with_stub(code))
    assert facts["library"] == "missing"
    assert "pip install nvidia-ml-py" in facts["reason"]


def test_metrics_without_library_are_none() -> None:
    code = f"""{NO_LIBRARY}
import json
from hardware.inventory.vendors.nvidia import NvidiaAccelerators
backend = NvidiaAccelerators()
print(json.dumps([backend.is_available(), backend.get_device_count(), backend.get_temperature(0),
                  backend.get_memory_usage(0), backend.told(0, "memory").reason]))
"""
    available, count, temperature, memory, reason = python(code)
    assert (available, count, temperature, memory) == (False, 0, None, None)
    assert "libnvidia-ml" in reason


@pytest.mark.parametrize(("framework", "name"), [("pytorch", "cuda:3"), ("TensorFlow", "GPU:3")])
def test_frameworks_have_their_own_names_for_a_device(framework: str, name: str) -> None:
    assert NvidiaAccelerators().get_framework_device_string(3, framework) == name


def test_an_unknown_framework_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"Did you mean 'pytorch'.*jax.*onnxruntime"):
        NvidiaAccelerators().get_framework_device_string(0, "pytroch")


@pytest.mark.parametrize(
    ("bits", "architecture", "own", "kind"),
    [
        (5120, 9, True, "HBM"),
        (384, 5, True, "GDDR"),
        (192, 8, True, "GDDR"),
        (64, 3, True, None),
        (128, 9, False, None),
    ],
)
def test_memory_is_told_by_its_bus_and_where_no_card_had_another(bits, architecture, own, kind) -> None:
    assert nvidia._memory_type({"memory_bus_bits": bits, "nvml_architecture": architecture}, own) == kind
