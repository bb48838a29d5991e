"""Google's TPUs: chips on the bus, their nodes, libtpu and the variables of a TPU VM; Coral's Edge TPU told apart.

libtpu isn't loaded: loading takes the chips away from everybody else. The metadata server of a TPU VM is on the
network and isn't asked. What a running program's libtpu tells (memory, duty cycle) is read through `tpu-info`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ..machine import Reading
from ..values import data_file, whole, words
from ._figures import Extra, percent
from ._pci import DEVICES, PciDevice, bound_driver, devices_of, pcie_generation
from ._sources import ListedAccelerators, Packages
from .base import AcceleratorInfo, DriverState, HardwareState, LibraryState, VendorFacts

PCI_VENDOR_ID, CORAL_VENDOR_ID, CORAL_DEVICE_ID = 0x1AE0, 0x1AC1, 0x089A
CORAL_USB = {("18d1", "9302"): "ready", ("1a6e", "089a"): "waiting for libedgetpu to load its firmware"}
"""Vendor and product of the USB stick after and before its runtime started it (coral.ai, get started)."""

_TABLE = Path(__file__).with_name("google_tpus.toml")
_LIBRARIES = ("/lib/libtpu.so", "/usr/lib/libtpu.so")
_VARIABLES = ("TPU_ACCELERATOR_TYPE", "TPU_CHIPS_PER_HOST_BOUNDS", "TPU_HOST_BOUNDS", "TPU_WORKER_ID", "TPU_TOPOLOGY")
_VISIBLE = ("TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES")
CLOUD, _EDGE = "Cloud TPU", "Edge TPU"


@dataclass(frozen=True, kw_only=True)
class Generation:
    """One line of `google_tpus.toml`. Sizes are of a whole chip."""

    name: str
    device: int
    subsystem: int | None
    memory_bytes: int
    bandwidth_gbps: float | None
    nodes: str
    types: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Chip:
    device: PciDevice
    generation: Generation
    node: str


class GoogleAccelerators(ListedAccelerators):
    """Inventory of Cloud TPUs and Edge TPUs; memory and duty cycle while a program computes."""

    VENDOR_NAME = "Google"
    DEVICE_TYPE = "tpu"
    DEVICE_STRINGS: ClassVar[dict[str, str]] = {
        "pytorch": "xla:{index}",
        "tensorflow": "TPU:{index}",
        "jax": "tpu:{index}",
    }
    """PyTorch through torch_xla with PJRT_DEVICE=TPU; `tpu` is no torch device."""

    def find(self) -> tuple[AcceleratorInfo, ...]:
        on_bus = self._chips()
        chips = on_bus or tuple(self._nodes_alone())
        return (*(self._describe(chip) for chip in chips), *self._coral())

    def facts(self) -> VendorFacts:
        devices = self.list_devices()
        corals = devices_of(self.machine, CORAL_VENDOR_ID, device_id=CORAL_DEVICE_ID)
        on_bus = None if corals is None else len(self._chips()) + len(corals)
        if not devices:
            variables = [name for name in _VARIABLES if self.machine.variable(name)]
            told = "there is no PCI bus to look at" if on_bus is None else "the bus shows no TPU"
            if variables:
                told = f"{variables[0]} is set, yet no chip and no node is here"
            unknown = variables or on_bus is None
            hardware = HardwareState.UNKNOWN if unknown else HardwareState.ABSENT
            return self.unseen(told, on_bus=on_bus, hardware=hardware)
        library, why = self._library(any(one.extra_info["family"] == CLOUD for one in devices))
        reasons = self.obstacles()
        more = f"the same of {len(reasons) - 1} more" if len(reasons) > 1 else ""
        driver = DriverState.OK if self.driven() else DriverState.MISSING
        if driver is DriverState.MISSING and any("may not open" in one for one in reasons):
            driver = DriverState.DENIED
        return VendorFacts(
            vendor=self.VENDOR_NAME,
            hardware=HardwareState.PRESENT,
            driver=driver,
            library=library,
            reason="; ".join(filter(None, [reasons[0] if reasons else "", more, why])),
            on_bus=on_bus,
        )

    def get_framework_device_string(self, device_id: int, framework: str = "pytorch") -> str:
        devices = self.driven()
        if framework.lower() in self.DEVICE_STRINGS and 0 <= device_id < len(devices):
            device = devices[device_id]
            if device.extra_info["family"] == _EDGE:
                raise self.no_name(framework, device, "LiteRT drives it, through libedgetpu's delegate.")
        return super().get_framework_device_string(device_id, framework)

    def memory(self, device: AcceleratorInfo) -> Reading[dict[str, int]]:
        told = self._running(device)
        if told.value is None:
            return Reading(value=None, reason=told.reason)
        used, total, _ = told.value
        return Reading(value={"total": total, "used": used, "free": total - used})

    def utilization(self, device: AcceleratorInfo) -> Reading[dict[str, float | None]]:
        told = self._running(device)
        return Reading(value=None if told.value is None else {"compute": told.value[2]}, reason=told.reason)

    def _running(self, device: AcceleratorInfo) -> Reading[tuple[int, int, float]]:
        """Used and total memory in bytes and the duty cycle in percent, of a chip that a program computes on."""
        if device.extra_info["family"] == _EDGE:
            return Reading(value=None, reason="an Edge TPU tells none")
        told = self.tool("tpu-info").text()
        rows = read_usage(told.value)
        chips = [one for one in self.driven() if one.extra_info["family"] == CLOUD]
        if len(rows) != len(chips):
            why = told.reason or "tpu-info tells it only while a program computes on the TPU"
            return Reading(value=None, reason=why)
        return Reading(value=rows[chips.index(device)])

    def _chips(self) -> tuple[_Chip, ...]:
        """Chips on the bus in the order of their nodes. A TPU7x shows two functions for one chip."""
        found: dict[str, _Chip] = {}
        for device in devices_of(self.machine, PCI_VENDOR_ID) or ():
            if device.address.rpartition(".")[0] in found:
                continue
            subsystem = self.machine.number(f"{DEVICES}/{device.address}/subsystem_device", 16)
            generation = _generation(device.device_id, subsystem)
            if generation is not None:
                number = len(found)
                if generation.nodes == "vfio":
                    group = self.machine.link(f"{DEVICES}/{device.address}/iommu_group") or ""
                    node = f"/dev/vfio/{group.rpartition('/')[2]}" if group else ""
                else:
                    node = f"/dev/accel{number}"
                found[device.address.rpartition(".")[0]] = _Chip(device=device, generation=generation, node=node)
        return tuple(sorted(found.values(), key=lambda chip: (len(chip.node), chip.node)))

    def _nodes_alone(self) -> Iterable[_Chip]:
        """Chips of a container that has nodes and variables and sees no bus."""
        kind = self.machine.variable("TPU_ACCELERATOR_TYPE") or ""
        if not kind or self.machine.is_folder(DEVICES):
            return
        generation = next((one for one in generations() if kind.partition("-")[0].lower() in one.types), None)
        if generation is None:
            return
        pattern, folder = (r"accel\d+", "/dev") if generation.nodes == "accel" else (r"\d+", "/dev/vfio")
        for name in self.machine.names(folder) or ():
            if re.fullmatch(pattern, name):
                unseen = PciDevice(address="", vendor_id=PCI_VENDOR_ID, device_id=generation.device, class_code=0)
                yield _Chip(device=unseen, generation=generation, node=f"{folder}/{name}")

    def _describe(self, chip: _Chip) -> AcceleratorInfo:
        generation, address = chip.generation, chip.device.address
        may_open = self.machine.may_open(chip.node) if chip.node else None
        extra: Extra = {
            "family": CLOUD,
            "sizes": "from a table, google_tpus.toml: libtpu reports them to a running program only",
        }
        if address:
            extra["pci_address"] = address
            driver = bound_driver(self.machine, address)
            extra |= {"kernel_driver": driver} if driver else {}
        if may_open is None:
            extra["reason"] = (
                f"there is no node for it ({chip.node or 'no IOMMU group'}): is the TPU's runtime there?"
            )
        elif not may_open:
            extra["reason"] = f"this user may not open {chip.node}"
        extra |= {"node": chip.node} if chip.node else {}
        extra |= {name.lower(): value for name in _VARIABLES if (value := self.machine.variable(name))}
        hidden = next((value for name in _VISIBLE if (value := self.machine.variable(name)) is not None), None)
        extra |= {} if hidden is None else {"visible_chips": hidden or "none"}
        return AcceleratorInfo(
            vendor=self.VENDOR_NAME,
            device_type=self.DEVICE_TYPE,
            model=generation.name,
            seen_by="driver" if may_open else "bus",
            compute_capability=generation.name.removeprefix("TPU").strip(),
            memory_bytes=generation.memory_bytes,
            memory_type="HBM",
            bus_type="pcie",
            pcie_gen=pcie_generation(self.machine, address) if address else None,
            bandwidth_gbps=generation.bandwidth_gbps,
            driver_version=words(self.machine.library(Packages).ask("version", "libtpu").value) or None,
            extra_info=extra,
        )

    def _coral(self) -> list[AcceleratorInfo]:
        found = []
        corals = devices_of(self.machine, CORAL_VENDOR_ID, device_id=CORAL_DEVICE_ID)
        for number, device in enumerate(corals or ()):
            may_open = self.machine.may_open(f"/dev/apex_{number}")
            extra: Extra = {"family": _EDGE, "pci_address": device.address, "node": f"/dev/apex_{number}"}
            if not may_open:
                extra["reason"] = (
                    f"this user may not open /dev/apex_{number}"
                    if may_open is False
                    else f"there is no /dev/apex_{number}: are the modules gasket and apex loaded?"
                )
            found.append(self._edge("Coral Edge TPU (PCIe)", "pcie", bool(may_open), extra))
        folder = "/sys/bus/usb/devices"
        for name in self.machine.names(folder) or ():
            identity = tuple(self.machine.text(f"{folder}/{name}/{part}") or "" for part in ("idVendor", "idProduct"))
            state = CORAL_USB.get((identity[0], identity[1]))
            if state is not None:
                extra = {"family": _EDGE, "usb_address": name, "state": state}
                found.append(self._edge("Coral Edge TPU (USB)", None, True, extra))
        return found

    def _edge(self, model: str, bus: str | None, usable: bool, extra: Extra) -> AcceleratorInfo:
        return AcceleratorInfo(
            vendor=self.VENDOR_NAME,
            device_type=self.DEVICE_TYPE,
            model=model,
            seen_by="driver" if usable else "bus",
            bus_type=bus,
            extra_info=extra,
        )

    def _library(self, cloud: bool) -> tuple[LibraryState, str]:
        if not cloud:
            return LibraryState.UNKNOWN, "an Edge TPU takes LiteRT models only, through libedgetpu"
        named = self.machine.variable("TPU_LIBRARY_PATH")
        paths = [named] if named else _LIBRARIES
        if any(self.machine.may_open(path) is not None for path in paths):
            return LibraryState.OK, ""
        if not named and self.machine.library(Packages).ask("version", "libtpu").value:
            return LibraryState.OK, ""
        lost = f"TPU_LIBRARY_PATH names {named}, which isn't there" if named else "pip install libtpu"
        return LibraryState.MISSING, f"libtpu isn't installed: {lost}"


def read_usage(text: str | None) -> list[tuple[int, int, float]]:
    """Used and total bytes and duty cycle of each chip, out of the table that `tpu-info` prints with `|` or `│`."""
    rows = []
    for line in (text or "").splitlines():
        found = re.search(r"[|│┃]\s*([\d.]+) GiB / ([\d.]+) GiB\s*[|│┃]\s*([\d.]+)%", line)
        if found:
            used, total = (_gibibytes(found[group]) for group in (1, 2))
            busy = percent(found[3])
            if used is not None and total is not None and busy is not None and used <= total:
                rows.append((used, total, busy))
    return rows


def _gibibytes(text: str) -> int | None:
    try:
        return whole(round(float(text) * 2**30))
    except (ValueError, OverflowError):
        return None


def _generation(device: int, subsystem: int | None) -> Generation | None:
    fitting = [one for one in generations() if one.device == device]
    return next((one for one in fitting if one.subsystem in (None, subsystem)), None)


@functools.cache
def generations() -> tuple[Generation, ...]:
    """What is known of each generation."""
    return tuple(
        Generation(
            name=one["name"],
            device=int(one["device"], 16),
            subsystem=int(one["subsystem"], 16) if "subsystem" in one else None,
            memory_bytes=one["hbm_gib"] * 2**30,
            bandwidth_gbps=one.get("bandwidth_gbps"),
            nodes=one["nodes"],
            types=tuple(one["types"]),
        )
        for one in data_file(_TABLE)["generation"]
    )
