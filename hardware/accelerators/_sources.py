"""How a vendor's devices are read: through its library or its one tool, the kernel's files, or else the bus alone.

A vendor whose library and driver list the same devices is a `SourcedAccelerators`, one whose devices lie in several
places a `ListedAccelerators`. Both have a reason for each figure that isn't there.
"""

from __future__ import annotations

import importlib.util
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

from ..machine import Library, Machine, Reading
from ..software import package_versions
from ._figures import counted
from ._pci import DISPLAY_CLASS, PROCESSING_ACCELERATOR_CLASS, PciDevice, devices_of
from .base import (
    AcceleratorBackend,
    AcceleratorInfo,
    DriverState,
    HardwareState,
    LibraryState,
    VendorFacts,
    bus_only,
    says_simulated,
)

_FRESH_S = 0.5
"""Metrics that are read together come from one run of a program."""

_OPENING = "opening"
"""The question that is no function of a library: the state of library and driver, and why it doesn't start."""


@dataclass(frozen=True, kw_only=True)
class Opening:
    """What came of starting a library; `reason` is empty where it answers."""

    library: LibraryState = LibraryState.OK
    driver: DriverState = DriverState.OK
    reason: str = ""


def no_library(reason: str) -> Opening:
    """What came of it where the library, or its binding, can't be loaded."""
    return Opening(library=LibraryState.MISSING, driver=DriverState.UNKNOWN, reason=reason)


class OpenedOnce(Library):
    """A library that is started on the first question, and remembers what came of that until `close`.

    `_lock` is held while it is started and given back. Questions are `count`, and others with the index of a device
    first.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._opening: Opening | None = None
        self._binding: Any = None
        self._handles: Sequence[Any] = ()

    def ask(self, function: str, *arguments: Any) -> Reading[Any]:
        with self._lock:
            opening = self._opening = self._opening or self._start()
        if function == _OPENING:
            return Reading(value=[str(opening.library), str(opening.driver), opening.reason])
        if opening.reason:
            return Reading(value=None, reason=opening.reason)
        return self._answer(function, *arguments)

    def close(self) -> str:
        with self._lock:
            opened, self._opening = self._opening, None
            binding, self._binding, self._handles = self._binding, None, ()
            if opened is None or opened.reason:
                return ""
            try:
                self._stop(binding)
            except Exception as error:  # a binding may raise anything
                return said(error)
            return ""

    @abstractmethod
    def _start(self) -> Opening:
        """Load and start the library; where it answers, its binding and the handles of its devices are kept."""

    def _stop(self, binding: Any) -> None:
        """Give the library back, which was started."""

    def _call(self, binding: Any, handle: Any, function: str, *arguments: Any) -> Any:
        """Ask the started library of a device. What is raised becomes the reason why there is no answer."""
        raise LookupError(f"{self.NAME} isn't asked for it")

    def _answer(self, function: str, *arguments: Any) -> Reading[Any]:
        binding, handles = self._binding, self._handles
        if binding is None:
            return Reading(value=None, reason=f"{self.NAME} was given back while it was asked")
        if function == "count":
            return Reading(value=len(handles))
        try:
            return Reading(value=self._call(binding, handles[arguments[0]], function, *arguments[1:]))
        except IndexError:
            return Reading(value=None, reason=f"{self.NAME} lists {len(handles)} devices")
        except Exception as error:  # as above
            return Reading(value=None, reason=f"{function}: {said(error)}")


def said(error: Exception) -> str:
    """One line of an error of a binding, whose own text may have several."""
    information = getattr(error, "err_info", None)
    return str(information) if information else " ".join(f"{type(error).__name__}: {error}".split())


def plain(value: Any) -> Any:
    """Tables, lists, numbers and texts of what a binding gives: structures of ctypes are tables, bytes are text."""
    if hasattr(value, "_fields_"):
        return {name: plain(getattr(value, name)) for name, *_ in value._fields_}
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple) or hasattr(value, "_length_"):
        return [plain(one) for one in value]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, Enum):
        return value.value
    return value if isinstance(value, str | int | float) or value is None else str(value)


class Source(ABC):
    """One way to read a vendor's devices. Devices are numbered from 0 in an order that the source keeps.

    A metric that it reads has a method of the metric's name (`temperature`, `memory`, …), which is given the device's
    `handle` and returns a `Reading`.
    """

    NAME: ClassVar[str]
    """What a person calls it: `NVML`, `sysfs` …"""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    @abstractmethod
    def count(self) -> Reading[int]:
        """How many devices it lists."""

    @abstractmethod
    def describe(self, index: int) -> AcceleratorInfo:
        """All that it tells of one device; what it doesn't tell is `None`."""

    def handle(self, index: int) -> Any:
        """What a metric is asked with; `None` for a device that is gone."""
        return index

    def told(self, index: int, what: str) -> Reading[Any]:
        """One metric of a device by its name, or the reason why there is none."""
        method: Callable[[Any], Reading[Any]] | None = getattr(self, what, None)
        if (device := self.handle(index)) is None:
            return Reading(value=None, reason=f"device {index} isn't there any more")
        return method(device) if method else Reading(value=None, reason=f"{self.NAME} doesn't report {what}")

    def close(self) -> None:  # noqa: B027 - an optional hook
        """Give back what it holds."""


