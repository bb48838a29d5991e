"""MyChip's cards: the vendor's library first, then the kernel's files, then the bus. A vendor's file, whole."""

from __future__ import annotations

from typing import Any, ClassVar

from hwcompat.hardware.accelerator_plugin import (
    AcceleratorBackend,
    AcceleratorInfo,
    DriverState,
    HardwareState,
    Library,
    LibraryState,
    NoSuchIndex,
    PciDevice,
    SourceReading,
    VendorFacts,
    bus_only,
    pci_accelerators,
    pcie_generation,
)

PCI_VENDOR_ID = 0xFFFE
FOLDER = "/sys/class/mychip"


class MyChipLibrary(Library):
    """The one place that imports the vendor's library. It answers plain data, so that a recording can hold it."""

    NAME = "mychip_smi"

    def ask(self, function: str, *arguments: Any) -> SourceReading[Any]:
        try:
            import mychip_smi

            return SourceReading(value=getattr(mychip_smi, function)(*arguments))
        except ImportError as error:
            return SourceReading(value=None, reason=f"mychip-smi isn't installed ({error}): pip install mychip-smi")
        except Exception as error:  # a native library may raise anything; the reason is the answer
            return SourceReading(value=None, reason=f"{function}: {type(error).__name__}: {error}")


class MyChips(AcceleratorBackend):
    """The full tier: everything but `facts`, `list_devices` and the two before it may be left out."""

    VENDOR_NAME = "MyChip"
    DEVICE_TYPE = "npu"
    DEVICE_STRINGS: ClassVar[dict[str, str]] = {"pytorch": "mychip:{index}", "onnxruntime": "npu:{index}"}

    def is_available(self) -> bool:
        return self.get_device_count() > 0

    def get_device_count(self) -> int:
        return len(self._cards())

    def list_devices(self) -> tuple[AcceleratorInfo, ...]:
        cards = self._cards()
        if not cards:
            return tuple(bus_only(one, vendor="MyChip", device_type="npu") for one in self._on_bus() or ())
        return tuple(self._describe(index, card) for index, card in enumerate(cards))

    def facts(self) -> VendorFacts:
        on_bus, cards = self._on_bus(), self._cards()
        version = self.machine.library(MyChipLibrary).ask("version") if cards or on_bus else None
        reasons = ["" if cards else "the kernel's driver lists no card", version.reason if version else ""]
        absent = HardwareState.UNKNOWN if on_bus is None else HardwareState.ABSENT
        return VendorFacts(
            vendor="MyChip",
            hardware=HardwareState.PRESENT if cards or on_bus else absent,
            driver=DriverState.OK if cards else DriverState.MISSING,
            library=LibraryState.OK if version and version.value else LibraryState.MISSING,
            reason="; ".join(filter(None, reasons)),
            on_bus=None if on_bus is None else len(on_bus),
        )

    def get_temperature(self, index: int) -> float | None:
        thousandths = self.machine.number(f"{self._card(index)}/temperature")
        return None if thousandths is None else thousandths / 1000

    def get_memory_usage(self, index: int) -> dict[str, int] | None:
        card = self._card(index)
        total, used = (self.machine.number(f"{card}/{name}") for name in ("memory_total", "memory_used"))
        if total is None or used is None or not 0 <= used <= total:
            return None
        return {"total": total, "used": used, "free": total - used}

    def _cards(self) -> tuple[str, ...]:
        return tuple(f"{FOLDER}/{name}" for name in self.machine.names(FOLDER) or ())

    def _card(self, index: int) -> str:
        cards = self._cards()
        if not 0 <= index < len(cards):
            raise NoSuchIndex(f"there is no MyChip device {index}", why=f"the driver lists {len(cards)}")
        return cards[index]

    def _on_bus(self) -> tuple[PciDevice, ...] | None:
        devices = pci_accelerators(self.machine)
        return None if devices is None else tuple(one for one in devices if one.vendor_id == PCI_VENDOR_ID)

    def _describe(self, index: int, card: str) -> AcceleratorInfo:
        address = (self.machine.link(f"{card}/device") or "").rpartition("/")[2]
        memory = self.get_memory_usage(index)
        return AcceleratorInfo(
            vendor="MyChip",
            device_type="npu",
            model=self.machine.text(f"{card}/name") or "MyChip",
            index=index,
            memory_bytes=memory["total"] if memory else None,
            bus_type="pcie",
            pcie_gen=pcie_generation(self.machine, address) if address else None,
            driver_version=self.machine.library(MyChipLibrary).ask("version").value,
            extra_info={"pci_address": address} if address else {},
        )
