"""Groq's LPUs: cards on the bus, their kernel driver, and the GroqWare SDK.

Public sources name the PCI device (pci.ids, groqflow's `get_num_chips_available`), the packages groq-runtime and
groq-devtools, the folder /usr/local/groq/bin and the modules groq.api and groq.runner.tsp (groqflow's sdk_helpers.py
and execute.py). None names the device nodes or a tool for temperature or power, so none is used: the driver is the
one that the kernel bound to the card. The PyPI package `groq` is the client of Groq's cloud.
"""

from __future__ import annotations

from pathlib import Path

from ...values import data_file
from ._lazy_library import Packages
from ._pci import DEVICES, PciDevice, bound_driver, devices_of, pcie_generation
from ._sources import ListedAccelerators
from .vendor import AcceleratorInfo, DriverState, HardwareState, LibraryState, VendorFacts, bus_only

PCI_VENDOR_ID, PCI_DEVICE_ID = 0x1DE0, 0x0000
SDK_FOLDER = "/usr/local/groq/bin"
_TABLE = Path(__file__).with_name("groq_cards.toml")


class GroqAccelerators(ListedAccelerators):
    """Inventory of GroqCards. No public tool or library reports their telemetry.

    No framework has a name for one: a model is compiled with groqflow's `groqit` and called as it is.
    """

    VENDOR_NAME = "Groq"
    DEVICE_TYPE = "lpu"

    def find(self) -> tuple[AcceleratorInfo, ...]:
        cards = devices_of(self.machine, PCI_VENDOR_ID, device_id=PCI_DEVICE_ID) or ()
        return tuple(self._describe(card, bound_driver(self.machine, card.address)) for card in cards)

    def facts(self) -> VendorFacts:
        on_bus, devices = devices_of(self.machine, PCI_VENDOR_ID, device_id=PCI_DEVICE_ID), self.list_devices()
        if not devices:
            if on_bus is None:
                return self.unseen("this machine has no PCI bus", hardware=HardwareState.UNKNOWN)
            return self.unseen("the bus shows no GroqCard", on_bus=0)
        library, why = self._library()
        driver = DriverState.OK if self.driven() else DriverState.MISSING
        return self.seen(driver, library, [*self.obstacles(), why], on_bus=len(on_bus or ()))

    def _describe(self, device: PciDevice, driver: str) -> AcceleratorInfo:
        facts = data_file(_TABLE)
        subsystem = self.machine.number(f"{DEVICES}/{device.address}/subsystem_device", 16)
        card = "" if subsystem is None else facts["cards"].get(f"{subsystem:04x}", "")
        seen = bus_only(device, vendor=self.VENDOR_NAME, device_type=self.DEVICE_TYPE)
        extra: dict[str, str | int | float | bool] = {**seen.extra_info, "memory_source": facts["memory_source"]}
        if driver:
            extra["kernel_driver"] = driver
        else:
            extra["reason"] = "no kernel driver is bound to it: install groq-runtime from the GroqWare suite"
        return AcceleratorInfo(
            vendor=self.VENDOR_NAME,
            device_type=self.DEVICE_TYPE,
            model=f"Groq {card}" if card else seen.model,
            seen_by="driver" if driver else "bus",
            memory_bytes=facts["memory_bytes"],
            bus_type="pcie",
            pcie_gen=pcie_generation(self.machine, device.address),
            extra_info=extra,
        )

    def _library(self) -> tuple[LibraryState, str]:
        module = self.machine.library(Packages).ask("module", "groq", "runner")
        if module.value or self.machine.is_folder(SDK_FOLDER):
            return LibraryState.OK, ""
        return LibraryState.MISSING, f"the GroqWare SDK isn't installed ({module.reason}; no {SDK_FOLDER})"
