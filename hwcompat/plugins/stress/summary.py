"""Compute the result of one device from the child's events and the samples. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from hwcompat.hardware.backends.factory import declarations_of, vendor_of
from hwcompat.hardware.inventory.system.storage.storage_device import listed_speeds

from .disk_reads import AT_RANDOM, WRITES, disk_of
from .limits import accelerator_bandwidth, accelerator_limit, memory_limit, processor_limit
from .stress_child import RAM, SUSTAINED, StressOptions
from .stress_result import (
    Bandwidth,
    DeviceResult,
    Figure,
    ProfilePoint,
    Rate,
    StressEnding,
    range_of,
    stability_of,
    throttled_share,
)
from .stress_targets import is_on_host, is_storage

if TYPE_CHECKING:
    from hwcompat.hardware.detection import HardwareInfo
    from hwcompat.hardware.inventory.system.processor_telemetry import CpuTelemetry
    from hwcompat.hardware.inventory.telemetry import DeviceSample, Sample
    from hwcompat.hardware.inventory.vendors.vendor import AcceleratorInfo

Event = Mapping[str, Any]

_METRICS = ("temperature_c", "power_w", "compute_percent", "memory_used_bytes", "throttle_reasons")


def summarized(
    options: StressOptions,
    events: Sequence[Event],
    samples: Sequence[Sample],
    *,
    inventory: HardwareInfo,
    devices: Sequence[AcceleratorInfo],
    ending: StressEnding,
    reason: str,
) -> DeviceResult:
    """Return the result of one device. Unknown values are `None`; a device with wrong results has no rate."""
    target = options.target
    info = next((event for event in events if event["event"] == "device"), {})
    device = _accelerator(target, info, devices)
    good = ending is StressEnding.MEASURED
    points = _profile(events, samples, target, device)
    loaded = [point for point in points if point.phase == SUSTAINED]
    power = range_of([point.power_w for point in loaded])
    sustained = next(
        (str(one["load"]) for one in events if one["event"] == "phase" and one["phase"] == SUSTAINED), ""
    )
    rates: list[Rate] = []
    bandwidths: list[Bandwidth] = []
    for event in events if good else ():
        if event["event"] == "rate":
            rates.append(_rate(event, _limit(event, target, inventory, info, device)))
        elif event["event"] == "bandwidth":
            bandwidths.append(_bandwidth(event, _limit(event, target, inventory, info, device)))
    tflops = next((one.tflops for one in rates if one.precision == sustained), None)
    pieces = [event["work"] / event["seconds"] for event in _slices(events) if event["phase"] == SUSTAINED]
    return DeviceResult(
        target=target,
        ending=ending,
        reason=reason,
        device_name=inventory.cpu.model if target == "cpu" and inventory.cpu.model else str(info.get("name", "")),
        library=next((f"{name} {info[name]}" for name in ("torch", "jax", "tensorflow") if name in info), ""),
        simulated=declarations_of(target).SIMULATED or (device is not None and device.simulated),
        sustained=sustained,
        tflops=tflops,
        bandwidth_gbps=next((one.gbps for one in bandwidths if one.kernel == sustained), None),
        warmup_s=options.warmup_s,
        duration_s=options.duration_s,
        processor_share=_processor_share(target, sustained, events, inventory) if good else None,
        rates=tuple(rates),
        bandwidths=tuple(bandwidths),
        stability=stability_of(pieces) if pieces and good else None,
        gflops_per_watt=round(1000 * tflops / power.mean, 2) if tflops and power and power.mean else None,
        temperature_c=range_of([point.temperature_c for point in loaded]),
        power_w=power,
        throttled=throttled_share(loaded),
        telemetry_reasons=_telemetry_reasons(samples, target, device),
        profile=points,
    )


def _processor_share(target: str, sustained: str, events: Sequence[Event], inventory: HardwareInfo) -> float | None:
    threads = inventory.cpu.usable_threads or inventory.cpu.threads
    if not is_on_host(target) or is_storage(target) or not threads:
        return None
    done = [event for event in events if sustained in (event.get("precision"), event.get("kernel"))]
    done = [event for event in done if event.get("seconds")]
    return round(min(1.0, done[0]["processor_s"] / done[0]["seconds"] / threads), 3) if done else None


def _slices(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if event["event"] == "slice" and event["seconds"] > 0]


def _accelerator(target: str, info: Event, devices: Sequence[AcceleratorInfo]) -> AcceleratorInfo | None:
    """Return torch's device in the driver's list: by identity if both report it, otherwise by index."""
    own = [one for one in devices if one.vendor == vendor_of(target)]
    for key in ("uuid", "pci_address"):
        if info.get(key):
            same = [one for one in own if str(one.extra_info.get(key, "")).lower() == str(info[key]).lower()]
            if same:
                return same[0]
    index = info.get("index")
    return next((one for one in own if one.index == index), None) if len(own) > 1 else (own[0] if own else None)


def _limit(event: Event, target: str, inventory: HardwareInfo, info: Event, device: AcceleratorInfo | None) -> Figure:
    """Return the limit of the hardware for the rate of an event."""
    if target == RAM:
        return memory_limit(inventory.memory)
    if is_storage(target):
        return _disk_limit(str(event["kernel"]), str(disk_of(target)), inventory)
    if declarations_of(target).SIMULATED:
        return Figure(reason="a simulated device has no limit")
    name = str(info.get("name", ""))
    if event["event"] == "bandwidth":
        return accelerator_bandwidth(name, device)
    precision = str(event["precision"])
    if target == "cpu":
        return processor_limit(inventory.cpu, precision)
    return accelerator_limit(name, precision, device)


def _disk_limit(kernel: str, path: str, inventory: HardwareInfo) -> Figure:
    """Return the maker's speed of the disk."""
    disk = next((one for one in inventory.storage if one.device_path == path), None)
    if kernel == AT_RANDOM:
        return Figure(reason="makers publish reads per second")
    listed = None if disk is None else listed_speeds(disk.model)
    if listed is None:
        return Figure(reason="its maker's figure isn't known")
    speed = listed["max_write_mbps" if kernel == WRITES else "max_read_mbps"]
    return Figure(value=float(speed) / 1000, source=str(listed["source"]))


