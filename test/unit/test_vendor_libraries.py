"""Inventory and telemetry through the vendors' real Python bindings and libraries that call themselves simulated.

Threads read for half a second; with `make test-threads` for a minute.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import stub_libraries
from stub_libraries import python

READINGS = Path(__file__).parents[1] / "fixtures" / "simulated_libraries"
READ = """
import json
from dataclasses import asdict
from hardware.inventory.vendors.{module} import {kind}
backend = {kind}()
temperatures = [str(backend.get_temperature(1)) for _ in range({reads})]
devices = [asdict(one) for one in backend.list_devices()]
metrics = [[backend.get_temperature(i), backend.get_memory_usage(i), backend.get_utilization(i),
            backend.get_power_usage(i), backend.get_throttle_reasons(i)] for i in range(backend.get_device_count())]
reasons = [backend.reading(0, metric).reason for metric in ("utilization", "power")] if metrics else []
facts = asdict(backend.facts())
for name in ("hardware", "on_bus") if facts["library"] == "ok" else ("hardware", "on_bus", "driver"):
    del facts[name]  # these are of the machine on which the test runs
def asked(index):
    try:
        return backend.get_temperature(index)
    except IndexError as error:
        return str(error)
beyond = asked(99)
backend.shutdown(); backend.shutdown()
again = asked(0) if metrics else None
print(json.dumps(dict(temperatures=sorted(set(temperatures)), devices=devices, metrics=metrics, reasons=reasons,
                      facts=facts, beyond=beyond, again=again)))
"""
DETECT = """
import json
from dataclasses import asdict
from hardware.detection import detect, targets
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


KINDS = {
    "nvidia": ("NvidiaAccelerators", stub_libraries.nvml),
    "amd": ("AmdAccelerators", stub_libraries.amdsmi),
    "intel": ("IntelAccelerators", stub_libraries.level_zero),
}


def run(vendor: str, built: Path, code: str, variables: dict[str, str]) -> Any:
    """What code prints in a process that loads the simulated library."""
    if vendor == "intel":
        return python(REDIRECT.format(library=str(built)) + code, **variables)
    return python(code, LD_LIBRARY_PATH=str(built), **variables)


def rounded(value: Any) -> Any:
    """A reading without the digits of rates that differ from run to run."""
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items() if one is not None}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return round(value) if isinstance(value, float) else value


@pytest.mark.parametrize("vendor", KINDS)
def test_readings_of_a_vendors_library_are_those_that_were_reviewed(vendor, tmp_path, update_golden):
    kind, build = KINDS[vendor]
    path, built = READINGS / f"{vendor}.json", build(tmp_path)
    cases = json.loads(path.read_text(encoding="utf-8"))
    differing = []
    for case in cases:
        before = f"import sys\nsys.modules[{case['without']!r}] = None\n" if "without" in case else ""
        reads = 100 if case["case"] == "one is lost later" else 0
        code = before + READ.format(module=vendor, kind=kind, reads=reads)
        reading = rounded(run(vendor, built, code, case["variables"]))
        differing += [case["case"]] if reading != case["reading"] else []
        case["reading"] = reading
    if update_golden:
        path.write_text(json.dumps(cases, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert update_golden or differing == []


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
    amd, intel = (READ.format(module=one, kind=KINDS[one][0], reads=0) for one in ("amd", "intel"))
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
    for vendor in ("nvidia", "amd"):
        kind, build = KINDS[vendor]
        code = READ_IN_THREADS.format(module=vendor, kind=kind, seconds=seconds)
        devices = {"SIM_NVML_COUNT": "8", "SIM_AMDSMI_COUNT": "8"}
        wrong, reads, left = run(vendor, build(tmp_path), code, devices)
        print(f"{vendor}: {sum(reads)} rounds of reading, {wrong} wrong")
        assert (wrong, left) == (0, 1)
        assert all(reads)
