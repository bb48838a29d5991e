"""What a child said and what was sampled meanwhile, as the result of one device. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from hardware.backends.factory import declarations_of, vendor_of

from .child import RAM, SUSTAINED
from .limits import accelerator_bandwidth, accelerator_limit, memory_limit, processor_limit
from .result import (
    Bandwidth,
    DeviceResult,
    Ending,
    Limit,
    ProfilePoint,
    Rate,
    range_of,
    stability_of,
    throttled_share,
)

if TYPE_CHECKING:
    from hardware.accelerators.base import AcceleratorInfo
    from hardware.detection import HardwareInfo
    from hardware.sampling import Sample

Event = Mapping[str, Any]

_HOST = ("cpu", RAM)


def _is_on_host(target: str) -> bool:
    return target in _HOST or declarations_of(target).SIMULATED


def summarised(
    target: str,
    events: Sequence[Event],
    samples: Sequence[Sample],
    *,
    inventory: HardwareInfo,
    devices: Sequence[AcceleratorInfo],
    ending: Ending,
    reason: str,
    warmup_s: float,
    duration_s: float,
) -> DeviceResult:
    """The result of one device. What can't be told is `None`; a device that computed wrongly has no rate."""
    told = next((event for event in events if event["event"] == "device"), {})
    device = _accelerator(target, told, devices)
    good = ending is Ending.MEASURED
    rates = tuple(_rate(event, target, inventory, told) for event in events if event["event"] == "rate")
    bandwidths = tuple(
        _bandwidth(event, target, inventory, told, device) for event in events if event["event"] == "bandwidth"
    )
    points = _profile(events, samples, target, device)
    loaded = [point for point in points if point.phase == SUSTAINED]
    power = range_of([point.power_w for point in loaded])
    sustained = next(
        (str(one["load"]) for one in events if one["event"] == "phase" and one["phase"] == SUSTAINED), ""
    )
    tflops = next((one.tflops for one in rates if one.precision == sustained), None) if good else None
    pieces = [event["work"] / event["seconds"] for event in _slices(events) if event["phase"] == SUSTAINED]
    return DeviceResult(
        target=target,
        ending=ending,
        reason=reason,
        device_name=inventory.cpu.model if target == "cpu" and inventory.cpu.model else str(told.get("name", "")),
        simulated=declarations_of(target).SIMULATED or (device is not None and device.simulated),
        sustained=sustained,
        tflops=tflops,
        bandwidth_gbps=next((one.gbps for one in bandwidths if one.kernel == sustained), None) if good else None,
        warmup_s=warmup_s,
        duration_s=duration_s,
        processor_share=_processor_share(target, sustained, events, inventory) if good else None,
        rates=rates if good else (),
        bandwidths=bandwidths if good else (),
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
    if not _is_on_host(target) or not threads:
        return None
    done = [event for event in events if sustained in (event.get("precision"), event.get("kernel"))]
    done = [event for event in done if event.get("seconds")]
    return round(min(1.0, done[0]["processor_s"] / done[0]["seconds"] / threads), 3) if done else None


def _slices(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if event["event"] == "slice" and event["seconds"] > 0]


def _accelerator(target: str, told: Event, devices: Sequence[AcceleratorInfo]) -> AcceleratorInfo | None:
    """The device of the driver's list that torch's is: by identity where both tell, else by number."""
    own = [one for one in devices if one.vendor == vendor_of(target)]
    for key in ("uuid", "pci_address"):
        if told.get(key):
            same = [one for one in own if str(one.extra_info.get(key, "")).lower() == str(told[key]).lower()]
            if same:
                return same[0]
    index = told.get("index")
    return next((one for one in own if one.index == index), None) if len(own) > 1 else (own[0] if own else None)


def _rate(event: Event, target: str, inventory: HardwareInfo, told: Event) -> Rate:
    precision = str(event["precision"])
    if event.get("reason"):
        return Rate(precision=precision, reason=str(event["reason"]))
    tflops = event["work"] * event["calls"] / event["seconds"] / 1e12
    if target == "cpu":
        limit = processor_limit(inventory.cpu, precision)
    elif declarations_of(target).SIMULATED:
        limit = Limit(reason="a simulated device has no limit of its own")
    else:
        limit = accelerator_limit(str(told.get("name", "")), precision)
    return Rate(
        precision=precision,
        tflops=_digits(tflops),
        size=event["size"],
        products=event["calls"],
        seconds=round(event["seconds"], 3),
        limit=limit,
        limit_fraction=limit.fraction(tflops),
    )


def _bandwidth(
    event: Event, target: str, inventory: HardwareInfo, told: Event, device: AcceleratorInfo | None
) -> Bandwidth:
    gbps = event["work"] * event["calls"] / event["seconds"] / 1e9
    if target == RAM:
        limit = memory_limit(inventory.memory)
    elif declarations_of(target).SIMULATED:
        limit = Limit(reason="a simulated device has no limit of its own")
    else:
        limit = accelerator_bandwidth(str(told.get("name", "")), device)
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
    """Four significant digits."""
    return float(f"{value:.4g}")


def _profile(
    events: Sequence[Event], samples: Sequence[Sample], target: str, device: AcceleratorInfo | None
) -> tuple[ProfilePoint, ...]:
    """A point for each sample after the device was found, with the rate of the pieces since the sample before."""
    pieces = _slices(events)
    phases = [event for event in events if event["event"] in ("phase", "rate", "bandwidth", "end")]
    begin = next((event["at"] for event in events if event["event"] == "phase"), None)
    points: list[ProfilePoint] = []
    before = begin or 0.0
    for sample in samples:
        at = datetime.fromisoformat(sample.time).timestamp()
        if begin is None or at < begin:
            continue
        now = [event for event in phases if event["at"] <= at]
        running = now[-1] if now and now[-1]["event"] == "phase" else None
        if now and now[-1]["event"] == "end":
            break
        since = [one for one in pieces if before < one["at"] <= at and running and _same(one, running)]
        before = at
        rate = sum(one["work"] for one in since) / sum(one["seconds"] for one in since) if since else None
        unit = 1e9 if running and running.get("unit") == "bytes" else 1e12
        phase = "" if running is None else str(running["phase"])
        values = _sampled(sample, target, device)
        rate_text = None if rate is None else _digits(rate / unit)
        points.append(ProfilePoint(elapsed_s=round(at - begin, 2), phase=phase, rate=rate_text, **values))
    return tuple(points)


def _same(piece: Event, running: Event) -> bool:
    return (piece["load"], piece["phase"]) == (running["load"], running["phase"])


def _sampled(sample: Sample, target: str, device: AcceleratorInfo | None) -> dict[str, Any]:
    """What a sample tells of the target's own device; nothing where nobody watches it."""
    if _is_on_host(target):
        cpu = sample.host.cpu
        return {
            "temperature_c": cpu.temperature_c,
            "power_w": cpu.power_w,
            "compute_percent": cpu.compute_percent,
            "memory_used_bytes": sample.host.memory_used_bytes,
            "throttle_reasons": cpu.throttle_reasons,
        }
    for one in sample.devices:
        if device is not None and (one.vendor, one.index) == (device.vendor, device.index):
            names = ("temperature_c", "power_w", "compute_percent", "memory_used_bytes", "throttle_reasons")
            return {name: getattr(one, name) for name in names}
    return {}


def _telemetry_reasons(samples: Sequence[Sample], target: str, device: AcceleratorInfo | None) -> dict[str, str]:
    """Why a metric wasn't told, by its name, as the last sample says."""
    if not samples:
        return {"all": "nothing was sampled meanwhile"}
    last = samples[-1]
    if _is_on_host(target):
        return dict(last.host.cpu.reasons)
    if device is None:
        return {"all": f"no driver lists telemetry of a {vendor_of(target) or 'vendor'} device here"}
    reasons = [one.reason for one in last.devices if (one.vendor, one.index) == (device.vendor, device.index)]
    return {"all": reasons[0]} if reasons and reasons[0] else {}
