"""Intel GPUs in the files of the drivers i915 and xe in `/sys`, and the NPU in those of intel_vpu (ivpu).

Sources: the kernel's `Documentation/ABI/testing/sysfs-driver-intel-i915-hwmon`, `sysfs-driver-intel-xe-hwmon`,
`drivers/gpu/drm/xe/xe_gt_throttle.c`, `drivers/gpu/drm/i915/gt/intel_gt_sysfs_pm.c` and
`drivers/accel/ivpu/ivpu_sysfs.c`.
"""

from __future__ import annotations

import time
from dataclasses import replace

from ...machine import Machine, SourceReading
from ._kernel_drivers import Card, DriverFiles, driver_version
from ._pci import INTEL_VENDOR_ID, pci_name
from ._tool_values import (
    Extra,
    celsius,
    generation_of,
    given,
    number,
    positive,
    rates,
    share,
    size,
    throttling,
    watts,
)
from .vendor import AcceleratorInfo

_DRM, _ACCEL = "/sys/class/drm", "/sys/class/accel"
_BETWEEN_SAMPLES_S = 0.05


def _growth(machine: Machine, path: str) -> float | None:
    """Return the increase per second of a counter in a file, over 50 ms."""
    first, started = number(machine.text(path)), time.monotonic()
    if first is None:
        return None
    time.sleep(_BETWEEN_SAMPLES_S)
    second = number(machine.text(path))
    elapsed = time.monotonic() - started
    return None if second is None or second < first or elapsed <= 0 else (second - first) / elapsed


class _IntelFiles(DriverFiles):
    """The base class for Intel's drivers."""

    def extra(self, card: Card) -> Extra:
        return super().extra(card) | {"driver": card.driver}

    def named(self, card: Card) -> str:
        """Return the device's name in the PCI id database."""
        kind = self.DEVICE_TYPE.upper()
        return pci_name(self.machine, INTEL_VENDOR_ID, card.device_id) or f"Intel {kind} {card.device_id:#06x}"


class IntelGpuFiles(_IntelFiles):
    """GPUs of i915 and xe."""

    NAME = "sysfs"

    def look(self) -> tuple[Card, ...]:
        """Return the cards before the integrated GPU, whatever their numbers are."""
        # Graphics inside an Intel processor always has this address; a card is behind a bridge.
        found = self.found(_DRM, r"card\d+", INTEL_VENDOR_ID, ("i915", "xe"))
        found = [replace(card, integrated=card.address == "0000:00:02.0") for card in found]
        return tuple(sorted(found, key=lambda card: card.integrated))

    def temperature(self, card: Card) -> SourceReading[float]:
        if card.hwmon is None:
            return SourceReading(value=None, reason="the driver has no temperature sensor for it")
        sensors = {self.machine.text(f"{card.hwmon}/temp{one}_label") or "": one for one in (3, 2, 1)}
        chosen = sensors.get("pkg", sensors.get("", next(iter(sensors.values()))))
        millidegrees = self.machine.text(f"{card.hwmon}/temp{chosen}_input")
        return given(celsius(millidegrees, per=1000), "the driver has no temperature sensor for it")

    def memory(self, card: Card) -> SourceReading[dict[str, int]]:
        total, free = self._memory(card), number(self.machine.text(f"{card.folder}/lmem_avail_bytes"))
        used = None if total is None or free is None else int(total - free)
        return given(share(total, used), f"{card.driver} doesn't report used memory in sysfs")

    def power(self, card: Card) -> SourceReading[float]:
        if card.hwmon is None:
            return SourceReading(value=None, reason="the driver has no power sensor for it")
        microjoules = _growth(self.machine, f"{card.hwmon}/energy1_input")
        return given(watts(microjoules, per=1e6) or None, "the driver doesn't report its energy")

    def utilization(self, card: Card) -> SourceReading[dict[str, float | None]]:
        return SourceReading(value=None, reason="i915 and xe don't report load in sysfs; Level Zero does, for root")

    def throttle(self, card: Card) -> SourceReading[tuple[str, ...]]:
        names = throttling("intel_files")
        # i915, and xe before and since Linux 6.13
        for pattern in ("gt/gt0/throttle_reason_{}", "device/tile0/gt0/freq0/throttle/reason_{}"):
            states = {name: self.machine.number(f"{card.folder}/{pattern.format(name)}") for name in names}
            if any(state is not None for state in states.values()):
                active = (names[name] for name, state in states.items() if state == 1)
                return SourceReading(value=tuple(dict.fromkeys(active)))
        return SourceReading(value=None, reason=f"{card.driver} doesn't report its throttling")

    def _memory(self, card: Card) -> int | None:
        return size(self.machine.text(f"{card.folder}/lmem_total_bytes"))

    def described(self, index: int, card: Card) -> AcceleratorInfo:
        memory, extra = self._memory(card), self.extra(card)
        cap = positive(self.machine.text(f"{card.hwmon}/power1_max"), per=1e6)
        extra |= {} if cap is None else {"power_limit_w": cap}
        if memory is None and "reason" not in extra:
            own = "it has no dedicated memory and uses the system's"
            extra["reason"] = (
                own if card.integrated else f"{card.driver} doesn't report memory in sysfs; Level Zero does"
            )
        return AcceleratorInfo(
            vendor="Intel",
            device_type="gpu",
            model=self.named(card),
            index=index,
            memory_bytes=None if card.integrated else memory,
            memory_type="unified" if card.integrated else None,
            bus_type="integrated" if card.integrated else "pcie",
            pcie_gen=None if card.integrated else generation_of(self.machine.text(f"{card.path}/max_link_speed")),
            driver_version=driver_version(self.machine, card.driver),
            extra_info=extra,
        )


class IntelNpuFiles(_IntelFiles):
    """NPUs of intel_vpu."""

    NAME = "intel_vpu"
    DEVICE_TYPE = "npu"

    def look(self) -> tuple[Card, ...]:
        return tuple(self.found(_ACCEL, r"accel\d+", INTEL_VENDOR_ID, ("intel_vpu",)))

    def utilization(self, card: Card) -> SourceReading[dict[str, float | None]]:
        busy = _growth(self.machine, f"{card.path}/npu_busy_time_us")
        compute = None if busy is None else min(100.0, busy / 1e6 * 100)
        return rates(compute, None, "this version of intel_vpu doesn't report load (Linux 6.11 and later do)")

    def described(self, index: int, card: Card) -> AcceleratorInfo:
        extra = self.extra(card)
        extra.setdefault("reason", "it has no dedicated memory and uses the system's")
        return AcceleratorInfo(
            vendor="Intel",
            device_type="npu",
            model=self.named(card),
            index=index,
            memory_type="unified",
            bus_type="integrated",
            driver_version=driver_version(self.machine, card.driver),
            extra_info=extra,
        )
