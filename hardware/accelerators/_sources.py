"""Vendors that can be read in several ways: the library first, then the tool, the kernel's files, and the bus."""

from __future__ import annotations

import json
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from ..machine import Machine, Reading
from ._pci import DISPLAY_CLASS, PROCESSING_ACCELERATOR_CLASS, PciDevice, pci_accelerators
from .base import (
    AcceleratorBackend,
    AcceleratorInfo,
    DriverState,
    HardwareState,
    LibraryState,
    NoSuchIndex,
    VendorFacts,
    bus_only,
)

_FRESH_S = 0.5


class Source(ABC):
    """One way to read a vendor's devices. Devices are numbered from 0 in an order that the source keeps.

    Answers are `Reading`s: a figure, or the reason why there is none.
    """

    NAME: ClassVar[str]
    """What a person calls it: `amd-smi`, `sysfs` …"""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    @abstractmethod
    def count(self) -> Reading[int]:
        """How many devices it lists."""

    @abstractmethod
    def describe(self, index: int) -> AcceleratorInfo:
        """All that it tells of one device; what it doesn't tell is `None`."""

    def temperature(self, index: int) -> Reading[float]:
        """°C."""
        return self._silent("temperature")

    def memory(self, index: int) -> Reading[dict[str, int]]:
        """`total`, `used` and `free` in bytes."""
        return self._silent("used memory")

    def utilization(self, index: int) -> Reading[dict[str, float | None]]:
        """`compute` and `memory` in percent; one that isn't told is `None`."""
        return self._silent("utilization")

    def power(self, index: int) -> Reading[float]:
        """W."""
        return self._silent("power")

    def throttle(self, index: int) -> Reading[tuple[str, ...]]:
        """Why the clocks are held down; empty if they aren't."""
        return self._silent("throttling")

    def is_simulated(self) -> bool:
        """Whether what it reads calls itself simulated."""
        return False

    def close(self) -> None:  # noqa: B027 - an optional hook
        """Give back what it holds."""

    def _silent(self, what: str) -> Reading[Any]:
        return Reading(value=None, reason=f"{self.NAME} doesn't tell {what}")


