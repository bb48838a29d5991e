"""Inventory and telemetry through the vendors' real Python bindings and libraries that call themselves simulated.

Threads read for half a second; with `make test-threads` for a minute.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import stub_libraries
from stub_libraries import python

READ = """
import json
from dataclasses import asdict
from hardware.inventory.vendors.{module} import {kind}
backend = {kind}()
temperatures = [backend.get_temperature(1) for _ in range({reads})]
devices = [asdict(one) for one in backend.list_devices()]
metrics = [[backend.get_temperature(i), backend.get_memory_usage(i), backend.get_utilization(i),
            backend.get_power_usage(i), backend.get_throttle_reasons(i)] for i in range(backend.get_device_count())]
reasons = [backend.told(0, metric).reason for metric in ("utilization", "power")] if metrics else []
facts = asdict(backend.facts()) | {{"state": backend.facts().state}}
try:
    beyond = backend.get_temperature(99)
except IndexError as error:
    beyond = str(error)
backend.shutdown(); backend.shutdown()
again = backend.get_temperature(0) if metrics else None
print(json.dumps(dict(temperatures=temperatures, devices=devices, metrics=metrics, reasons=reasons, facts=facts,
                      beyond=beyond, again=again)))
"""
DETECT = """
import json
from dataclasses import asdict
from hardware.detect import detect, targets
found = detect()
print(json.dumps([found.to_dict(), {one.target: asdict(one) for one in targets(found)}]))
"""
READ_IN_THREADS = """
import json, threading, time
from collections import Counter
from hardware.inventory.vendors.{module} import {kind}
backend = {kind}()
end = time.monotonic() + {seconds}
wrong, reads, lock = Counter(), Counter(), threading.Lock()

def read(start):
    mine, faults, index = Counter(), Counter(), start
    while time.monotonic() < end:
        index = (index + 3) % 8
        found = [backend.get_temperature(index) - 40, backend.get_power_usage(index) - {watts},
                 backend.get_memory_usage(index)["used"] / 2**30 - 1,
                 backend.get_utilization(index)["compute"] - 30, backend.get_utilization(index)["memory"] - 5]
        mine[index] += 1
        if any(value != index for value in found):
            faults[index] += 1
    with lock:
        wrong.update(faults); reads.update(mine)

threads = [threading.Thread(target=read, args=(start,)) for start in range(16)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps([sum(wrong.values()), [reads[index] for index in range(8)], threading.active_count()]))
"""
# On Linux pyzes loads the loader from one place only, where a test can't put anything.
REDIRECT = """
import ctypes
real = ctypes.CDLL
def redirected(name, *rest, **named):
    return real({library!r} if "ze_loader" in str(name) else name, *rest, **named)
ctypes.CDLL = redirected
"""


@dataclass(frozen=True, kw_only=True)
class Vendor:
    """A vendor's file, its simulated library, and what that reports of its first device."""

    module: str
    kind: str
    variables: str
    """What the names of the variables that the simulated library follows begin with."""
    build: Callable[[Path], Path]
    binding: str
    install: str
    read_through: str
    first: dict[str, Any]
    extra: dict[str, Any]
    metrics: list[Any]
    not_running: dict[str, tuple[str, str]]
    """The state of the driver and a word of the reason, by the code with which the library doesn't start."""
    not_read: tuple[dict[str, str], int, str]
    """Variables with which one of utilization (0) and power (1) isn't read, which, and a word of its reason."""
    lost: tuple[str, str]


