"""Intel GPUs as the drivers i915 and xe show them in `/sys`, and the NPU as intel_vpu (ivpu) does.

Sources: the kernel's `Documentation/ABI/testing/sysfs-driver-intel-i915-hwmon`, `sysfs-driver-intel-xe-hwmon`,
`drivers/gpu/drm/xe/xe_gt_throttle.c`, `drivers/gpu/drm/i915/gt/intel_gt_sysfs_pm.c` and
`drivers/accel/ivpu/ivpu_sysfs.c`.
"""

from __future__ import annotations

import re
import threading
import time
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from ..machine import Machine, Reading
from ._figures import celsius, drawn, generation_of, given, number, pci_address, positive, rates, share, size, text
from ._pci import INTEL_VENDOR_ID, PciNames
from ._sources import Source
from .base import AcceleratorInfo

_DRM, _ACCEL = "/sys/class/drm", "/sys/class/accel"
_BETWEEN_SAMPLES_S = 0.05

THROTTLE_FILES = {
    "pl1": "power_limit",
    "pl2": "power_limit",
    "pl4": "current_limit",
    "thermal": "thermal",
    "prochot": "thermal",
    "ratl": "reliability",
    "vr_thermalert": "thermal",
    "vr_tdc": "current_limit",
}
"""What the drivers' names mean: sustained and burst power, peak current, running average of the temperature."""

Extra = dict[str, str | int | float | bool]


@dataclass(frozen=True, kw_only=True)
class Card:
    """A device of a driver. `may_open` is `None` where its node wasn't given to this container."""

    path: str
    address: str
    device_id: int
    driver: str
    node: str
    may_open: bool | None
    hwmon: str | None

    @property
    def integrated(self) -> bool:
        """Graphics inside an Intel processor have had this address since the first; a card is behind a bridge."""
        return self.address == "0000:00:02.0"


def gpu_cards(machine: Machine) -> tuple[Card, ...]:
    """GPUs by address: the integrated one is not the first where its number isn't."""
    found = [
        card
        for name in machine.names(_DRM) or ()
        if re.fullmatch(r"card\d+", name)
        and (card := _card(machine, f"{_DRM}/{name}", ("i915", "xe"), "renderD")) is not None
    ]
    return tuple(sorted(found, key=lambda card: (card.integrated, card.address)))


def npu_cards(machine: Machine) -> tuple[Card, ...]:
    """NPUs by address."""
    found = [
        card
        for name in machine.names(_ACCEL) or ()
        if re.fullmatch(r"accel\d+", name) and (card := _card(machine, f"{_ACCEL}/{name}", ("intel_vpu",), "accel"))
    ]
    return tuple(sorted(found, key=lambda card: card.address))


def _card(machine: Machine, folder: str, drivers: tuple[str, ...], node: str) -> Card | None:
    path = f"{folder}/device"
    address = pci_address((machine.link(path) or "").rpartition("/")[2])
    device_id = machine.number(f"{path}/device", 16)
    driver = (machine.link(f"{path}/driver") or "").rpartition("/")[2]
    if machine.number(f"{path}/vendor", 16) != INTEL_VENDOR_ID or device_id is None or address is None:
        return None
    if driver not in drivers:
        return None
    if node == "accel":
        device = f"/dev/accel/{folder.rpartition('/')[2]}"
    else:
        names = machine.names(f"{path}/drm") or ()
        device = next((f"/dev/dri/{name}" for name in names if name.startswith(node)), "")
    monitors = machine.names(f"{path}/hwmon") or ()
    return Card(
        path=folder,
        address=address,
        device_id=device_id,
        driver=driver,
        node=device,
        may_open=machine.may_open(device) if device else None,
        hwmon=f"{path}/hwmon/{monitors[0]}" if monitors else None,
    )


def pci_name(machine: Machine, device_id: int) -> str | None:
    """The device's name in the PCI id database."""
    told: Any = machine.library(PciNames).ask("names", [[INTEL_VENDOR_ID, device_id]]).value or []
    return next((name for vendor, device, name in told if (vendor, device) == (INTEL_VENDOR_ID, device_id)), None)


def _growth(machine: Machine, path: str) -> float | None:
    """How much a counter in a file grows in a second, over 50 ms."""
    first, started = number(machine.text(path)), time.monotonic()
    if first is None:
        return None
    time.sleep(_BETWEEN_SAMPLES_S)
    second = number(machine.text(path))
    elapsed = time.monotonic() - started
    return None if second is None or second < first or elapsed <= 0 else (second - first) / elapsed


