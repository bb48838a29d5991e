"""A stress run of an H100 beside another GPU, made of events and samples."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from recorded_machines import machine as computer

from hardware.detection import HardwareInfo, detect
from hardware.inventory.system.processor_telemetry import CpuTelemetry
from hardware.inventory.telemetry import DeviceSample, HostSample, Sample
from hardware.inventory.vendors.vendor import (
    AcceleratorInfo,
    DriverState,
    HardwareState,
    LibraryState,
    VendorFacts,
)
from hardware.software import TorchBuild
from hwcompat.plugins.stress.stress_child import StressOptions
from hwcompat.plugins.stress.stress_result import DeviceResult, StressEnding, StressRun
from hwcompat.plugins.stress.summary import summarized

START = 1_700_000_000.0


@functools.cache
def xeon() -> HardwareInfo:
    return detect(computer("machines/xeon-two-sockets"))


def machine(*, torch_kind: str = "cuda", count: int = 2) -> HardwareInfo:
    states = {"hardware": HardwareState.PRESENT, "driver": DriverState.OK, "library": LibraryState.OK}
    devices = tuple(
        AcceleratorInfo(vendor="NVIDIA", device_type="gpu", model="GPU", index=one) for one in range(count)
    )
    torch = TorchBuild(version="2.13.0", **({torch_kind: "1"} if torch_kind != "cpu" else {}))
    vendors = (VendorFacts(vendor="NVIDIA", **states),)
    return replace(xeon(), accelerators=devices, vendors=vendors, torch=torch)


def event(kind: str, at: float, /, **values: Any) -> dict[str, Any]:
    return {"event": kind, "at": START + at, **values}


EVENTS = (
    event("started", -9),
    event("device", -1, name="NVIDIA H100 80GB HBM3", index=0, uuid="GPU-B"),
    event("phase", 0, phase="warm-up", load="float32", unit="operations"),
    event("slice", 1.5, phase="warm-up", load="float32", seconds=0.5, work=5e12),
    event("phase", 2, phase="sustained", load="float32", unit="operations"),
    *(event("slice", 2.5 + one, phase="sustained", load="float32", seconds=0.5, work=20e12) for one in range(4)),
    event("rate", 6, precision="float32", size=8192, work=1e12, calls=80, seconds=2.0, processor_s=0.1),
    event("rate", 6, precision="tf32", reason="it has none"),
    event("phase", 6, phase="short", load="copy", unit="bytes"),
    event("slice", 6.5, phase="short", load="copy", seconds=0.5, work=1e12),
    event(
        "bandwidth",
        7,
        kernel="copy",
        array_bytes=2**30,
        work=2**31,
        calls=100,
        seconds=0.1,
        remark="",
        processor_s=0.0,
    ),
    event("end", 8),
)


def sample(at: float, *devices: DeviceSample) -> Sample:
    cpu = CpuTelemetry(reasons={"power_w": "no counter"})
    host = HostSample(cpu_model="", cpu=cpu, memory_used_bytes=1, memory_total_bytes=2)
    moment = datetime.fromtimestamp(START + at, UTC).isoformat(timespec="milliseconds")
    return Sample(time=moment, elapsed_s=at, host=host, devices=devices)


def gpu(index: int, **values: Any) -> DeviceSample:
    return DeviceSample(vendor="NVIDIA", index=index, device_type="gpu", model="GPU", **values)


DEVICES = [
    AcceleratorInfo(vendor="NVIDIA", device_type="gpu", model="GPU", index=index, extra_info={"uuid": uuid})
    for index, uuid in enumerate(("GPU-A", "GPU-B"))
]


SAMPLES = [
    sample(at, gpu(0, power_w=1.0), gpu(1, temperature_c=50.0 + at, power_w=400.0, throttle_reasons=held))
    for at, held in ((-5, ()), (1, ()), (3, ()), (4, ("thermal",)), (5, ("thermal",)), (6.9, ()))
]


def summary(
    ending: StressEnding = StressEnding.MEASURED, reason: str = "", target: str = "cuda:0", devices: Any = DEVICES
) -> DeviceResult:
    options = StressOptions(target=target, warmup_s=2, duration_s=4)
    return summarized(options, EVENTS, SAMPLES, inventory=machine(), devices=devices, ending=ending, reason=reason)


def report(*results: DeviceResult) -> dict[str, Any]:
    run = StressRun(
        started_at="2026-01-02T03:04:05+00:00", host={"cpu": "A"}, versions={}, interval_s=1.0, results=results
    )
    return json.loads(json.dumps(run.to_dict()))  # type: ignore[no-any-return]