class LibrarySource(Source):
    """A vendor's own library."""

    LIBRARY: ClassVar[type[Library]]
    COUNT: ClassVar[str] = "count"
    """The question for the number of devices."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.library = machine.library(self.LIBRARY)

    def opening(self) -> Opening:
        """The state of library and driver; missing where it wasn't there when the machine was recorded."""
        told = self.library.ask(_OPENING)
        if told.value is None:
            return Opening(library=LibraryState.MISSING, driver=DriverState.UNKNOWN, reason=told.reason)
        library, driver, reason = told.value
        return Opening(library=LibraryState(library), driver=DriverState(driver), reason=reason)

    def count(self) -> Reading[int]:
        return counted(self.library.ask(self.COUNT))

    def close(self) -> None:
        self.library.close()


class SourcedAccelerators(AcceleratorBackend):
    """A vendor whose devices come from its library, or else from the kernel's files, or else from the bus alone.
    Without a sign of the vendor nothing but its library is asked."""

    PCI_VENDOR_ID: ClassVar[int]
    LIBRARY_SOURCE: ClassVar[type[LibrarySource]]
    MODULES: ClassVar[tuple[str, ...]]
    """Kernel modules of the driver, as `/sys/module` names them."""
    PCI_CLASSES: ClassVar[tuple[int, ...]] = (DISPLAY_CLASS, PROCESSING_ACCELERATOR_CLASS)

    def __init__(self, machine: Machine | None = None) -> None:
        super().__init__(machine)
        self._library = self.LIBRARY_SOURCE(self.machine)
        self._files: tuple[Source, ...] = ()
        self._chosen: tuple[Source, ...] = ()
        self._bus: list[tuple[PciDevice, ...] | None] = []
        self._lock = threading.RLock()

    @abstractmethod
    def files(self) -> tuple[Source, ...]:
        """The kernel's files: of the devices that the library lists too, then of those that it doesn't. None where
        nothing of the vendor is seen."""

    def sources(self) -> tuple[Source, ...]:
        """What lists the devices, in the order of their numbers; it is kept until `shutdown`."""
        with self._lock:
            if not self._chosen:
                files = self._files = self._files or self.files()
                first = (self._library,) if self._library.count().value else files[:1]
                self._chosen = tuple(one for one in (*first, *files[1:]) if one.count().value)
            return self._chosen

    def is_available(self) -> bool:
        return self.get_device_count() > 0

    def get_device_count(self) -> int:
        return sum(source.count().value or 0 for source in self.sources())

    def list_devices(self) -> tuple[AcceleratorInfo, ...]:
        sources = self.sources()
        if not sources:
            return tuple(
                bus_only(one, vendor=self.VENDOR_NAME, device_type=self.device_type_of(one))
                for one in self.on_bus() or ()
            )
        found = (_described(source, index) for source in sources for index in range(source.count().value or 0))
        return self.finished(tuple(replace(one, index=number) for number, one in enumerate(found)))

    def finished(self, devices: tuple[AcceleratorInfo, ...]) -> tuple[AcceleratorInfo, ...]:
        """The devices of the sources with what only the vendor as a whole can tell."""
        return devices

    def device_type_of(self, device: PciDevice) -> str:
        """What a device is that only the bus shows."""
        return self.DEVICE_TYPE

    def on_bus(self) -> tuple[PciDevice, ...] | None:
        """The vendor's devices on the bus; `None` where there is no bus to look at."""
        with self._lock:
            if not self._bus:
                self._bus = [devices_of(self.machine, self.PCI_VENDOR_ID, classes=self.PCI_CLASSES)]
            return self._bus[0]

    def module_loaded(self) -> bool | None:
        """Whether the kernel has the driver; `None` where nothing tells."""
        if not self.machine.is_folder("/sys/module"):
            return None
        return any(self.machine.is_folder(f"/sys/module/{name}") for name in self.MODULES)

    def facts(self) -> VendorFacts:
        sources, on_bus, loaded = self.sources(), self.on_bus(), self.module_loaded()
        opening = self.opening()
        library, driver, reason = opening.library, opening.driver, opening.reason
        listed = self.get_device_count()
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
        simulated = bool(sources) and _described(sources[0], 0).simulated
        if simulated:
            reason = f"the {self.VENDOR_NAME} library here calls itself simulated"
        if not listed and not reason:
            reason = "the driver lists no device"
        fewer, shown = "", len(on_bus or ())
        if 0 < listed < shown:  # as in a container
            others = "the others aren't given to this container or driver"
            fewer = f"the bus shows {shown}, {listed} can be used here: {others}"
        return VendorFacts(
            vendor=self.VENDOR_NAME,
            hardware=hardware,
            driver=driver,
            library=library,
            reason="; ".join(filter(None, [reason, fewer])),
            on_bus=None if on_bus is None else len(on_bus),
            simulated=simulated,
            read_through=", ".join(source.NAME for source in sources),
        )

    def opening(self) -> Opening:
        """The state of library and driver as the library tells them, and what isn't right."""
        return self._library.opening()

    def told(self, index: int, what: str) -> Reading[Any]:
        sources = self.sources()
        if not sources:
            return Reading(value=None, reason=self.opening().reason or f"no {self.VENDOR_NAME} device is listed")
        left = index
        for source in sources:
            count = source.count().value or 0
            if 0 <= left < count:
                return source.told(left, what)
            left -= count
        raise self.no_such(index, index - left)

    def shutdown(self) -> None:
        with self._lock:
            for source in (self._library, *self._files):
                source.close()
            self._chosen, self._files, self._bus = (), (), []