class _Files(Source):
    """What a driver has in `/sys`, looked for once until `close`: what a device is doesn't change."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._lock = threading.Lock()
        self._every: tuple[Card, ...] | None = None

    @abstractmethod
    def _look(self) -> tuple[Card, ...]: ...

    def _known(self) -> tuple[Card, ...]:
        with self._lock:
            if self._every is None:
                self._every = self._look()
            return self._every

    def close(self) -> None:
        with self._lock:
            self._every = None

    def cards(self) -> tuple[Card, ...]:
        """Those whose device node this container was given."""
        return tuple(card for card in self._known() if card.may_open is not None)

    def count(self) -> Reading[int]:
        every, listed = self._known(), len(self.cards())
        if every and not listed:
            reason = f"{every[0].node or 'the device node'} isn't there: was it given to this container?"
            return Reading(value=None, reason=reason)
        return given(listed or None, "the driver has no device")

    def card(self, index: int) -> Card | None:
        """The device at this index, `None` if it is gone."""
        cards = self.cards()
        return cards[index] if index < len(cards) else None

    def _gone(self, index: int) -> Reading[Any]:
        return Reading(value=None, reason=f"device {index} isn't there any more")

    def _nothing(self, index: int, kind: str) -> AcceleratorInfo:
        extra: Extra = {"reason": self._gone(index).reason}
        return AcceleratorInfo(vendor="Intel", device_type=kind, model="unknown", index=index, extra_info=extra)

    def _extra(self, card: Card) -> Extra:
        extra: Extra = {"pci_address": card.address, "pci_device_id": f"{card.device_id:#06x}", "driver": card.driver}
        if card.may_open is False:
            extra["reason"] = f"{card.node} can't be opened by this user: join group render"
        return extra


class IntelGpuFiles(_Files):
    """GPUs through i915 and xe."""

    NAME = "sysfs"

    def _look(self) -> tuple[Card, ...]:
        return gpu_cards(self.machine)

    def temperature(self, index: int) -> Reading[float]:
        card = self.card(index)
        if card is None or card.hwmon is None:
            return Reading(value=None, reason="the driver has no sensor of temperature for it")
        sensors = {self.machine.text(f"{card.hwmon}/temp{one}_label") or "": one for one in (3, 2, 1)}
        chosen = sensors.get("pkg", sensors.get("", next(iter(sensors.values()))))
        millidegrees = number(self.machine.text(f"{card.hwmon}/temp{chosen}_input"))
        return given(
            None if millidegrees is None else celsius(millidegrees / 1000),
            "the driver has no sensor of temperature for it",
        )

    def memory(self, index: int) -> Reading[dict[str, int]]:
        card = self.card(index)
        if card is None:
            return self._gone(index)
        total, free = self._memory(card), number(self.machine.text(f"{card.path}/lmem_avail_bytes"))
        used = None if total is None or free is None else int(total - free)
        return given(share(total, used), f"{card.driver} doesn't report used memory in its files")

    def power(self, index: int) -> Reading[float]:
        card = self.card(index)
        if card is None or card.hwmon is None:
            return Reading(value=None, reason="the driver has no sensor of power for it")
        microjoules = _growth(self.machine, f"{card.hwmon}/energy1_input")
        return given(drawn(None if microjoules is None else microjoules / 1e6), "the driver counts no energy for it")

    def utilization(self, index: int) -> Reading[dict[str, float | None]]:
        return Reading(value=None, reason="i915 and xe don't report load in their files; Level Zero does, to root")

    def throttle(self, index: int) -> Reading[tuple[str, ...]]:
        card = self.card(index)
        if card is None:
            return self._gone(index)
        # i915, and xe before and since Linux 6.13
        for pattern in ("gt/gt0/throttle_reason_{}", "device/tile0/gt0/freq0/throttle/reason_{}"):
            states = {name: self.machine.number(f"{card.path}/{pattern.format(name)}") for name in THROTTLE_FILES}
            if any(state is not None for state in states.values()):
                active = (THROTTLE_FILES[name] for name, state in states.items() if state == 1)
                return Reading(value=tuple(dict.fromkeys(active)))
        return Reading(value=None, reason=f"{card.driver} doesn't report its throttling")

    def _memory(self, card: Card) -> int | None:
        return size(self.machine.text(f"{card.path}/lmem_total_bytes"))

    def describe(self, index: int) -> AcceleratorInfo:
        card = self.card(index)
        if card is None:
            return self._nothing(index, "gpu")
        memory, extra = self._memory(card), self._extra(card)
        cap = None if card.hwmon is None else positive(self.machine.text(f"{card.hwmon}/power1_max"))
        if cap is not None:
            extra["power_limit_w"] = cap / 1e6
        if memory is None and "reason" not in extra:
            own = "it has no memory of its own and uses the machine's"
            extra["reason"] = (
                own if card.integrated else f"{card.driver} doesn't report memory in its files; Level Zero does"
            )
        return AcceleratorInfo(
            vendor="Intel",
            device_type="gpu",
            model=pci_name(self.machine, card.device_id) or f"Intel GPU {card.device_id:#06x}",
            index=index,
            memory_bytes=None if card.integrated else memory,
            memory_type="unified" if card.integrated else None,
            bus_type="integrated" if card.integrated else "pcie",
            pcie_gen=None if card.integrated else self._generation(card),
            driver_version=driver_version(self.machine, card.driver),
            extra_info=extra,
        )

    def _generation(self, card: Card) -> int | None:
        return generation_of(self.machine.text(f"{card.path}/device/max_link_speed"))


class IntelNpuFiles(_Files):
    """NPUs through intel_vpu."""

    NAME = "intel_vpu"

    def _look(self) -> tuple[Card, ...]:
        return npu_cards(self.machine)

    def utilization(self, index: int) -> Reading[dict[str, float | None]]:
        card = self.card(index)
        if card is None:
            return self._gone(index)
        busy = _growth(self.machine, f"{card.path}/device/npu_busy_time_us")
        compute = None if busy is None else min(100.0, busy / 1e6 * 100)
        return rates(compute, None, "this version of intel_vpu doesn't report load (Linux 6.11 and later do)")

    def describe(self, index: int) -> AcceleratorInfo:
        card = self.card(index)
        if card is None:
            return self._nothing(index, "npu")
        extra = self._extra(card)
        extra.setdefault("reason", "it has no memory of its own and uses the machine's")
        return AcceleratorInfo(
            vendor="Intel",
            device_type="npu",
            model=pci_name(self.machine, card.device_id) or f"Intel NPU {card.device_id:#06x}",
            index=index,
            memory_type="unified",
            bus_type="integrated",
            driver_version=driver_version(self.machine, card.driver),
            extra_info=extra,
        )


def driver_version(machine: Machine, driver: str) -> str:
    """The version of a kernel module; one that came with the kernel has the kernel's."""
    return text(machine.text(f"/sys/module/{driver}/version")) or f"Linux {machine.host().release}"
