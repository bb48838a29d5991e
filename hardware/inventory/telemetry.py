"""Repeated samples of all accelerators, the processor and main memory.

Each vendor is read in a thread of its own: a driver that hangs or a lost device is reported and delays nothing else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from ..machine import LiveMachine, Machine
from .system.main_memory import read_memory
from .system.processor import read_cpu
from .system.processor_telemetry import CpuTelemetry, CpuTelemetryReader
from .vendors import registered_vendors
from .vendors.vendor import AcceleratorBackend, AcceleratorInfo

SCHEMA_VERSION = 1
_LONGEST_WAIT_S = 0.8


@dataclass(frozen=True, kw_only=True)
class DeviceSample:
    """One sample of an accelerator in °C, percent, bytes and W; None for unknown values.

    `reason` is why no value is available; `throttle_reasons` is empty for a device that isn't throttled. `processes`
    are the ids of processes that compute on it, where the driver lists them, each with its memory.
    """

    vendor: str
    index: int
    device_type: str
    model: str
    temperature_c: float | None = None
    compute_percent: float | None = None
    memory_percent: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_w: float | None = None
    throttle_reasons: tuple[str, ...] | None = None
    processes: tuple[tuple[int, int | None], ...] | None = None
    reason: str = ""
    simulated: bool = False

    @property
    def is_silent(self) -> bool:
        """Return whether no value is available."""
        data = (self.temperature_c, self.compute_percent, self.memory_used_bytes, self.power_w, self.throttle_reasons)
        return all(one is None for one in data)


@dataclass(frozen=True, kw_only=True)
class HostSample:
    """One sample of the processor and main memory. `memory_used_bytes` is the memory that isn't available to
    programs."""

    cpu_model: str
    cpu: CpuTelemetry
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    memory_reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One sample. `elapsed_s` counts from the sampler's start; `vendors` names why a vendor couldn't be read."""

    time: str
    elapsed_s: float
    host: HostSample
    devices: tuple[DeviceSample, ...]
    vendors: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values in the shape of `schemas/sample.json`."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self)}


class Sampler:
    """Samples of a machine until it is closed. Devices are those that drivers list at the start."""

    def __init__(self, machine: Machine | None = None) -> None:
        self.machine = machine or LiveMachine()
        self._started = time.monotonic()
        self.cpu_model = read_cpu(self.machine).model
        self._cpu = CpuTelemetryReader(self.machine)
        self._failures = dict(registered_vendors().failures)
        self._vendors: list[_Vendor] = []
        for name, kind in registered_vendors().found.items():
            try:
                backend = kind(self.machine)
                devices = tuple(one for one in backend.list_devices() if one.index is not None)
            except Exception as error:  # a plugin may raise anything, and must not affect the others
                self._failures[name] = f"{type(error).__name__}: {error}"
                continue
            if devices:
                self._vendors.append(_Vendor(backend, devices))
        self._cpu.read()  # means need a previous sample

    @property
    def devices(self) -> tuple[AcceleratorInfo, ...]:
        """Return the accelerators that are read."""
        return tuple(device for vendor in self._vendors for device in vendor.devices)

    def sample(self) -> Sample:
        """Return a sample. Never raises; unknown values are None with their reason."""
        deadline = time.monotonic() + _LONGEST_WAIT_S
        for vendor in self._vendors:
            vendor.ask()
        host = self._host()
        return Sample(
            time=datetime.now(UTC).isoformat(timespec="milliseconds"),
            elapsed_s=round(time.monotonic() - self._started, 3),
            host=host,
            devices=tuple(one for vendor in self._vendors for one in vendor.answer(deadline)),
            vendors=self._failures,
        )

    def _host(self) -> HostSample:
        cpu = self._cpu.read()
        memory = read_memory(self.machine)
        total = memory.usable_bytes
        used = None
        if total is not None and total == memory.cgroup_limit_bytes:
            used = memory.cgroup_used_bytes
        elif memory.total_bytes is not None and memory.available_bytes is not None:
            used = memory.total_bytes - memory.available_bytes
        return HostSample(
            cpu_model=self.cpu_model,
            cpu=cpu,
            memory_used_bytes=used,
            memory_total_bytes=total,
            memory_reason=memory.reason,
        )

    def close(self) -> None:
        """Close the vendors' libraries, except one that hangs."""
        for vendor in self._vendors:
            vendor.close()


