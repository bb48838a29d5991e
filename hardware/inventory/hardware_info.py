"""`HardwareInfo`: the inventory of one machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from ..plain_values import data_frame, json_values
from ..software import HostInfo, TorchBuild
from .system.main_memory import MemoryInfo
from .system.processor import CPUInfo
from .system.storage import StorageDeviceInfo
from .system.system_libraries import ContainerEngine, SystemLibrary
from .vendors._pci import ChipDevice, PciDevice
from .vendors.vendor import AcceleratorInfo, VendorFacts

if TYPE_CHECKING:
    import pandas

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class HardwareInfo:
    """The inventory of one machine. `on_bus` are graphics and processing devices of any vendor, `on_chip` those of
    a system-on-chip whose vendor has no file here. `storage_failures` names by kind why storage can't be
    listed, `detection_failure` why the inventory is incomplete (see `basic_detection.py`)."""

    host: HostInfo
    cpu: CPUInfo
    memory: MemoryInfo
    accelerators: tuple[AcceleratorInfo, ...] = ()
    vendors: tuple[VendorFacts, ...] = ()
    on_bus: tuple[PciDevice, ...] | None = None
    on_chip: tuple[ChipDevice, ...] = ()
    storage: tuple[StorageDeviceInfo, ...] = ()
    storage_failures: Mapping[str, str] = field(default_factory=dict)
    libraries: tuple[SystemLibrary, ...] = ()
    container_engines: tuple[ContainerEngine, ...] = ()
    torch: TorchBuild = field(default_factory=TorchBuild)
    packages: Mapping[str, str | None] = field(default_factory=dict)
    detection_failure: str = ""

    def to_frame(self) -> pandas.DataFrame:
        """Return a table with a row for each device. `kind` is `processor`, whose memory is the host's, `accelerator`
        or `storage`; the other columns are the fields of `AcceleratorInfo`, and `capacity_bytes` of storage."""
        cpu = {"vendor": self.cpu.vendor, "device_type": "cpu", "model": self.cpu.model}
        rows = [
            {"kind": "processor", **cpu, "memory_bytes": self.memory.total_bytes},
            *({"kind": "accelerator", **vars(one)} for one in self.accelerators),
            *({"kind": "storage", **vars(one), "firmware_version": one.firmware} for one in self.storage),
        ]
        return data_frame(rows, ["kind", *(one.name for one in fields(AcceleratorInfo)), "capacity_bytes"])

    @property
    def accelerator_count(self) -> int:
        """Return the number of devices that a driver lists or, without a driver, that the bus shows."""
        return len(self.accelerators)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data in the shape of `schemas/inventory.json`, without serial numbers and names of servers."""
        storage = [one.shareable() for one in self.storage]
        data = {
            "schema_version": SCHEMA_VERSION,
            **asdict(self),
            "memory": {**asdict(self.memory), "usable_bytes": self.memory.usable_bytes},
            "accelerators": [{**asdict(one), "memory_gb": one.memory_gb} for one in self.accelerators],
            "accelerator_count": self.accelerator_count,
            "storage": [{**asdict(one), "capacity_gb": one.capacity_gb} for one in storage],
            "vendors": [{**asdict(one), "state": one.state} for one in self.vendors],
            "torch": {**asdict(self.torch), "local": self.torch.local, "kind": self.torch.kind},
        }
        return {key: json_values(value) for key, value in data.items()}


Inventory = HardwareInfo
