"""Sources of a vendor's devices: its library or tool, the kernel's files, or the bus alone.

A vendor whose library and driver list the same devices is a `SourcedAccelerators`, one with devices in several places
a `ListedAccelerators`. Both have a reason for each missing value.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

from ...errors import UsageError
from ...machine import Library, Machine, SourceReading
from ._lazy_library import STATUS, StartResult, no_library
from ._pci import DISPLAY_CLASS, PROCESSING_ACCELERATOR_CLASS, PciDevice, devices_of
from ._system_gpus import system_gpus
from ._tool_values import counted, link_gbps
from .vendor import (
    AcceleratorBackend,
    AcceleratorInfo,
    DriverState,
    HardwareState,
    LibraryState,
    NoSuchIndex,
    VendorFacts,
    bus_only,
    says_simulated,
)

_FRESH_S = 0.5
"""Seconds for which metrics come from one run of a program."""


_WORDS = {"throttle": "throttling", "memory": "used memory"}
"""Texts for metrics whose method has another name."""


class Source(ABC):
    """One way to read a vendor's devices. Devices are numbered from 0 in a stable order.

    A metric has a method of its name (`temperature`, `memory`, …), which takes the device's `handle` and returns a
    `SourceReading`.
    """

    NAME: ClassVar[str]
    """The name for users: `NVML`, `sysfs` …"""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    @abstractmethod
    def count(self) -> SourceReading[int]:
        """Return the number of devices."""

    @abstractmethod
    def describe(self, index: int) -> AcceleratorInfo:
        """Return the description of one device; unknown values are None."""

    def handle(self, index: int) -> Any:
        """Return the argument of a device's metrics."""
        return index

    def reading(self, index: int, what: str) -> SourceReading[Any]:
        """Return one metric of a device by its name, or the reason if there is none."""
        method: Callable[[Any], SourceReading[Any]] | None = getattr(self, what, None)
        if method is None:
            return SourceReading(value=None, reason=f"{self.NAME} doesn't report {_WORDS.get(what, what)}")
        return method(self.handle(index))

    def place_of(self, address: object) -> int | None:
        """Return the number of the device at a bus address; None if there is none."""
        return None

    def close(self) -> None:  # noqa: B027 - an optional hook
        """Release all resources."""


class LibrarySource(Source):
    """A vendor's library."""

    LIBRARY: ClassVar[type[Library]]
    COUNT: ClassVar[str] = "count"
    """The function that returns the number of devices."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.library = machine.library(self.LIBRARY)

    def status(self) -> StartResult:
        """Return the state of library and driver; missing if it wasn't there when the machine was recorded."""
        state = self.library.ask(STATUS)
        if state.value is None:
            return no_library(state.reason)
        library, driver, reason = state.value
        return StartResult(library=LibraryState(library), driver=DriverState(driver), reason=reason)

    def count(self) -> SourceReading[int]:
        return counted(self.library.ask(self.COUNT))

    def close(self) -> None:
        self.library.close()