def _described(source: Source, index: int) -> AcceleratorInfo:
    """A device of a source. A library that stands in for the real one calls itself simulated."""
    info = source.describe(index)
    return replace(info, simulated=says_simulated(info.model, info.driver_version))


class ListedAccelerators(AcceleratorBackend):
    """A vendor that finds its devices once; those with an index are the driver's, numbered from 0.

    A metric that it reads has a method of the metric's name, which is given the device and returns a `Reading`.
    """

    def __init__(self, machine: Machine | None = None) -> None:
        super().__init__(machine)
        self._devices: tuple[AcceleratorInfo, ...] | None = None
        self._printed: dict[tuple[str, ...], tuple[float, Reading[str]]] = {}
        self._lock = threading.RLock()

    def printed(self, *words: str, keep: bool = False) -> Reading[str]:
        """What a command prints; it runs again only where the last answer is older than half a second."""
        with self._lock:
            at, told = self._printed.get(words, (0.0, None))
            if told is None or not (keep or time.monotonic() - at <= _FRESH_S):
                told = self.machine.run(*words)
                self._printed[words] = (time.monotonic(), told)
            return told

    @abstractmethod
    def find(self) -> tuple[AcceleratorInfo, ...]:
        """Look for devices: those that a driver shows and those that only the bus does (`seen_by`), in order. They
        get their index afterwards."""

    def list_devices(self) -> tuple[AcceleratorInfo, ...]:
        with self._lock:
            if self._devices is None:
                found = self.find()
                driven = enumerate(one for one in found if one.seen_by == "driver")
                others = (one for one in found if one.seen_by != "driver")
                self._devices = (*(replace(one, index=index) for index, one in driven), *others)
            return self._devices

    def driven(self) -> tuple[AcceleratorInfo, ...]:
        """The devices that a driver lists."""
        return tuple(one for one in self.list_devices() if one.index is not None)

    def is_available(self) -> bool:
        return bool(self.driven())

    def get_device_count(self) -> int:
        return len(self.driven())

    def shutdown(self) -> None:
        with self._lock:
            self._devices = None

    def told(self, index: int, what: str) -> Reading[Any]:
        devices = self.driven()
        if not 0 <= index < len(devices):
            raise self.no_such(index, len(devices))
        method: Callable[[AcceleratorInfo], Reading[Any]] | None = getattr(self, what, None)
        return method(devices[index]) if method else self._silent(devices[index], what)

    def obstacles(self) -> list[str]:
        """What is in the way of using devices, one reason for each that has one."""
        return [str(one.extra_info["reason"]) for one in self.list_devices() if "reason" in one.extra_info]

    def _silent(self, device: AcceleratorInfo, what: str) -> Reading[Any]:
        return Reading(value=None, reason=f"nothing known here tells the {what} of {device.model}")


class Packages(Library):
    """Python packages, found without importing them: importing an SDK may start its runtime, or take the device."""

    NAME = "packages"

    def ask(self, function: str, *arguments: Any) -> Reading[Any]:
        """`version` of a distribution; `module`, whether there is a top-level module, and something below it."""
        name, below = str(arguments[0]), str(arguments[1]) if len(arguments) > 1 else ""
        if function == "version":
            version = package_versions((name,))[name]
            return Reading(value=version, reason="" if version else f"the Python package {name} isn't installed")
        if function != "module":
            return Reading(value=None, reason=f"{function} isn't asked of packages")
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            spec = None
        if spec is None:
            return Reading(value=None, reason=f"there is no Python module {name}")
        folders = spec.submodule_search_locations or ([spec.origin] if spec.origin else [])
        if below and not any((Path(folder) / below).exists() for folder in folders):
            why = f"the Python module {name} that is here has no {below}: it is another one"
            return Reading(value=None, reason=why)
        return Reading(value=True)
