"""Vendors whose devices are found by PCI id, kernel driver and device node, with the facts in `node_vendors.toml`.

A vendor's file adds what its tool or its driver's files report. Without tool or driver the bus alone lists a device.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from ...machine import SourceReading
from ...values import data_file, whole
from ._lazy_library import Packages
from ._pci import PciDevice, bound_driver, devices_of, pcie_generation
from ._sources import ListedAccelerators
from ._tool_values import Extra, given, pci_address, rates, share, text
from .vendor import AcceleratorInfo, DriverState, HardwareState, LibraryState, VendorFacts, bus_only

_TABLE = Path(__file__).with_name("node_vendors.toml")


@dataclass(frozen=True, kw_only=True)
class ToolDevice:
    """What the vendor's tool or driver reports about a device. `number` is its own, as in the name of its node;
    sizes are in bytes, `temperature` in °C, `power` in W, `compute` in percent."""

    number: int | None = None
    model: str = ""
    memory_total: int | None = None
    memory_used: int | None = None
    memory_type: str | None = None
    temperature: float | None = None
    power: float | None = None
    compute: float | None = None
    driver_version: str | None = None
    firmware_version: str | None = None
    extra: Extra = field(default_factory=dict)


class NodeAccelerators(ListedAccelerators):
    """Inventory and telemetry by bus, node and tool. The name of a subclass's file is its key in the table."""

    DEVICE_TYPE = "npu"
    TOOL: ClassVar[str]
    """The source of `told`, for reasons: `hl-smi`."""

    @abstractmethod
    def told(self) -> SourceReading[Mapping[str, ToolDevice]]:
        """Return the devices that the vendor's tool or driver reports, by PCI address, or why it reports none."""

    @property
    def key(self) -> str:
        """Return the vendor's name in the table."""
        return type(self).__module__.rpartition(".")[2]

    @property
    def known(self) -> dict[str, Any]:
        """Return the vendor's facts in the table."""
        entry: dict[str, Any] = data_file(_TABLE)[self.key]
        return entry

    def on_bus(self) -> tuple[PciDevice, ...] | None:
        """Return the vendor's devices on the bus; None without a bus."""
        found = devices_of(self.machine, int(self.known["pci"], 16))
        wanted = {int(one, 16) for one in self.known.get("devices", ())}
        return found if found is None else tuple(one for one in found if not wanted or one.device_id in wanted)

    def find(self) -> tuple[AcceleratorInfo, ...]:
        devices = self.on_bus()
        if not devices:
            return ()
        told, linked = self.told().value or {}, self._linked()
        numbers = {address: one.number for address, one in told.items() if one.number is not None} | linked
        ordered = sorted(devices, key=lambda one: (numbers.get(one.address, len(devices)), one.address))
        return tuple(
            self._describe(one, told.get(one.address), numbers.get(one.address, place))
            for place, one in enumerate(ordered)
        )

    def facts(self) -> VendorFacts:
        on_bus, devices = self.on_bus(), self.list_devices()
        if not on_bus:
            if on_bus is None:
                return self.unseen("this machine has no PCI bus", hardware=HardwareState.UNKNOWN)
            return self.unseen(f"the bus shows no {self.VENDOR_NAME} device", on_bus=0)
        package = self.machine.library(Packages).ask("version", self.known["package"])
        library = LibraryState.OK if package.value else LibraryState.MISSING
        why = "" if package.value else f"{package.reason}: {self.known['get']}"
        denied = any("denied" in one.extra_info for one in devices)
        driver = DriverState.DENIED if denied else DriverState.OK if self.driven() else DriverState.MISSING
        return self.seen(driver, library, [*self.obstacles(), why], on_bus=len(on_bus))

    def temperature(self, device: AcceleratorInfo) -> SourceReading[float]:
        return self._metric(device, "temperature")

    def power(self, device: AcceleratorInfo) -> SourceReading[float]:
        return self._metric(device, "power")

    def memory(self, device: AcceleratorInfo) -> SourceReading[dict[str, int]]:
        one, why = self._told_of(device)
        return given(share(one.memory_total, one.memory_used), why or f"{self.TOOL} doesn't report used memory")

    def utilization(self, device: AcceleratorInfo) -> SourceReading[dict[str, float | None]]:
        one, why = self._told_of(device)
        return rates(one.compute, None, why or f"{self.TOOL} doesn't report utilization")

    def _metric(self, device: AcceleratorInfo, what: str) -> SourceReading[Any]:
        one, why = self._told_of(device)
        return given(getattr(one, what), why or f"{self.TOOL} doesn't report the {what}")

    def _told_of(self, device: AcceleratorInfo) -> tuple[ToolDevice, str]:
        reading = self.told()
        address = str(device.extra_info["pci_address"])
        return (reading.value or {}).get(address, ToolDevice()), reading.reason

    def _linked(self) -> dict[str, int]:
        """Return the number of each device by address, from the driver's class in /sys."""
        folder, entry = self.known.get("class", ""), self.known.get("entry", "")
        found: dict[str, int] = {}
        for name in (self.machine.names(folder) or ()) if folder else ():
            device = f"{folder}/{name}/device"  # a link, or a folder if the driver makes its entries without a parent
            link = (self.machine.link(device) or "").rpartition("/")[2]
            address = pci_address(link) or pci_address(self.machine.text(f"{device}/pci_addr"))
            number = whole(name.removeprefix(entry)) if name.startswith(entry) else None
            if address is not None and number is not None:
                found[address] = number
        return found

    def _describe(self, device: PciDevice, told: ToolDevice | None, number: int) -> AcceleratorInfo:
        seen = bus_only(device, vendor=self.VENDOR_NAME, device_type=self.DEVICE_TYPE)
        told, driver = told or ToolDevice(), bound_driver(self.machine, device.address)
        if driver != self.known["driver"]:
            why = f"bound to {driver}" if driver else "without a kernel driver"
            return replace(seen, extra_info={**seen.extra_info, "reason": f"{why}: {self.known['install']}"})
        node = self.known["node"].format(number)
        extra: Extra = {**seen.extra_info, "kernel_driver": driver, "device_node": node, **told.extra}
        may_open, every = self.machine.may_open(node), self.known["node"].format("*")  # one reason for all of them
        if may_open is None:
            extra["reason"] = f"{every} doesn't exist: was it passed to this container?"
        elif not may_open:
            extra |= {"denied": True, "reason": f"{every} can't be opened by this user"}
        module = self.machine.text(f"/sys/module/{self.known.get('module', driver)}/version")
        return replace(
            seen,
            model=told.model or seen.model,
            seen_by="driver",
            memory_bytes=told.memory_total,
            memory_type=told.memory_type,
            bus_type="pcie",
            pcie_gen=pcie_generation(self.machine, device.address),
            driver_version=told.driver_version or text(module),
            firmware_version=told.firmware_version,
            extra_info=extra,
        )

    def of_class(self, read: str) -> list[tuple[str, int, str]]:
        """Return address, number and the value of a file of each device of the driver's class in /sys."""
        folder = f"{self.known['class']}/{self.known['entry']}"
        found = ((at, number, f"{folder}{number}") for at, number in self._linked().items())
        return [(at, number, self.machine.text(f"{place}/{read}") or "") for at, number, place in found]
