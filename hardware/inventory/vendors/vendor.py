"""The interface of a vendor: facts about its devices, and their telemetry.

An unknown value is a `SourceReading` with a reason, never an exception and never 0.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from ...errors import BackendUnavailable, UsageError, did_you_mean, echo
from ...machine import LiveMachine, Machine, SourceReading
from ._pci import PciDevice

__all__ = [
    "DEVICE_TYPES",
    "AcceleratorBackend",
    "AcceleratorInfo",
    "DriverState",
    "HardwareState",
    "LibraryState",
    "NoAccelerator",
    "NoSuchIndex",
    "SourceReading",
    "VendorFacts",
    "bus_only",
    "says_simulated",
]

_NO_NAMES = "No known framework addresses it: whole models are compiled for it."

DEVICE_TYPES = ("gpu", "npu", "tpu", "lpu", "wse")


class NoAccelerator(BackendUnavailable, RuntimeError):
    """No vendor, or not the requested one, has a device here."""


class NoSuchIndex(UsageError, IndexError):
    """An index out of range; the message names the range."""


def says_simulated(*values: object) -> bool:
    """Return whether a name or a version calls a device simulated, as test libraries and emulators do."""
    return any("simulated" in str(one).lower() for one in values)


class HardwareState(StrEnum):
    """Whether the bus or the driver shows a device of the vendor."""

    PRESENT = "present"
    ABSENT = "absent"
    UNKNOWN = "unknown"


class DriverState(StrEnum):
    """Whether the vendor's kernel driver works; `denied` if it refuses this user."""

    OK = "ok"
    MISSING = "missing"
    DENIED = "denied"
    UNKNOWN = "unknown"


class LibraryState(StrEnum):
    """Whether the library that reads the vendor's devices can be loaded."""

    OK = "ok"
    MISSING = "missing"
    UNKNOWN = "unknown"


class VendorState(StrEnum):
    """The words of all commands for a vendor's state. `expected` doesn't mean usable, which only a probe verifies."""

    EXPECTED = "expected"
    UNUSABLE = "present but unusable"
    ABSENT = "hardware absent"
    LIBRARY_MISSING = "library missing"
    SIMULATED = "simulated"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class VendorFacts:
    """The facts about one vendor: hardware, driver and library separately.

    `on_bus` is the number of devices on the bus, None without a bus. `read_through` is the source of the list (a
    library, a tool, the kernel's files), empty if it is the bus. `failed` is True if the vendor's file raised.
    """

    vendor: str
    hardware: HardwareState
    driver: DriverState
    library: LibraryState
    reason: str = ""
    on_bus: int | None = None
    simulated: bool = False
    read_through: str = ""
    failed: bool = False

    @property
    def state(self) -> VendorState:
        """Return the words for users."""
        if self.simulated:
            return VendorState.SIMULATED
        if self.hardware is HardwareState.ABSENT:
            return VendorState.ABSENT
        if self.hardware is HardwareState.PRESENT:
            works = self.driver is DriverState.OK and (self.library is LibraryState.OK or self.read_through)
            return VendorState.EXPECTED if works else VendorState.UNUSABLE
        return VendorState.LIBRARY_MISSING if self.library is LibraryState.MISSING else VendorState.UNKNOWN


_TEXT, _WHOLE, _REAL = (str, type(None)), (int, type(None)), (int, float, type(None))
_FIELD_TYPES: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("vendor", "device_type", "model", "seen_by"), (str,)),
    **dict.fromkeys(("compute_capability", "memory_type", "bus_type", "driver_version", "firmware_version"), _TEXT),
    **dict.fromkeys(("index", "memory_bytes", "pcie_gen"), _WHOLE),
    **dict.fromkeys(("bandwidth_gbps", "interconnect_gbps"), _REAL),
    "simulated": (bool,),
}


