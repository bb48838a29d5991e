"""AMD inventory and telemetry, through the real Python binding and a library that calls itself simulated."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import stub_libraries
from stub_libraries import python

from hardware.errors import UsageError
from hardware.inventory.vendors.amd import AmdAccelerators, violation_reasons

ROOT = Path(__file__).parents[2]
Run = Callable[..., Any]


@pytest.fixture(scope="session")
def stub_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stub_libraries.amdsmi(tmp_path_factory.mktemp("amdsmi"))


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
backend = get_accelerator_backend("amd")
print(json.dumps([backend.get_temperature(0), backend.get_memory_usage(0), backend.get_utilization(0),
                  backend.get_power_usage(0), backend.get_throttle_reasons(0)]))
"""


def vendor(inventory: dict[str, Any]) -> dict[str, Any]:
    (facts,) = [one for one in inventory["vendors"] if one["vendor"] == "AMD"]
    return facts


def devices(inventory: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in inventory["accelerators"] if one["vendor"] == "AMD"]


@pytest.mark.parametrize("count", [1, 8])
def test_every_device_is_listed_with_its_figures(with_stub: Run, count: int) -> None:
    found = with_stub(DETECT, SIM_AMDSMI_COUNT=str(count))
    assert [device["index"] for device in devices(found)] == list(range(count))
    first = devices(found)[0]
    assert first["memory_bytes"] == 192 * 2**30
    assert first["compute_capability"] == "gfx942"
    assert first["memory_type"] == "HBM"
    assert first["bandwidth_gbps"] == 5300
    assert (first["bus_type"], first["pcie_gen"]) == ("pcie", 5)
    assert first["extra_info"]["pci_address"] == "0000:10:00.0"
    assert first["extra_info"]["power_limit_w"] == 750
    assert first["extra_info"]["compute_units"] == 304
    assert (vendor(found)["read_through"], vendor(found)["library"]) == ("amdsmi", "ok")


def test_a_simulated_library_is_labelled_and_never_expected_to_compute(with_stub: Run) -> None:
    found = with_stub(DETECT)
    assert devices(found)[0]["simulated"]
    assert vendor(found)["state"] == "simulated"
    assert not found["targets"]["rocm"]["expected"]
    assert "simulated" in found["targets"]["rocm"]["reason"]


def test_metrics_come_in_degrees_bytes_percent_and_watts(with_stub: Run) -> None:
    temperature, memory, utilization, power, reasons = with_stub(METRICS)
    assert temperature == 40.0
    assert memory == {"total": 192 * 2**30, "used": 2**30, "free": 191 * 2**30}
    assert utilization == {"compute": 30.0, "memory": 5.0}
    assert power == 200.0
    assert reasons == []


def test_throttle_reasons_are_those_that_are_active(with_stub: Run) -> None:
    assert with_stub(METRICS, SIM_AMDSMI_HOT="1")[-1] == ["thermal", "power_limit"]


def test_what_the_hardware_does_not_tell_is_none_and_has_a_reason(with_stub: Run) -> None:
    code = """
import json
from hardware.inventory.vendors.amd import AmdAccelerators
backend = AmdAccelerators()
told = backend.told(0, "power")
print(json.dumps([backend.get_power_usage(0), told.value, told.reason, backend.get_temperature(0)]))
"""
    power, value, reason, temperature = with_stub(code, SIM_AMDSMI_FAIL="amdsmi_get_power_info=2")
    assert (power, value, temperature) == (None, None, 40.0)
    assert "NOT_SUPPORTED" in reason


@pytest.mark.parametrize(
    ("code", "driver", "word"),
    [("34", "missing", "kernel module amdgpu"), ("10", "denied", "group render"), ("18", "unknown", "INIT_ERROR")],
)
def test_a_library_without_a_working_driver_is_told_apart(with_stub: Run, code: str, driver: str, word: str) -> None:
    facts = vendor(with_stub(DETECT, SIM_AMDSMI_INIT=code))
    assert (facts["library"], facts["driver"]) == ("ok", driver)
    assert word in facts["reason"]