VENDORS = [
    Vendor(
        module="nvidia",
        kind="NvidiaAccelerators",
        variables="SIM_NVML_",
        build=stub_libraries.nvml,
        binding="pynvml",
        install="pip install nvidia-ml-py",
        read_through="NVML",
        first={"memory_bytes": 80 << 30, "compute_capability": "9.0", "memory_type": "HBM", "pcie_gen": 5,
               "bandwidth_gbps": 3352.3, "bus_type": "pcie"},
        extra={"cuda_driver_version": "13.1"},
        metrics=[40.0, {"total": 80 << 30, "used": 1 << 30, "free": 79 << 30}, {"compute": 30.0, "memory": 5.0},
                 100.0, []],
        not_running={"9": ("missing", "kernel module"), "4": ("denied", "/dev/nvidia"),
                     "18": ("unknown", "versions")},
        not_read=({"SIM_NVML_FAIL": "nvmlDeviceGetPowerUsage=3"}, 1, "Not Supported"),
        lost=("1:6", "lost"),
    ),
    Vendor(
        module="amd",
        kind="AmdAccelerators",
        variables="SIM_AMDSMI_",
        build=stub_libraries.amdsmi,
        binding="amdsmi",
        install="pip install amdsmi",
        read_through="amdsmi",
        first={"memory_bytes": 192 << 30, "compute_capability": "gfx942", "memory_type": "HBM", "pcie_gen": 5,
               "bandwidth_gbps": 5300, "bus_type": "pcie"},
        extra={"pci_address": "0000:10:00.0", "power_limit_w": 750, "compute_units": 304},
        metrics=[40.0, {"total": 192 << 30, "used": 1 << 30, "free": 191 << 30}, {"compute": 30.0, "memory": 5.0},
                 200.0, []],
        not_running={"34": ("missing", "kernel module amdgpu"), "10": ("denied", "group render"),
                     "18": ("unknown", "INIT_ERROR")},
        not_read=({"SIM_AMDSMI_FAIL": "amdsmi_get_power_info=2"}, 1, "NOT_SUPPORTED"),
        lost=("1:2", "NOT_FOUND"),
    ),
    Vendor(
        module="intel",
        kind="IntelAccelerators",
        variables="SIM_ZES_",
        build=stub_libraries.level_zero,
        binding="pyzes",
        install="pip install pyzes",
        read_through="Level Zero",
        first={"memory_bytes": 16 << 30, "memory_type": "GDDR", "pcie_gen": 4, "bus_type": "pcie"},
        extra={"pci_address": "0000:10:00.0"},
        metrics=[40.0, {"total": 16 << 30, "used": 1 << 30, "free": 15 << 30},
                 {"compute": pytest.approx(30.0), "memory": None}, pytest.approx(100.0), ["thermal"]],
        not_running={str(0x78000001): ("missing", "i915 or xe"), str(0x70010000): ("denied", "group render")},
        not_read=({"SIM_ZES_USER": "1"}, 0, "INSUFFICIENT_PERMISSIONS"),
        lost=("1:2", "DEVICE_LOST"),
    ),
]  # fmt: skip


class Stub:
    """A vendor's simulated library in a folder, with which code runs in a process of its own."""

    def __init__(self, vendor: Vendor, folder: Path) -> None:
        self.vendor = vendor
        self.built = vendor.build(folder)

    def run(self, code: str, **environment: str) -> Any:
        if self.vendor.module == "intel":
            return python(REDIRECT.format(library=str(self.built)) + code, **environment)
        return python(code, LD_LIBRARY_PATH=str(self.built), **environment)

    def read(self, before: str = "", reads: int = 0, /, **settings: str) -> Any:
        """What the vendor's file reads; the names of settings lack what they all begin with, or `SIM_`."""
        names = {
            name if name.startswith("SIM_") else self.vendor.variables + name: settings[name] for name in settings
        }
        code = READ.format(module=self.vendor.module, kind=self.vendor.kind, reads=reads)
        return self.run(before + code, **names)


