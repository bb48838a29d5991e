"""Intel inventory and telemetry, through the real Python binding of Level Zero and a library that calls itself
simulated."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import stub_libraries
from stub_libraries import python

from hardware.inventory.vendors import _levelzero
from hardware.inventory.vendors._kernel_drivers import driver_version
from hardware.inventory.vendors.intel import IntelAccelerators
from hardware.inventory.vendors.vendor import AcceleratorInfo
from hardware.machine import LiveMachine

ROOT = Path(__file__).parents[2]
Run = Callable[..., Any]

# On Linux pyzes loads the loader from one place only, where a test can't put anything.
REDIRECT = """
import ctypes
real = ctypes.CDLL
def redirected(name, *rest, **named):
    return real({library!r} if "ze_loader" in str(name) else name, *rest, **named)
ctypes.CDLL = redirected
"""
METRICS = """
import json
from hardware.inventory.vendors.intel import IntelAccelerators
backend = IntelAccelerators()
print(json.dumps([[backend.get_temperature(i), backend.get_memory_usage(i), backend.get_utilization(i),
                   backend.get_power_usage(i), backend.get_throttle_reasons(i)]
                  for i in range(backend.get_device_count())]))
"""
LIST = """
import json
from dataclasses import asdict
from hardware.inventory.vendors.intel import IntelAccelerators
backend = IntelAccelerators()
print(json.dumps([asdict(backend.facts()) | {"state": backend.facts().state},
                  [asdict(one) for one in backend.list_devices()]]))
"""


@pytest.fixture(scope="session")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stub_libraries.level_zero(tmp_path_factory.mktemp("levelzero"))


@pytest.fixture
def with_stub(stub: Path) -> Run:
    def run(code: str, **environment: str) -> Any:
        return python(REDIRECT.format(library=str(stub)) + code, **environment)

    return run


def test_every_device_is_listed_with_its_figures(with_stub: Run) -> None:
    facts, devices = with_stub(LIST, SIM_ZES_COUNT="8")
    assert (facts["read_through"], facts["library"], facts["state"]) == ("Level Zero", "ok", "simulated")
    assert [one["index"] for one in devices] == list(range(8))
    first, last = devices[0], devices[-1]
    assert (first["memory_bytes"], first["memory_type"]) == (16 << 30, "GDDR")
    assert (first["bus_type"], first["pcie_gen"]) == ("pcie", 4)
    assert first["extra_info"]["pci_address"] == "0000:10:00.0"
    assert (last["memory_bytes"], last["memory_type"], last["bus_type"]) == (None, "unified", "integrated")


def test_metrics_come_in_degrees_bytes_percent_and_watts(with_stub: Run) -> None:
    first, second, inside = with_stub(METRICS, SIM_ZES_COUNT="3")
    assert first[0] == 40.0
    assert first[1] == {"total": 16 << 30, "used": 1 << 30, "free": 15 << 30}
    assert first[2]["compute"] == pytest.approx(30.0)
    assert first[3] == pytest.approx(100.0)
    assert first[4] == ["thermal"]
    assert (second[0], second[1]["used"], second[3]) == (41.0, 2 << 30, pytest.approx(101.0))
    assert inside[1] is None


def test_what_is_kept_from_ordinary_users_is_none_with_a_reason(with_stub: Run) -> None:
    code = """