class SourcedAccelerators(AcceleratorBackend):
    """A vendor whose devices come from the first of `SOURCES` that lists any, or else from the bus."""

    PCI_VENDOR_ID: ClassVar[int]
    SOURCES: ClassVar[tuple[type[Source], ...]]
    MODULES: ClassVar[tuple[str, ...]]
    """Kernel modules of the driver, as `/sys/module` names them."""
    PCI_CLASSES: ClassVar[tuple[int, ...]] = (DISPLAY_CLASS, PROCESSING_ACCELERATOR_CLASS)

    def __init__(self, machine: Machine | None = None) -> None:
        super().__init__(machine)
        self.sources = tuple(source(self.machine) for source in self.SOURCES)
        self._chosen: Source | None = None
        self._bus: list[tuple[PciDevice, ...] | None] = []
        self._lock = threading.RLock()

    def source(self) -> Source | None:
        """The first source that lists a device; it is kept until `shutdown`."""
        with self._lock:
            if self._chosen is None:
                self._chosen = next((one for one in self.sources if one.count().value), None)
            return self._chosen

    def is_available(self) -> bool:
        return self.get_device_count() > 0

    def get_device_count(self) -> int:
        source = self.source()
        return 0 if source is None else source.count().value or 0

    def list_devices(self) -> tuple[AcceleratorInfo, ...]:
        source = self.source()
        if source is None:
            return tuple(
                bus_only(one, vendor=self.VENDOR_NAME, device_type=self.device_type_of(one))
                for one in self.on_bus() or ()
            )
        return self.finished(tuple(source.describe(index) for index in range(source.count().value or 0)))

    def finished(self, devices: tuple[AcceleratorInfo, ...]) -> tuple[AcceleratorInfo, ...]:
        """The devices of the source with what only the vendor as a whole can tell."""
        return devices

    def device_type_of(self, device: PciDevice) -> str:
        """What a device is that only the bus shows."""
        return self.DEVICE_TYPE

    def on_bus(self) -> tuple[PciDevice, ...] | None:
        """The vendor's devices on the bus; `None` where there is no bus to look at."""
        with self._lock:
            if not self._bus:
                self._bus = [pci_accelerators(self.machine)]
            devices = self._bus[0]
        if devices is None:
            return None
        mine = (one for one in devices if one.vendor_id == self.PCI_VENDOR_ID)
        return tuple(one for one in mine if one.class_code >> 16 in self.PCI_CLASSES)

    def module_loaded(self) -> bool | None:
        """Whether the kernel has the driver; `None` where nothing tells."""
        if not self.machine.is_folder("/sys/module"):
            return None
        return any(self.machine.is_folder(f"/sys/module/{name}") for name in self.MODULES)

    def facts(self) -> VendorFacts:
        source, on_bus, loaded = self.source(), self.on_bus(), self.module_loaded()
        library, driver, reason = self.opening()
        listed = 0 if source is None else source.count().value or 0
        if library is LibraryState.MISSING and driver is DriverState.UNKNOWN and loaded is not None:
            driver = DriverState.OK if loaded else DriverState.MISSING
        if listed and driver is not DriverState.DENIED:
            driver = DriverState.OK
        if listed or on_bus:
            hardware = HardwareState.PRESENT
        elif on_bus is None or loaded:
            # GPUs of a system-on-chip aren't on the bus; a loaded driver is a sign of one.
            hardware = HardwareState.UNKNOWN
        else:
            hardware = HardwareState.ABSENT
        simulated = source is not None and source.is_simulated()
        if simulated:
            reason = f"the {self.VENDOR_NAME} library here calls itself simulated"
        if not listed and not reason:
            reason = "the driver lists no device"
        return VendorFacts(
            vendor=self.VENDOR_NAME,
            hardware=hardware,
            driver=driver,
            library=library,
            reason="; ".join(filter(None, [reason, _fewer(listed, on_bus)])),
            on_bus=None if on_bus is None else len(on_bus),
            simulated=simulated,
            read_through="" if source is None else source.NAME,
        )

    @abstractmethod
    def opening(self) -> tuple[LibraryState, DriverState, str]:
        """The state of library and driver as the library tells them, and what isn't right."""

    def told(self, index: int, what: str) -> Reading[Any]:
        """One metric of a device by the name of the source's method, with its reason where there is none.

        Raises `NoSuchIndex` (an `IndexError`) beyond the range.
        """
        source = self.source()
        if source is None:
            return Reading(value=None, reason=self.opening()[2] or f"no {self.VENDOR_NAME} device is listed")
        count = source.count().value or 0
        if not 0 <= index < count:
            raise NoSuchIndex(
                f"there is no {self.VENDOR_NAME} device {index}",
                why=f"known are 0 to {count - 1}" if count else "none is listed any more",
            )
        method: Callable[[int], Reading[Any]] = getattr(source, what)
        return method(index)

    def get_temperature(self, index: int) -> float | None:
        celsius: float | None = self.told(index, "temperature").value
        return celsius

    def get_memory_usage(self, index: int) -> dict[str, int] | None:
        memory: dict[str, int] | None = self.told(index, "memory").value
        return memory

    def get_utilization(self, index: int) -> dict[str, float | None] | None:
        rates: dict[str, float | None] | None = self.told(index, "utilization").value
        return rates

    def get_power_usage(self, index: int) -> float | None:
        watts: float | None = self.told(index, "power").value
        return watts

    def get_throttle_reasons(self, index: int) -> tuple[str, ...] | None:
        reasons: tuple[str, ...] | None = self.told(index, "throttle").value
        return reasons

    def shutdown(self) -> None:
        with self._lock:
            self._chosen, self._bus = None, []
            for source in self.sources:
                source.close()


def _fewer(listed: int, on_bus: tuple[PciDevice, ...] | None) -> str:
    """What to know where the driver lists fewer devices than the bus shows, as in a container."""
    shown = len(on_bus or ())
    if not 0 < listed < shown:
        return ""
    return f"the bus shows {shown}, {listed} can be used here: the others aren't given to this container or driver"


class Tool:
    """What a command prints, run again only when the last answer is older than half a second."""

    def __init__(self, machine: Machine, *words: str, keep: bool = False) -> None:
        self._machine, self._words, self._keep = machine, words, keep
        self._told: Reading[str] | None = None
        self._at = 0.0
        self._lock = threading.Lock()

    def text(self) -> Reading[str]:
        """Its output, or why there is none."""
        with self._lock:
            old = time.monotonic() - self._at > _FRESH_S and not self._keep
            if self._told is None or old:
                self._told, self._at = self._machine.run(*self._words), time.monotonic()
            return self._told

    def json(self) -> Reading[Any]:
        """Its output as JSON. Lines before the first bracket, such as warnings, are left out."""
        told = self.text()
        if told.value is None:
            return told
        start = min((at for at in (told.value.find("{"), told.value.find("[")) if at >= 0), default=-1)
        try:
            value, _ = json.JSONDecoder().raw_decode(told.value, max(start, 0))
        except (ValueError, RecursionError) as error:
            return Reading(value=None, reason=f"{self._words[0]} printed no JSON: {error}")
        return Reading(value=value)

    def forget(self) -> None:
        """Run it anew next time."""
        with self._lock:
            self._told = None