class ListedAccelerators(AcceleratorBackend):
    """A vendor that finds its devices once; those with an index are the driver's, numbered from 0.

    A metric has a method of its name, which takes the device and returns a `SourceReading`.
    """

    def __init__(self, machine: Machine | None = None) -> None:
        super().__init__(machine)
        self._devices: tuple[AcceleratorInfo, ...] | None = None
        self._printed: dict[tuple[str, ...], tuple[float, SourceReading[str]]] = {}
        self._lock = threading.RLock()

    def printed(self, *words: str, keep: bool = False) -> SourceReading[str]:
        """Return the output of a command, which is run again only if the last output is older than half a second."""
        with self._lock:
            at, reading = self._printed.get(words, (0.0, None))
            if reading is None or not (keep or time.monotonic() - at <= _FRESH_S):
                reading = self.machine.run(*words)
                self._printed[words] = (time.monotonic(), reading)
            return reading

    @abstractmethod
    def find(self) -> tuple[AcceleratorInfo, ...]:
        """Return the devices of a driver and those only on the bus (`seen_by`), in order and without an index."""

    def list_devices(self) -> tuple[AcceleratorInfo, ...]:
        with self._lock:
            if self._devices is None:
                found = self.find()
                driven = enumerate(one for one in found if one.seen_by == "driver")
                others = (one for one in found if one.seen_by != "driver")
                self._devices = (*(replace(one, index=index) for index, one in driven), *others)
            return self._devices

    def driven(self) -> tuple[AcceleratorInfo, ...]:
        """Return the devices that a driver lists."""
        return tuple(one for one in self.list_devices() if one.index is not None)

    def is_available(self) -> bool:
        return bool(self.driven())

    def get_device_count(self) -> int:
        return len(self.driven())

    def shutdown(self) -> None:
        with self._lock:
            self._devices = None

    def reading(self, index: int, what: str) -> SourceReading[Any]:
        devices = self.driven()
        if not 0 <= index < len(devices):
            raise self.no_such(index, len(devices))
        return self.metric(devices[index], what)

    def metric(self, device: AcceleratorInfo, what: str) -> SourceReading[Any]:
        """Return one metric of a listed device, or the reason if there is none."""
        method: Callable[[AcceleratorInfo], SourceReading[Any]] | None = getattr(self, what, None)
        return method(device) if method else self._not_reported(device, what)

    def obstacles(self) -> list[str]:
        """Return what prevents the use of devices, one reason for each that has one."""
        return [str(one.extra_info["reason"]) for one in self.list_devices() if "reason" in one.extra_info]

    def _not_reported(self, device: AcceleratorInfo, what: str) -> SourceReading[Any]:
        return SourceReading(value=None, reason=f"no known source for the {_WORDS.get(what, what)} of {device.model}")