@dataclass(frozen=True, kw_only=True)
class AcceleratorInfo:
    """One device; None for values that neither driver nor bus reports.

    `index` is the driver's, None for a device that only the bus shows (`seen_by` is `bus`). Its memory may be
    given as `memory_gb` too, in units of 2^30 bytes; if both are given, the bytes count.
    `bandwidth_gbps` is the peak bandwidth of its memory, `interconnect_gbps` that of its PCI Express link in one
    direction, both in 10^9 bytes per second. Raises `UsageError` for a value of a wrong type.
    """

    vendor: str
    device_type: str
    model: str
    index: int | None = None
    seen_by: str = "driver"
    compute_capability: str | None = None
    memory_bytes: int | None = None
    memory_type: str | None = None
    bus_type: str | None = None
    pcie_gen: int | None = None
    bandwidth_gbps: float | None = None
    interconnect_gbps: float | None = None
    driver_version: str | None = None
    firmware_version: str | None = None
    simulated: bool = False
    extra_info: Mapping[str, str | int | float | bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, kinds in _FIELD_TYPES.items():
            value = getattr(self, name)
            if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                wanted = " or ".join("None" if one is type(None) else one.__name__ for one in kinds)
                raise UsageError(f"AcceleratorInfo.{name} must be {wanted}, not {value!r}")
        if self.device_type not in DEVICE_TYPES:
            known = ", ".join(DEVICE_TYPES)
            raise UsageError(f"AcceleratorInfo.device_type must be one of {known}, not {self.device_type!r}")

    @property
    def memory_gb(self) -> float | None:
        """Return the memory in units of 2^30 bytes, with two decimals."""
        return None if self.memory_bytes is None else round(self.memory_bytes / 2**30, 2)


_init = AcceleratorInfo.__init__


@functools.wraps(_init)
def _init_with_gigabytes(self: AcceleratorInfo, *, memory_gb: float | None = None, **fields: Any) -> None:
    if isinstance(memory_gb, bool) or not isinstance(memory_gb, int | float | None):
        raise UsageError(f"AcceleratorInfo.memory_gb must be float or None, not {memory_gb!r}")
    if memory_gb is not None and fields.get("memory_bytes") is None:
        fields["memory_bytes"] = round(memory_gb * 2**30)
    _init(self, **fields)


# Not a field: `dataclasses.replace` would pass the old value beside new bytes.
AcceleratorInfo.__init__ = _init_with_gigabytes  # type: ignore[method-assign]


class AcceleratorBackend(ABC):
    """Inventory and telemetry of one vendor. A file in this folder holds one subclass.

    The first three methods are required; metrics of the full tier return None for values that the hardware doesn't
    report. All methods are thread-safe.
    """

    VENDOR_NAME: ClassVar[str]
    DEVICE_TYPE: ClassVar[str]
    DEVICE_STRINGS: ClassVar[Mapping[str, str]] = {}
    """A framework's name for device `{index}`."""

    def __init__(self, machine: Machine | None = None) -> None:
        self.machine = machine or LiveMachine()

    @abstractmethod
    def is_available(self) -> bool:
        """Return whether the driver lists a device."""

    @abstractmethod
    def get_device_count(self) -> int:
        """Return the number of devices that the driver lists; 0 without a driver (see `facts()`)."""

    @abstractmethod
    def list_devices(self) -> tuple[AcceleratorInfo, ...]:
        """Return the devices that the driver lists, or else those that only the bus shows."""

    def facts(self) -> VendorFacts:
        """Return hardware, driver and library of this vendor, with the reason for a problem."""
        if self.is_available():
            return self.seen(DriverState.OK, LibraryState.OK, ())
        return self.unseen(f"no {self.VENDOR_NAME} device is listed", hardware=HardwareState.UNKNOWN)

    def unseen(
        self, reason: str, *, on_bus: int | None = None, hardware: HardwareState = HardwareState.ABSENT
    ) -> VendorFacts:
        """Return the facts if no device of the vendor is found."""
        return VendorFacts(
            vendor=self.VENDOR_NAME,
            hardware=hardware,
            driver=DriverState.UNKNOWN,
            library=LibraryState.UNKNOWN,
            reason=reason,
            on_bus=on_bus,
        )

    def seen(
        self, driver: DriverState, library: LibraryState, reasons: Iterable[str], *, on_bus: int | None = None
    ) -> VendorFacts:
        """Return the facts if a device of the vendor is found, with the distinct reasons why it can't be used."""
        return VendorFacts(
            vendor=self.VENDOR_NAME,
            hardware=HardwareState.PRESENT,
            driver=driver,
            library=library,
            reason="; ".join(dict.fromkeys(filter(None, reasons))),
            on_bus=on_bus,
        )

    def reading(self, index: int, what: str) -> SourceReading[Any]:
        """Return one metric of device `index` by its name (`temperature`, `memory`, `utilization`, `power`,
        `throttle`, `processes`), or the reason if there is none. Raises `NoSuchIndex` (an `IndexError`) out of range.
        """
        return SourceReading(value=None, reason=f"reading the {what} of {self.VENDOR_NAME} devices isn't supported")

    def get_temperature(self, index: int) -> float | None:
        """Return the temperature in °C."""
        celsius: float | None = self.reading(index, "temperature").value
        return celsius

    def get_memory_usage(self, index: int) -> dict[str, int] | None:
        """Return `total`, `used` and `free` in bytes."""
        memory: dict[str, int] | None = self.reading(index, "memory").value
        return memory

    def get_utilization(self, index: int) -> dict[str, float | None] | None:
        """Return `compute` and `memory` in percent of the last sampling period; None for unknown ones. Without a
        value at all the answer is None."""
        rates: dict[str, float | None] | None = self.reading(index, "utilization").value
        return None if rates is None else {"compute": None, "memory": None, **rates}

    def get_power_usage(self, index: int) -> float | None:
        """Return the power in W."""
        watts: float | None = self.reading(index, "power").value
        return watts

    def get_throttle_reasons(self, index: int) -> tuple[str, ...] | None:
        """Return why the clocks are throttled (`thermal`, `power_limit`, `sw_power_cap` …); empty if they aren't."""
        reasons: tuple[str, ...] | None = self.reading(index, "throttle").value
        return reasons

    def get_framework_device_string(self, device_id: int, framework: str = "pytorch") -> str:
        """Return the name of device `device_id` in `framework`. Raises `UsageError` with the known frameworks."""
        return self.named(self.DEVICE_STRINGS, device_id, framework)

    def named(self, patterns: Mapping[str, str], index: int, framework: str) -> str:
        """Return the device's name from `patterns`. Raises `UsageError` with the known frameworks."""
        pattern = patterns.get(framework.lower())
        if pattern is None:
            known = tuple(patterns)
            listed = f"Known: {', '.join(known)}." if known else _NO_NAMES
            raise UsageError(
                f"{echo(framework)} has no name for {self.VENDOR_NAME} devices",
                fix=" ".join(filter(None, [did_you_mean(framework, known), listed])),
            )
        return pattern.format(index=index)

    def no_such(self, index: int, count: int) -> NoSuchIndex:
        """Return the error for an index beyond `count` devices."""
        known = f"known: 0 to {count - 1}" if count else "the driver lists no device"
        return NoSuchIndex(f"{self.VENDOR_NAME} device {index} not found", why=known)

    def shutdown(self) -> None:  # noqa: B027 - an optional hook
        """Close the vendor's library. May be called twice."""


def bus_only(device: PciDevice, *, vendor: str, device_type: str) -> AcceleratorInfo:
    """Return the description of a device from the bus: name or numbers, address, and whether it can be unplugged."""
    external = {"external": True} if device.external else {}
    return AcceleratorInfo(
        vendor=vendor,
        device_type=device_type,
        model=device.name or f"{vendor} device {device.device_id:#06x}",
        seen_by="bus",
        extra_info={"pci_address": device.address, "pci_device_id": f"{device.device_id:#06x}", **external},
    )
