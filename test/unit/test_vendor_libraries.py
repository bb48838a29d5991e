"""Inventory and telemetry through the vendors' real Python bindings and libraries that call themselves simulated.

Threads read for half a second; with `make test-threads` for a minute.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import stub_libraries
from stub_libraries import python

READINGS = Path(__file__).parents[1] / "fixtures" / "simulated_libraries"
BINDINGS = {"nvidia": "pynvml", "amd": "amdsmi", "intel": "pyzes"}
READ = """
import json
from dataclasses import asdict
from hardware.inventory.vendors.{module} import {kind}
backend = {kind}()
temperatures = [str(backend.get_temperature(1)) for _ in range({reads})]
devices = [asdict(one) for one in backend.list_devices()]
metrics = [[backend.get_temperature(i), backend.get_memory_usage(i), backend.get_utilization(i),
            backend.get_power_usage(i), backend.get_throttle_reasons(i)] for i in range(backend.get_device_count())]
reasons = [backend.told(0, metric).reason for metric in ("utilization", "power")] if metrics else []
facts = asdict(backend.facts())
for name in ("hardware", "on_bus") if facts["library"] == "ok" else ("hardware", "on_bus", "driver"):
    del facts[name]  # these are of the machine on which the test runs
try:
    beyond = backend.get_temperature(99)
except IndexError as error:
    beyond = str(error)
backend.shutdown(); backend.shutdown()
again = backend.get_temperature(0) if metrics else None
print(json.dumps(dict(temperatures=sorted(set(temperatures)), devices=devices, metrics=metrics, reasons=reasons,
                      facts=facts, beyond=beyond, again=again)))
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
watts = backend.get_power_usage(0)
end = time.monotonic() + {seconds}
wrong, reads, lock = Counter(), Counter(), threading.Lock()

def read(start):
    mine, faults, index = Counter(), Counter(), start
    while time.monotonic() < end:
        index = (index + 3) % 8
        found = [backend.get_temperature(index) - 40, backend.get_power_usage(index) - watts,
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
    """A vendor's file, its simulated library, and the cases in which it is read."""

    module: str
    kind: str
    build: Callable[[Path], Path]
    variables: str
    """What the names of the variables that the simulated library follows begin with."""
    cases: dict[str, dict[str, str]]
    """Variables without what all begin with, by what they stand for."""

    def run(self, built: Path, code: str, case: dict[str, str]) -> Any:
        settings = {self.variables + name: value for name, value in case.items()}
        if self.module == "intel":
            return python(REDIRECT.format(library=str(built)) + code, **settings)
        return python(code, LD_LIBRARY_PATH=str(built), **settings)


NO_BINDING = "no binding"
CASES = {NO_BINDING: {}, "eight devices": {"COUNT": "8"}, "one is lost later": {"COUNT": "3", "LOST": "1:60"}}
VENDORS = [
    Vendor(
        module="nvidia",
        kind="NvidiaAccelerators",
        build=stub_libraries.nvml,
        variables="SIM_NVML_",
        cases=CASES
        | {
            "one is lost while it is described": {"COUNT": "3", "LOST": "1:6"},
            "no power": {"FAIL": "nvmlDeviceGetPowerUsage=3"},
            "an older driver that throttles": {"REASONS": "68", "OLD": "1"},
            "no driver": {"INIT": "9"},
            "no permission": {"INIT": "4"},
            "another version": {"INIT": "18"},
        },
    ),
    Vendor(
        module="amd",
        kind="AmdAccelerators",
        build=stub_libraries.amdsmi,
        variables="SIM_AMDSMI_",
        cases=CASES
        | {
            "one is lost while it is described": {"COUNT": "3", "LOST": "1:2"},
            "no power": {"FAIL": "amdsmi_get_power_info=2"},
            "throttling": {"HOT": "1"},
            "no driver": {"INIT": "34"},
            "no permission": {"INIT": "10"},
            "an error": {"INIT": "18"},
        },
    ),
    Vendor(
        module="intel",
        kind="IntelAccelerators",
        build=stub_libraries.level_zero,
        variables="SIM_ZES_",
        cases=CASES
        | {
            "one is lost while it is described": {"COUNT": "3", "LOST": "1:2"},
            "an ordinary user": {"USER": "1"},
            "no driver": {"INIT": str(0x78000001)},
            "no permission": {"INIT": str(0x70010000)},
        },
    ),
]


def rounded(value: Any) -> Any:
    """A reading without the digits of rates that differ from run to run."""
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items() if one is not None}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return round(value) if isinstance(value, float) else value


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda one: one.module)
def test_readings_of_a_vendors_library_are_those_that_were_reviewed(vendor, tmp_path, update_golden):
    built, found = vendor.build(tmp_path), {}
    for name, case in vendor.cases.items():
        reads = 100 if case.get("LOST") == "1:60" else 0
        code = READ.format(module=vendor.module, kind=vendor.kind, reads=reads)
        before = f"import sys\nsys.modules[{BINDINGS[vendor.module]!r}] = None\n" if name == NO_BINDING else ""
        found[name] = rounded(vendor.run(built, before + code, case))
    path = READINGS / f"{vendor.module}.json"
    if update_golden:
        path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert found == json.loads(path.read_text(encoding="utf-8"))


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


def test_without_the_library_the_reason_names_its_package(tmp_path):
    amd, intel = (READ.format(module=one.module, kind=one.kind, reads=0) for one in VENDORS[1:])
    facts = python(amd)["facts"]
    assert facts["library"] == "missing"
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
        code = READ_IN_THREADS.format(module=vendor.module, kind=vendor.kind, seconds=seconds)
        wrong, reads, left = vendor.run(vendor.build(tmp_path), code, {"COUNT": "8"})
        print(f"{vendor.module}: {sum(reads)} rounds of reading, {wrong} wrong")
        assert (wrong, left) == (0, 1)
        assert all(reads)