def _rate(event: Event, limit: Figure) -> Rate:
    if event.get("reason"):
        return Rate(precision=str(event["precision"]), reason=str(event["reason"]))
    tflops = event["work"] * event["calls"] / event["seconds"] / 1e12
    return Rate(
        precision=str(event["precision"]),
        tflops=_digits(tflops),
        size=event["size"],
        products=event["calls"],
        seconds=round(event["seconds"], 3),
        limit=limit,
        limit_fraction=limit.fraction(tflops),
    )


def _bandwidth(event: Event, limit: Figure) -> Bandwidth:
    gbps = event["work"] * event["calls"] / event["seconds"] / 1e9
    return Bandwidth(
        kernel=str(event["kernel"]),
        gbps=_digits(gbps),
        array_bytes=event["array_bytes"],
        passes=event["calls"],
        seconds=round(event["seconds"], 3),
        limit=limit,
        limit_fraction=limit.fraction(gbps),
        reason=str(event.get("remark", "")),
    )


def _digits(value: float) -> float:
    """Round to four significant digits."""
    return float(f"{value:.4g}")


def _profile(
    events: Sequence[Event], samples: Sequence[Sample], target: str, device: AcceleratorInfo | None
) -> tuple[ProfilePoint, ...]:
    """Return a point for each sample after the device was found, with the rate since the sample before."""
    phases = [event for event in events if event["event"] in ("phase", "rate", "bandwidth", "end")]
    begin = next((event["at"] for event in events if event["event"] == "phase"), None)
    points: list[ProfilePoint] = []
    before = begin or 0.0
    for sample in samples:
        at = datetime.fromisoformat(sample.time).timestamp()
        if begin is None or at < begin:
            continue
        now = next((event for event in reversed(phases) if event["at"] <= at), {})
        if now.get("event") == "end":
            break
        since = [
            one
            for one in _slices(events)
            if before < one["at"] <= at and (one["load"], one["phase"]) == (now.get("load"), now.get("phase"))
        ]
        before = at
        rate = sum(one["work"] for one in since) / sum(one["seconds"] for one in since) if since else None
        unit = 1e9 if now.get("unit") == "bytes" else 1e12
        own = _telemetry(sample, target, device)
        values: dict[str, Any] = {name: getattr(own, name, None) for name in _METRICS}
        if is_on_host(target):
            values["memory_used_bytes"] = sample.host.memory_used_bytes
        points.append(
            ProfilePoint(
                elapsed_s=round(at - begin, 2),
                phase=str(now.get("phase", "")),
                rate=None if rate is None else _digits(rate / unit),
                **values,
            )
        )
    return tuple(points)


def _telemetry(sample: Sample, target: str, device: AcceleratorInfo | None) -> CpuTelemetry | DeviceSample | None:
    """Return the sample of the target's own device; None if no driver reports it."""
    if is_storage(target):
        return None
    if is_on_host(target):
        return sample.host.cpu
    own = device and (device.vendor, device.index)
    return next((one for one in sample.devices if (one.vendor, one.index) == own), None)


def _telemetry_reasons(samples: Sequence[Sample], target: str, device: AcceleratorInfo | None) -> dict[str, str]:
    """Return why metrics are unknown, by name, from the last sample."""
    if not samples:
        return {"all": "no samples were taken"}
    if is_storage(target):
        return {"all": "disks aren't asked for it during a test"}
    if is_on_host(target):
        return dict(samples[-1].host.cpu.reasons)
    if device is None:
        return {"all": f"no driver reports telemetry of a {vendor_of(target) or 'vendor'} device"}
    reason = getattr(_telemetry(samples[-1], target, device), "reason", "")
    return {"all": reason} if reason else {}