@pytest.fixture(scope="module", params=VENDORS, ids=lambda one: one.module)
def stub(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Stub:
    return Stub(request.param, tmp_path_factory.mktemp(request.param.module))


def test_devices_metrics_and_errors_are_those_of_the_library(stub):
    found = stub.read(COUNT="8")
    vendor, first = stub.vendor, found["devices"][0]
    assert [one["index"] for one in found["devices"]] == list(range(8))
    assert {name: first[name] for name in vendor.first} == vendor.first
    assert {name: first["extra_info"][name] for name in vendor.extra} == vendor.extra
    assert (first["simulated"], found["facts"]["state"], found["facts"]["library"]) == (True, "simulated", "ok")
    assert found["facts"]["read_through"] == vendor.read_through
    assert found["metrics"][0] == vendor.metrics
    assert [one[0] for one in found["metrics"]] == [40.0 + index for index in range(8)]
    assert "0 to 7" in found["beyond"]
    assert found["again"] == 40.0, "after two shutdowns"
    if vendor.module == "intel":
        last = found["devices"][-1]
        assert (last["memory_bytes"], last["memory_type"], last["bus_type"]) == (None, "unified", "integrated")
        assert found["metrics"][-1][1] is None


def test_a_metric_that_is_not_read_is_none_with_its_reason(stub):
    settings, which, word = stub.vendor.not_read
    found = stub.read(**settings)
    temperature, _, *others = found["metrics"][0]
    assert (temperature, others[which]) == (40.0, None)
    assert word in found["reasons"][which]


def test_a_library_that_does_not_start_tells_the_state_of_the_driver(stub):
    for code, (driver, word) in stub.vendor.not_running.items():
        found = stub.read(INIT=code)
        facts = found["facts"]
        assert (facts["library"], facts["driver"], found["devices"]) == ("ok", driver, []), code
        assert word in facts["reason"], code


def test_a_lost_device_stays_listed_and_the_others_keep_their_figures(stub):
    when, word = stub.vendor.lost
    found = stub.read(COUNT="3", LOST=when)  # while it is described
    first, lost, third = found["devices"]
    assert stub.vendor.module == "amd" or lost["memory_bytes"] is None  # amdsmi loses it after its memory was read
    assert word in lost["extra_info"]["reason"]
    assert "reason" not in first["extra_info"]
    assert first["memory_bytes"] == stub.vendor.first["memory_bytes"]
    assert found["metrics"][1] == [None] * 5
    assert [found["metrics"][0][0], found["metrics"][2][0]] == [40.0, 42.0]
    assert third["index"] == 2
    later = stub.read("", 100, COUNT="3", LOST="1:60")["temperatures"]  # while its temperature is read again
    assert (later[0], later[-1]) == (41.0, None)


def test_a_missing_binding_or_library_is_a_reason_that_says_what_to_install(stub):
    without_binding = stub.read(f"import sys\nsys.modules[{stub.vendor.binding!r}] = None\n")["facts"]
    assert without_binding["library"] == "missing"
    assert stub.vendor.install in without_binding["reason"]


def test_no_target_is_expected_on_a_simulated_device(tmp_path):
    nvml, amdsmi = stub_libraries.nvml(tmp_path), stub_libraries.amdsmi(tmp_path)
    found, targets = python(
        DETECT, LD_LIBRARY_PATH=f"{nvml}:{amdsmi}", SIM_AMDSMI_COUNT="4",
        ROCR_VISIBLE_DEVICES="1,2,3", HIP_VISIBLE_DEVICES="0",
    )  # fmt: skip
    assert {one["vendor"] for one in found["accelerators"]} >= {"NVIDIA", "AMD"}
    for target in ("cuda", "rocm"):
        assert not targets[target]["expected"]
        assert "simulated" in targets[target]["reason"]
    # Without KFD it isn't known which device a number means.
    amd = [one for one in found["accelerators"] if one["vendor"] == "AMD"]
    assert all("maybe_hidden_by" in one["extra_info"] for one in amd)


def test_throttle_reasons_are_read_from_older_drivers_and_from_amds_violations(tmp_path):
    nvidia, amd = Stub(VENDORS[0], tmp_path), Stub(VENDORS[1], tmp_path)
    assert nvidia.read(REASONS="68", OLD="1")["metrics"][0][-1] == ["sw_power_cap", "thermal"]
    assert amd.read(HOT="1")["metrics"][0][-1] == ["thermal", "power_limit"]


def test_without_the_library_the_reason_names_its_package(tmp_path):
    amd, intel = (READ.format(module=one.module, kind=one.kind, reads=0) for one in VENDORS[1:])
    facts = python(amd)["facts"]
    assert (facts["library"], facts["state"]) == ("missing", "hardware absent")
    assert "ROCm" in facts["reason"]
    facts = python(REDIRECT.format(library="/nowhere/libze_loader.so.1") + intel)["facts"]
    assert facts["library"] == "missing"
    assert "pip install pyzes" in facts["reason"] or "libze1" in facts["reason"]
    # A library that has none of the functions: the binding raises AttributeError while it is imported.
    (tmp_path / "empty.c").write_text("int nothing;\n")
    subprocess.run(["gcc", "-shared", "-o", "libamd_smi.so", "empty.c"], cwd=tmp_path, check=True)
    facts = python(amd, LD_LIBRARY_PATH=str(tmp_path))["facts"]
    assert facts["library"] == "missing"
    assert "doesn't fit" in facts["reason"]


def test_sixteen_threads_never_read_another_device(tmp_path):
    seconds = float(os.environ.get("THREAD_SECONDS", "0.5"))
    for vendor in VENDORS[:2]:
        values = {"module": vendor.module, "kind": vendor.kind, "watts": vendor.metrics[3], "seconds": seconds}
        code = READ_IN_THREADS.format(**values)
        wrong, reads, left = Stub(vendor, tmp_path).run(code, **{f"{vendor.variables}COUNT": "8"})
        print(f"{vendor.module}: {sum(reads)} rounds of reading, {wrong} wrong")
        assert (wrong, left) == (0, 1)
        assert all(reads)