class SourcedAccelerators(ListedAccelerators):
    """A vendor whose devices come from its library, else from the kernel's files, else from the bus. Without a
    sign of the vendor only its library is called."""

    PCI_VENDOR_ID: ClassVar[int]
    LIBRARY_SOURCE: ClassVar[type[LibrarySource]]
    MODULES: ClassVar[tuple[str, ...]]
    """Kernel modules of the driver, by their names in `/sys/module`."""
    PCI_CLASSES: ClassVar[tuple[int, ...]] = (DISPLAY_CLASS, PROCESSING_ACCELERATOR_CLASS)

    def __init__(self, machine: Machine | None = None) -> None:
        super().__init__(machine)
        self._library = self.LIBRARY_SOURCE(self.machine)
        self._files: tuple[Source, ...] = ()
        self._bus: list[tuple[PciDevice, ...] | None] = []
        self._places: tuple[tuple[Source, int], ...] = ()
        self._of_system: tuple[AcceleratorInfo, ...] = ()

    @abstractmethod
    def files(self) -> tuple[Source, ...]:
        """Return the sources from the kernel's files: for devices that the library lists too, then for others.
        Empty without a sign of the vendor."""

    def find(self) -> tuple[AcceleratorInfo, ...]:
        files = self._files = self.files()
        first = (self._library,) if self._library.count().value else files[:1]
        sources = (*first, *files[1:])
        self._places = tuple((one, place) for one in sources for place in range(one.count().value or 0))
        if not self._places:
            self._of_system = () if self.on_bus() else system_gpus(self.machine, self.VENDOR_NAME)
            return self._of_system or tuple(
                bus_only(one, vendor=self.VENDOR_NAME, device_type=self.device_type_of(one))
                for one in self.on_bus() or ()
            )
        return self.finished(tuple(_described(*place) for place in self._places))

    def finished(self, devices: tuple[AcceleratorInfo, ...]) -> tuple[AcceleratorInfo, ...]:
        """Return the devices, completed with facts of the vendor as a whole."""
        return devices

    def device_type_of(self, device: PciDevice) -> str:
        """Return the type of a device that only the bus shows."""
        return self.DEVICE_TYPE

    def on_bus(self) -> tuple[PciDevice, ...] | None:
        """Return the vendor's devices on the bus; None without a bus."""
        with self._lock:
            if not self._bus:
                self._bus = [devices_of(self.machine, self.PCI_VENDOR_ID, classes=self.PCI_CLASSES)]
            return self._bus[0]

    def module_loaded(self) -> bool | None:
        """Return whether the kernel has loaded the driver; None if unknown."""
        if not self.machine.is_folder("/sys/module"):
            return None
        return any(self.machine.is_folder(f"/sys/module/{name}") for name in self.MODULES)

    def facts(self) -> VendorFacts:
        devices, on_bus, loaded = self.driven(), self.on_bus(), self.module_loaded()
        status = self.status()
        library, driver, reason = status.library, status.driver, status.reason
        if self._of_system:
            return self._system_facts(library)
        listed = len(devices)
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
        simulated = any(one.simulated for one in devices[:1])
        if simulated:
            reason = f"the {self.VENDOR_NAME} library reports that it is simulated"
        if not listed and not reason:
            reason = "the driver lists no device"
        fewer, shown = "", len(on_bus or ())
        if 0 < listed < shown:  # as in a container
            others = "the others aren't visible to this container or driver"
            fewer = f"the bus shows {shown}, but only {listed} can be used: {others}"
        return VendorFacts(
            vendor=self.VENDOR_NAME,
            hardware=hardware,
            driver=driver,
            library=library,
            reason="; ".join(filter(None, [reason, fewer])),
            on_bus=None if on_bus is None else len(on_bus),
            simulated=simulated,
            read_through=", ".join(dict.fromkeys(source.NAME for source, _ in self._places)),
        )

    def _system_facts(self, library: LibraryState) -> VendorFacts:
        """Return the facts about devices that the system lists; those with an index have a working driver."""
        found = self.seen(DriverState.OK if self.driven() else DriverState.MISSING, library, self.obstacles())
        return replace(found, read_through=str(self._of_system[0].extra_info["seen_through"]))

    def status(self) -> StartResult:
        """Return the state of library and driver according to the library, with the reason for a problem."""
        return self._library.status()

    def reading(self, index: int, what: str) -> SourceReading[Any]:
        if not self.driven():
            raise NoSuchIndex(f"{self.VENDOR_NAME} device {index} not found", why=self.facts().reason)
        return super().reading(index, what)

    def metric(self, device: AcceleratorInfo, what: str) -> SourceReading[Any]:
        if self._of_system:
            return self._not_reported(device, what)
        source, place = self._places[device.index or 0]
        read = source.reading(place, what)
        return read if read.value is not None or source is not self._library else self.of_files(device, what, read)

    def of_files(self, device: AcceleratorInfo, what: str, reading: SourceReading[Any]) -> SourceReading[Any]:
        """Return a metric from the driver's files if the library doesn't report it, as for users without
        permission."""
        for files in self._files:
            place = files.place_of(device.extra_info.get("pci_address"))
            if place is not None:
                found = files.reading(place, what)
                both = SourceReading[Any](value=None, reason=f"{reading.reason}; {found.reason}")
                return both if found.value is None else found
        return reading

    def get_framework_device_string(self, device_id: int, framework: str = "pytorch") -> str:
        name = self.named(self.DEVICE_STRINGS, device_id, framework)
        if self._of_system and self.machine.host().system == "Darwin":
            raise UsageError(f"{framework} has no name for {self.VENDOR_NAME} GPUs on macOS")
        return name

    def shutdown(self) -> None:
        with self._lock:
            super().shutdown()
            for source in (self._library, *self._files):
                source.close()
            self._files, self._bus = (), []


def _described(source: Source, index: int) -> AcceleratorInfo:
    """Return a device of a source; one of a simulated library is marked."""
    info = source.describe(index)
    rate = info.interconnect_gbps or link_gbps(info.pcie_gen, info.extra_info.get("pcie_width"))
    return replace(info, simulated=says_simulated(info.model, info.driver_version), interconnect_gbps=rate)
