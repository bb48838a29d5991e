"""Google's TPUs: chips on the bus, their nodes, libtpu and the variables of a TPU VM.

libtpu isn't loaded, because it occupies the chips. The metadata server of a TPU VM isn't used, because it is on the
network. Memory and duty cycle of a running program come from its libtpu through `tpu-info`. An Edge TPU, which runs
only LiteRT models, is listed from the bus.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from ...machine import SourceReading
from ...values import data_file, decimal, words
from ._lazy_library import Packages
from ._pci import DEVICES, bound_driver, devices_of, pcie_generation
from ._sources import ListedAccelerators
from ._tool_values import Extra, percent
from .vendor import AcceleratorInfo, DriverState, HardwareState, LibraryState, VendorFacts

PCI_VENDOR_ID = 0x1AE0
_EDGE_VENDOR = 0x1AC1

_TABLE = Path(__file__).with_name("google_tpus.toml")
_LIBRARIES = ("/lib/libtpu.so", "/usr/lib/libtpu.so")
_VARIABLES = ("TPU_ACCELERATOR_TYPE", "TPU_CHIPS_PER_HOST_BOUNDS", "TPU_HOST_BOUNDS", "TPU_WORKER_ID", "TPU_TOPOLOGY")
_VISIBLE = ("TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES")
CLOUD = "Cloud TPU"


Chip = tuple[str, dict[str, Any], str]
"""Bus address, entry of `google_tpus.toml`, and node; address and node are empty if unknown."""


class GoogleAccelerators(ListedAccelerators):
    """Inventory of Cloud TPUs; memory and duty cycle while a program computes."""

    VENDOR_NAME = "Google"
    DEVICE_TYPE = "tpu"
    DEVICE_STRINGS: ClassVar[dict[str, str]] = {
        "pytorch": "xla:{index}",
        "tensorflow": "TPU:{index}",
        "jax": "tpu:{index}",
    }
    """PyTorch through torch_xla with PJRT_DEVICE=TPU; `tpu` is no torch device."""

    def find(self) -> tuple[AcceleratorInfo, ...]:
        return tuple(self._describe(*chip) for chip in self._chips() or self._nodes_alone())

    def facts(self) -> VendorFacts:
        devices = self.list_devices()
        on_bus = len(self._chips()) if self.machine.is_folder(DEVICES) else None
        if not devices:
            variables = [name for name in _VARIABLES if self.machine.variable(name)]
            reason = "this machine has no PCI bus" if on_bus is None else "the bus shows no TPU"
            edge = devices_of(self.machine, _EDGE_VENDOR)
            if edge:
                why = f"the bus shows {edge[0].name}, which no target supports"
                return self.seen(DriverState.UNKNOWN, LibraryState.UNKNOWN, [why], on_bus=len(edge))
            if variables:
                reason = f"{variables[0]} is set, but no chip or device node was found"
            unknown = variables or on_bus is None
            hardware = HardwareState.UNKNOWN if unknown else HardwareState.ABSENT
            return self.unseen(reason, on_bus=on_bus, hardware=hardware)
        library, why = self._library()
        reasons = self.obstacles()
        more = f"same for {len(reasons) - 1} more" if len(reasons) > 1 else ""
        driver = DriverState.OK if self.driven() else DriverState.MISSING
        if driver is DriverState.MISSING and any("may not open" in one for one in reasons):
            driver = DriverState.DENIED
        return self.seen(driver, library, [*reasons[:1], more, why], on_bus=on_bus)

    def memory(self, device: AcceleratorInfo) -> SourceReading[dict[str, int]]:
        reading = self._running(device)
        if reading.value is None:
            return SourceReading(value=None, reason=reading.reason)
        used, total, _ = reading.value
        return SourceReading(value={"total": total, "used": used, "free": total - used})

    def utilization(self, device: AcceleratorInfo) -> SourceReading[dict[str, float | None]]:
        row = self._running(device)
        return SourceReading(value=None if row.value is None else {"compute": row.value[2]}, reason=row.reason)

    def _running(self, device: AcceleratorInfo) -> SourceReading[tuple[int, int, float]]:
        """Return used and total memory in bytes and the duty cycle in percent of a chip that a program uses."""
        reading = self.printed("tpu-info")
        rows, chips = read_usage(reading.value), self.driven()
        if len(rows) != len(chips):
            why = reading.reason or "tpu-info reports it only while a program runs on the TPU"
            return SourceReading(value=None, reason=why)
        return SourceReading(value=rows[chips.index(device)])

    def _chips(self) -> tuple[Chip, ...]:
        """Return the chips on the bus in the order of their nodes. A TPU7x has two functions per chip."""
        found: dict[str, Chip] = {}
        for device in devices_of(self.machine, PCI_VENDOR_ID) or ():
            address, slot = device.address, device.address.rpartition(".")[0]
            subsystem = self.machine.number(f"{DEVICES}/{address}/subsystem_device", 16)
            generation = _generation(device.device_id, subsystem)
            if generation is None or slot in found:
                continue
            node = f"/dev/accel{len(found)}"
            if generation["nodes"] == "vfio":
                group = self.machine.link(f"{DEVICES}/{address}/iommu_group") or ""
                node = f"/dev/vfio/{group.rpartition('/')[2]}" if group else ""
            found[slot] = (address, generation, node)
        return tuple(sorted(found.values(), key=lambda chip: (len(chip[2]), chip[2])))

    def _nodes_alone(self) -> Iterable[Chip]:
        """Return the chips of a container that has nodes and variables and no bus."""
        kind = (self.machine.variable("TPU_ACCELERATOR_TYPE") or "").partition("-")[0].lower()
        generation = next((one for one in generations() if kind in one["types"]), None)
        if generation is None or self.machine.is_folder(DEVICES):
            return
        pattern, folder = (r"accel\d+", "/dev") if generation["nodes"] == "accel" else (r"\d+", "/dev/vfio")
        for name in self.machine.names(folder) or ():
            if re.fullmatch(pattern, name):
                yield "", generation, f"{folder}/{name}"

    def _describe(self, address: str, generation: dict[str, Any], node: str) -> AcceleratorInfo:
        may_open = self.machine.may_open(node) if node else None
        extra: Extra = {
            "family": CLOUD,
            "sizes": "from a table, google_tpus.toml: libtpu reports them only to a running program",
        }
        if address:
            extra["pci_address"] = address
            driver = bound_driver(self.machine, address)
            extra |= {"kernel_driver": driver} if driver else {}
        if may_open is None:
            extra["reason"] = f"it has no device node ({node or 'no IOMMU group'}): is the TPU runtime installed?"
        elif not may_open:
            extra["reason"] = f"this user may not open {node}"
        extra |= {"node": node} if node else {}
        extra |= {name.lower(): value for name in _VARIABLES if (value := self.machine.variable(name))}
        hidden = next((value for name in _VISIBLE if (value := self.machine.variable(name)) is not None), None)
        extra |= {} if hidden is None else {"visible_chips": hidden or "none"}
        return AcceleratorInfo(
            vendor=self.VENDOR_NAME,
            device_type=self.DEVICE_TYPE,
            model=generation["name"],
            seen_by="driver" if may_open else "bus",
            compute_capability=generation["name"].removeprefix("TPU").strip(),
            memory_bytes=generation["hbm_gib"] * 2**30,
            memory_type="HBM",
            bus_type="pcie",
            pcie_gen=pcie_generation(self.machine, address) if address else None,
            bandwidth_gbps=generation.get("bandwidth_gbps"),
            driver_version=words(self.machine.library(Packages).ask("version", "libtpu").value) or None,
            extra_info=extra,
        )

    def _library(self) -> tuple[LibraryState, str]:
        named = self.machine.variable("TPU_LIBRARY_PATH")
        paths = [named] if named else _LIBRARIES
        if any(self.machine.may_open(path) is not None for path in paths):
            return LibraryState.OK, ""
        if not named and self.machine.library(Packages).ask("version", "libtpu").value:
            return LibraryState.OK, ""
        lost = f"TPU_LIBRARY_PATH is {named}, which doesn't exist" if named else "pip install libtpu"
        return LibraryState.MISSING, f"libtpu isn't installed: {lost}"


def read_usage(text: str | None) -> list[tuple[int, int, float]]:
    """Return used and total bytes and duty cycle of each chip from the table of `tpu-info`, with `|` or `│`."""
    rows = []
    for line in (text or "").splitlines():
        found = re.search(r"[|│┃]\s*([\d.]+) GiB / ([\d.]+) GiB\s*[|│┃]\s*([\d.]+)%", line)
        if found:
            used, total, busy = decimal(found[1]), decimal(found[2]), percent(found[3])
            if used is not None and total is not None and busy is not None and used <= total:
                rows.append((round(used * 2**30), round(total * 2**30), busy))
    return rows


def generations() -> list[dict[str, Any]]:
    """Return the known generations of chips."""
    found: list[dict[str, Any]] = data_file(_TABLE)["generation"]
    return found


def _generation(device: int, subsystem: int | None) -> dict[str, Any] | None:
    fitting = [one for one in generations() if one["device"] == device]
    return next((one for one in fitting if one.get("subsystem") in (None, subsystem)), None)