def test_a_device_lost_while_it_is_read_stays_in_the_list_with_the_reason(with_stub: Run) -> None:
    lost = devices(with_stub(DETECT, SIM_AMDSMI_COUNT="3", SIM_AMDSMI_LOST="1:2"))
    assert "NOT_FOUND" in lost[1]["extra_info"]["reason"]
    assert [lost[index]["memory_gb"] for index in (0, 2)] == [192.0, 192.0]
    assert "reason" not in lost[0]["extra_info"]


def test_a_lost_device_has_no_metrics_and_the_others_keep_theirs(with_stub: Run) -> None:
    code = """
import json
from hardware.inventory.vendors.amd import AmdAccelerators
backend = AmdAccelerators()
before, *others = (backend.get_temperature(1) for _ in range(100))
print(json.dumps([before, others[-1], backend.get_memory_usage(1), backend.get_throttle_reasons(1),
                  backend.get_temperature(0)]))
"""
    assert with_stub(code, SIM_AMDSMI_COUNT="2", SIM_AMDSMI_LOST="1:60") == [41.0, None, None, None, 40.0]


def test_shut_down_twice_and_used_again(with_stub: Run) -> None:
    code = """
import json
from hardware.inventory.vendors.amd import AmdAccelerators
backend = AmdAccelerators()
backend.get_temperature(0); backend.shutdown(); backend.shutdown()
print(json.dumps(backend.get_temperature(0)))
"""
    assert with_stub(code) == 40.0


def test_an_index_beyond_the_devices_names_the_range(with_stub: Run) -> None:
    code = """
import json
from hardware.inventory.vendors.amd import AmdAccelerators
try:
    AmdAccelerators().get_temperature(2)
except IndexError as error:
    print(json.dumps(str(error)))
"""
    assert "0 to 1" in with_stub(code, SIM_AMDSMI_COUNT="2")


def test_rocr_and_hip_variables_hide_devices_one_after_the_other(with_stub: Run) -> None:
    found = devices(with_stub(DETECT, SIM_AMDSMI_COUNT="4", ROCR_VISIBLE_DEVICES="1,2,3", HIP_VISIBLE_DEVICES="0"))
    # Without KFD nobody tells which device a number means.
    assert all("maybe_hidden_by" in one["extra_info"] for one in found)


def test_without_the_library_nothing_is_printed_and_the_reason_names_rocm() -> None:
    facts = vendor(python(DETECT))
    assert (facts["library"], facts["state"]) == ("missing", "hardware absent")
    assert "ROCm" in facts["reason"]


def test_without_the_python_binding_the_reason_names_the_command(stub_folder: Path) -> None:
    code = f"import sys\nsys.modules['amdsmi'] = None\n{DETECT}"
    facts = vendor(python(code, LD_LIBRARY_PATH=str(stub_folder)))
    assert facts["library"] == "missing"
    assert "pip install amdsmi" in facts["reason"]


def test_a_binding_of_another_version_is_a_reason(tmp_path: Path) -> None:
    # A library that has none of the functions: the binding raises AttributeError while it is imported.
    stub_libraries.amdsmi(tmp_path)
    (tmp_path / "empty.c").write_text("int nothing;\n")
    subprocess.run(["gcc", "-shared", "-o", "libamd_smi.so", "empty.c"], cwd=tmp_path, check=True)
    facts = vendor(python(DETECT, LD_LIBRARY_PATH=str(tmp_path)))
    assert facts["library"] == "missing"
    assert "doesn't fit" in facts["reason"]


def test_limits_that_are_not_told_are_no_answer() -> None:
    assert violation_reasons({"active_ppt_pwr": "N/A", "active_socket_thrm": "N/A"}) is None
    assert violation_reasons({"active_ppt_pwr": False, "active_socket_thrm": "N/A"}) == ()


def test_pytorch_calls_a_device_cuda_and_openvino_has_no_name_for_it() -> None:
    backend = AmdAccelerators()
    assert backend.get_framework_device_string(3) == "cuda:3"
    with pytest.raises(UsageError, match=r"pytorch.*onnxruntime"):
        backend.get_framework_device_string(0, "openvino")
