"""Processor telemetry: utilization, frequency and temperature from psutil, power and throttling from Linux files.

Sources: the kernel's `Documentation/ABI/testing/sysfs-class-powercap`; the counters of throttling are those of
`arch/x86/kernel/cpu/mce/therm_throt.c`.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import Any

from ...machine import LiveMachine, Machine, SourceReading
from .main_memory import Psutil

_SENSORS = ("coretemp", "k10temp", "zenpower", "x86_pkg_temp")
_POWERCAP = "/sys/class/powercap"
_CPUS = "/sys/devices/system/cpu"


@dataclass(frozen=True, kw_only=True)
class CpuTelemetry:
    """One sample of the processor; None for unknown values, with `reasons` by the field's name.

    Utilization in percent of all threads and power in W are means since the previous sample, so the first has none.
    """

    compute_percent: float | None = None
    frequency_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    throttle_reasons: tuple[str, ...] | None = None
    reasons: dict[str, str] = field(default_factory=dict)


class CpuTelemetryReader:
    """Reader of repeated samples, which keeps the counters of the previous one. Not thread-safe."""

    def __init__(self, machine: Machine | None = None) -> None:
        self.machine = machine or LiveMachine()
        self._times: list[float] | None = None
        self._energy: tuple[float, dict[str, int]] | None = None
        self._throttled: int | None = None

    def read(self) -> CpuTelemetry:
        """Return a sample. Never raises."""
        reasons: dict[str, str] = {}
        values: dict[str, Any] = {}
        for name, one in (
            ("compute_percent", self._use()),
            ("frequency_mhz", self._frequency()),
            ("temperature_c", self._temperature()),
            ("power_w", self._power()),
            ("throttle_reasons", self._throttling()),
        ):
            values[name] = one.value
            if one.value is None and one.reason:
                reasons[name] = one.reason
        return CpuTelemetry(**values, reasons=reasons)

    def _use(self) -> SourceReading[float]:
        reading = self.machine.library(Psutil).ask("times")
        if reading.value is None:
            return reading
        before, self._times = self._times, reading.value
        if before is None or reading.value[1] <= before[1]:
            return SourceReading(value=None, reason="known from the second sample on")
        share = (reading.value[0] - before[0]) / (reading.value[1] - before[1])
        return SourceReading(value=round(100 * min(max(share, 0.0), 1.0), 1))

    def _frequency(self) -> SourceReading[float]:
        """Return the mean over processors."""
        reading = self.machine.library(Psutil).ask("frequency")
        return SourceReading(value=reading.value, reason=reading.reason or "the system doesn't report the frequency")

    def _temperature(self) -> SourceReading[float]:
        """Return the maximum of the processor's own sensor."""
        reading = self.machine.library(Psutil).ask("temperatures").value or {}
        found = [one for name, chip in reading.items() if name in _SENSORS or name.startswith("cpu") for one in chip]
        if not found:
            return SourceReading(value=None, reason="no processor sensor found (virtual machines have none)")
        return SourceReading(value=round(max(found), 1))

    def _power(self) -> SourceReading[float]:
        zones = [name for name in self.machine.names(_POWERCAP) or () if re.fullmatch(r"intel-rapl:\d+", name)]
        packages = [
            one for one in zones if (self.machine.text(f"{_POWERCAP}/{one}/name") or "").startswith("package")
        ]
        if not packages:
            return SourceReading(value=None, reason="no RAPL counter found (virtual machines have none)")
        now, counts = time.monotonic(), {}
        for one in packages:
            count = self.machine.number(f"{_POWERCAP}/{one}/energy_uj")
            if count is None:
                return SourceReading(value=None, reason=f"{_POWERCAP}/{one}/energy_uj is readable by root only")
            counts[one] = count
        before, self._energy = self._energy, (now, counts)
        if before is None or before[1].keys() != counts.keys() or now <= before[0]:
            return SourceReading(value=None, reason="known from the second sample on")
        used = 0
        for one, count in counts.items():
            step = count - before[1][one]
            if step < 0:  # the counter wrapped
                step += self.machine.number(f"{_POWERCAP}/{one}/max_energy_range_uj") or 0
            used += max(step, 0)
        return SourceReading(value=round(used / 1e6 / (now - before[0]), 1))

    def _throttling(self) -> SourceReading[tuple[str, ...]]:
        names = [name for name in self.machine.names(_CPUS) or () if re.fullmatch(r"cpu\d+", name)]
        read = (self.machine.number(f"{_CPUS}/{name}/thermal_throttle/core_throttle_count") for name in names)
        counts = [one for one in read if one is not None]
        if not counts:
            return SourceReading(value=None, reason="no throttling counter found")
        before, self._throttled = self._throttled, sum(counts)
        if before is None:
            return SourceReading(value=None, reason="known from the second sample on")
        return SourceReading(value=("thermal",) if sum(counts) > before else ())
