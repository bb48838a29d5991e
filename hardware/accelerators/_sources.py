"""Vendors that can be read in several ways: the library first, then the tool, the kernel's files, and the bus."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from ..machine import Machine, Reading
from ._opening import Opening
from ._pci import DISPLAY_CLASS, PROCESSING_ACCELERATOR_CLASS, PciDevice, pci_accelerators
from ._telling import TellingAccelerators
from .base import (
    AcceleratorInfo,
    DriverState,
    HardwareState,
    LibraryState,
    NoSuchIndex,
    VendorFacts,
    bus_only,
)


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


class SourcedAccelerators(TellingAccelerators):
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
        opening = self.opening()
        library, driver, reason = opening.library, opening.driver, opening.reason
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
    def opening(self) -> Opening:
        """The state of library and driver as the library tells them, and what isn't right."""

    def told(self, index: int, what: str) -> Reading[Any]:
        source = self.source()
        if source is None:
            return Reading(value=None, reason=self.opening().reason or f"no {self.VENDOR_NAME} device is listed")
        count = source.count().value or 0
        if not 0 <= index < count:
            raise NoSuchIndex(
                f"there is no {self.VENDOR_NAME} device {index}",
                why=f"known are 0 to {count - 1}" if count else "none is listed any more",
            )
        method: Callable[[int], Reading[Any]] = getattr(source, what)
        return method(index)

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