import json
from hardware.inventory.vendors.intel import IntelAccelerators
backend = IntelAccelerators()
print(json.dumps([backend.get_utilization(0), backend.told(0, "utilization").reason, backend.get_temperature(0)]))
"""
    rates, reason, temperature = with_stub(code, SIM_ZES_USER="1")
    assert (rates, temperature) == (None, 40.0)
    assert "INSUFFICIENT_PERMISSIONS" in reason


@pytest.mark.parametrize(
    ("code", "driver", "word"), [(0x78000001, "missing", "i915 or xe"), (0x70010000, "denied", "group render")]
)
def test_a_library_without_a_working_driver_is_told_apart(with_stub: Run, code: int, driver: str, word: str) -> None:
    facts, devices = with_stub(LIST, SIM_ZES_INIT=str(code))
    assert (facts["library"], facts["driver"], devices) == ("ok", driver, [])
    assert word in facts["reason"]


def test_a_lost_device_has_no_metrics_and_the_others_keep_theirs(with_stub: Run) -> None:
    first, lost, third = with_stub(METRICS, SIM_ZES_COUNT="3", SIM_ZES_LOST="1:1")
    assert lost == [None] * 5
    assert (first[0], third[0]) == (40.0, 42.0)


def test_a_device_lost_while_it_is_read_stays_in_the_list_with_the_reason(with_stub: Run) -> None:
    _, devices = with_stub(LIST, SIM_ZES_COUNT="3", SIM_ZES_LOST="1:2")
    assert len(devices) == 3
    assert devices[1]["memory_bytes"] is None
    assert "DEVICE_LOST" in devices[1]["extra_info"]["reason"]


def test_without_the_loader_the_reason_names_its_package() -> None:
    facts, devices = python(REDIRECT.format(library="/nowhere/libze_loader.so.1") + LIST)
    assert (facts["library"], devices) == ("missing", [])
    assert "pip install pyzes" in facts["reason"] or "libze1" in facts["reason"]


def test_without_the_python_binding_the_reason_names_the_command() -> None:
    facts, _ = python(f"import sys\nsys.modules['pyzes'] = None\n{LIST}")
    assert facts["library"] == "missing"
    assert "pip install pyzes" in facts["reason"]


def test_a_mask_of_gpus_says_nothing_of_an_npu(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = AcceleratorInfo(vendor="Intel", device_type="gpu", model="Arc A770", index=0)
    npu = AcceleratorInfo(vendor="Intel", device_type="npu", model="AI Boost", index=1)
    monkeypatch.setenv("ZE_AFFINITY_MASK", "1")
    hidden, told = IntelAccelerators().finished((gpu, npu))
    assert hidden.extra_info == {"hidden_by": "ZE_AFFINITY_MASK=1"}
    assert told == npu


def test_a_counter_is_read_twice_within_a_tenth_of_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(_levelzero.time, "sleep", slept.append)
    samples = iter([SimpleNamespace(timestamp=100, energy=50), SimpleNamespace(timestamp=110, energy=80)])
    assert _levelzero._rate(lambda: next(samples), "energy") == 3.0
    assert 0 < sum(slept) <= 0.1, "a monitor asks several times a second"
    still = SimpleNamespace(timestamp=100, energy=50)
    assert _levelzero._rate(lambda: still, "energy") is None


def test_a_driver_of_the_kernels_own_has_the_kernels_version(tmp_path: Path) -> None:
    own = tmp_path / "sys" / "module" / "xe" / "version"
    own.parent.mkdir(parents=True)
    own.write_text("1.2.3\n")
    here = LiveMachine(tmp_path)
    assert driver_version(here, "xe") == "1.2.3"
    assert driver_version(here, "i915") == f"Linux {here.host().release}"


def test_an_npu_that_is_gone_after_a_shutdown_is_listed_no_more(tmp_path: Path) -> None:
    device = tmp_path / "sys" / "devices" / "0000:00:0b.0"
    accel = tmp_path / "sys" / "class" / "accel" / "accel0"
    for folder in (device, accel, tmp_path / "sys" / "drivers" / "intel_vpu", tmp_path / "dev" / "accel"):
        folder.mkdir(parents=True)
    for name, text in (("vendor", "0x8086"), ("device", "0x7d1d"), ("class", "0x120000")):
        (device / name).write_text(f"{text}\n")
    (device / "driver").symlink_to(tmp_path / "sys" / "drivers" / "intel_vpu")
    (accel / "device").symlink_to(device)
    (tmp_path / "dev" / "accel" / "accel0").touch()
    backend = IntelAccelerators(LiveMachine(tmp_path))
    assert [(one.device_type, one.seen_by) for one in backend.list_devices()] == [("npu", "driver")]
    shutil.rmtree(accel)
    shutil.rmtree(device)
    backend.shutdown()
    assert backend.list_devices() == ()