class _Vendor:
    """A vendor with a thread that reads all its devices on request, one request at a time."""

    def __init__(self, backend: AcceleratorBackend, devices: tuple[AcceleratorInfo, ...]) -> None:
        self.backend = backend
        self.devices = devices
        self._last: tuple[DeviceSample, ...] = ()
        self._missing_reasons: dict[int, str] = {}
        self._wanted, self._done = threading.Event(), threading.Event()
        self._done.set()
        self._asked_at = time.monotonic()
        self._over = False
        threading.Thread(target=self._work, name=f"sampling {backend.VENDOR_NAME}", daemon=True).start()

    def ask(self) -> None:
        if self._done.is_set():
            self._done.clear()
            self._asked_at = time.monotonic()
            self._wanted.set()

    def answer(self, deadline: float) -> tuple[DeviceSample, ...]:
        if self._done.wait(max(deadline - time.monotonic(), 0.0)):
            return self._last
        waited = time.monotonic() - self._asked_at
        reason = f"the driver hasn't answered for {waited:.0f} s" if waited >= 1 else "the driver hasn't answered yet"
        return tuple(_sample_of(device, reason=reason) for device in self.devices)

    def close(self) -> None:
        self._over = True
        self._wanted.set()
        if self._done.wait(_LONGEST_WAIT_S):
            self.backend.shutdown()

    def _work(self) -> None:
        while self._wanted.wait() and not self._over:
            self._wanted.clear()
            self._last = tuple(self._read(device) for device in self.devices)
            self._done.set()

    def _read(self, device: AcceleratorInfo) -> DeviceSample:
        index = device.index or 0
        try:
            found = _metrics(self.backend, device)
            if not found.is_silent:
                self._missing_reasons.pop(index, None)
                return found
            if index not in self._missing_reasons:  # once, because it takes programs and time
                self._missing_reasons[index] = self._missing_reason(index)
            return _sample_of(device, reason=self._missing_reasons[index])
        except Exception as error:  # a driver or plugin may raise anything, which is reported as the reason
            return _sample_of(device, reason=f"{type(error).__name__}: {error}")

    def _missing_reason(self, index: int) -> str:
        """Return why a device reports nothing, from its vendor's description of the device or the driver."""
        mine = [one for one in self.backend.list_devices() if one.index == index]
        if not mine:
            return self.backend.facts().reason or "the driver no longer lists it"
        return str(mine[0].extra_info.get("reason") or self.backend.reading(index, "temperature").reason)


def _sample_of(device: AcceleratorInfo, **values: Any) -> DeviceSample:
    return DeviceSample(
        vendor=device.vendor,
        index=device.index or 0,
        device_type=device.device_type,
        model=device.model,
        simulated=device.simulated,
        **values,
    )


def _metrics(backend: AcceleratorBackend, device: AcceleratorInfo) -> DeviceSample:
    index = device.index or 0
    memory = backend.get_memory_usage(index) or {}
    use = backend.get_utilization(index) or {}
    return _sample_of(
        device,
        temperature_c=backend.get_temperature(index),
        compute_percent=use.get("compute"),
        memory_percent=use.get("memory"),
        memory_used_bytes=memory.get("used"),
        memory_total_bytes=memory.get("total"),
        power_w=backend.get_power_usage(index),
        throttle_reasons=backend.get_throttle_reasons(index),
        processes=backend.reading(index, "processes").value,
    )


def memory_in_use(vendor: str, card: int) -> int | None:
    """Return the bytes that programs hold on a vendor's GPU with this number in the inventory, None if unknown."""
    sampler = Sampler()
    try:
        found = [one for one in sampler.sample().devices if (one.vendor, one.index) == (vendor, card)]
    finally:
        sampler.close()
    return found[0].memory_used_bytes if found else None