def number(value: Any) -> float | None:
    """A finite number as tools write it: `12`, `"12.5 W"`, `{"value": 12, "unit": "W"}`; `None` for anything else."""
    if isinstance(value, dict):
        value = value.get("value")
    if isinstance(value, str):
        words = value.replace("%", " ").replace("(", " ").split()
        value = words[0] if words else ""
    if isinstance(value, bool) or value is None or isinstance(value, list | dict):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) and abs(found) < _MOST else None


_MOST = 2.0**62
_LARGEST_SIZE = 2**50
_MOST_DEVICES = 1024
_MOST_WATTS = 100_000.0


def positive(value: Any) -> float | None:
    """A number that is above 0."""
    found = number(value)
    return found if found is not None and found > 0 else None


def watts(value: Any) -> float | None:
    """A power that a device can draw: less than that of a whole rack."""
    found = number(value)
    return found if found is not None and 0 <= found < _MOST_WATTS else None


def drawn(value: Any) -> float | None:
    """A power above 0, of a sensor that answers 0 where it doesn't know."""
    return watts(value) or None


def percent(value: Any) -> float | None:
    """A number from 0 to 100."""
    found = number(value)
    return found if found is not None and 0 <= found <= 100 else None


def celsius(value: Any) -> float | None:
    """A temperature that a chip can have."""
    found = number(value)
    return found if found is not None and -50 <= found <= 200 else None


def size(value: Any, unit: int = 1) -> int | None:
    """A number of bytes of something that exists: more than 0, less than a petabyte."""
    found = number(value)
    if found is None or not 0 < found * unit < _LARGEST_SIZE:
        return None
    return int(found * unit)


def share(total: int | None, used: int | None) -> dict[str, int] | None:
    """`total`, `used` and `free`, where both are known and agree."""
    if total is None or used is None or not 0 <= used <= total:
        return None
    return {"total": total, "used": used, "free": total - used}


def rates(compute: float | None, memory: float | None, reason: str) -> Reading[dict[str, float | None]]:
    """Utilization in percent, where at least one of the two is told."""
    told = compute is not None or memory is not None
    return Reading(value={"compute": compute, "memory": memory}) if told else Reading(value=None, reason=reason)


def counted(told: Reading[Any]) -> Reading[int]:
    """A number of devices that a machine can have."""
    if told.value is None or (isinstance(told.value, int) and 0 <= told.value <= _MOST_DEVICES):
        return told
    return Reading(value=None, reason=f"{str(told.value)[:40]} is no number of devices")


def given(value: Any, reason: str) -> Reading[Any]:
    """A reading of `value`, or the reason why it isn't there."""
    return Reading(value=None, reason=reason) if value is None else Reading(value=value)


def text(value: Any) -> str | None:
    """A text that says something; `None` for what tools print instead."""
    if not isinstance(value, str) or value.strip().lower() in (
        "",
        "n/a",
        "[n/a]",
        "none",
        "unknown",
        "not supported",
    ):
        return None
    return value.strip()


def pci_address(value: Any) -> str | None:
    """`0000:17:00.0` of the ways in which tools write an address on the bus."""
    words = (text(value) or "").lower().split(":")
    if len(words) == 2:
        words = ["0", *words]
    try:
        domain, bus = int(words[0], 16), int(words[1], 16)
        device, _, function = words[2].partition(".")
        return f"{domain & 0xFFFF:04x}:{bus:02x}:{int(device, 16):02x}.{int(function or '0', 16):x}"
    except (ValueError, IndexError):
        return None


def generation(told: Any) -> int | None:
    """A generation of PCI Express that exists."""
    return told if isinstance(told, int) and not isinstance(told, bool) and 1 <= told <= 9 else None


def pcie_generation(gigatransfers: Any) -> int | None:
    """The PCI Express generation of a link speed in GT/s, as `max_link_speed` and the tools give it."""
    speed = number(gigatransfers)
    return None if speed is None else _GENERATIONS.get(round(speed, 1))


_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
