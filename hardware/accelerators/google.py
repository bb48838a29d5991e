"""Google's TPUs as the PCI bus and the device nodes show them; what they do is asked of PJRT alone.

Source of the numbers: jax 0.10.2, `jax/_src/hardware_utils.py`. Of the nodes: Cloud TPU's documentation
(`/dev/accel*` up to v4, `/dev/vfio/*` from v5 on).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from ..machine import Machine
from ..workers import environment_of
from .base import (
    AcceleratorBackend,
    AcceleratorInfo,
    DriverState,
    HardwareState,
    LibraryState,
    VendorFacts,
)

PCI_VENDOR_ID = 0x1AE0
CHIPS: Mapping[int, str] = {
    0x0027: "TPU v2 or v3",
    0x005E: "TPU v4",
    0x0062: "TPU v5p",
    0x0063: "TPU v5e",
    0x006F: "TPU v6e",
    0x0076: "TPU7x",
}
"""Google has network cards on the bus too: only these numbers are TPUs."""

_DEVICES = "/sys/bus/pci/devices"
LIBRARY_VARIABLE = "TPU_LIBRARY_PATH"


class GoogleAccelerators(AcceleratorBackend):
    """Chips on the bus, their nodes, and whether libtpu is in the target's environment; no telemetry."""

    VENDOR_NAME = "Google"
    DEVICE_TYPE = "tpu"
    DEVICE_STRINGS: ClassVar[dict[str, str]] = {"pytorch": "xla:{index}", "jax": "tpu:{index}"}

    def is_available(self) -> bool:
        return self.get_device_count() > 0

    def get_device_count(self) -> int:
        return len(self._chips() or ()) if self._nodes() else 0

    def list_devices(self) -> tuple[AcceleratorInfo, ...]:
        seen_by = "driver" if self._nodes() else "bus"
        return tuple(
            AcceleratorInfo(
                vendor=self.VENDOR_NAME,
                device_type=self.DEVICE_TYPE,
                model=model,
                index=number if seen_by == "driver" else None,
                seen_by=seen_by,
                extra_info={"pci_address": address},
            )
            for number, (address, model) in enumerate(self._chips() or ())
        )

    def facts(self) -> VendorFacts:
        chips, nodes = self._chips(), self._nodes()
        denied = bool(nodes) and not any(self.machine.may_open(node) for node in nodes)
        library = LibraryState.OK if _has_library(environment_of("tpu").versions) else LibraryState.MISSING
        hardware = HardwareState.PRESENT if chips else HardwareState.ABSENT
        return VendorFacts(
            vendor=self.VENDOR_NAME,
            hardware=HardwareState.UNKNOWN if chips is None else hardware,
            driver=DriverState.DENIED if denied else DriverState.OK if nodes else DriverState.MISSING,
            library=library,
            reason=missing_tpu(environment_of("tpu").versions, machine=self.machine),
            on_bus=None if chips is None else len(chips),
        )

    def _chips(self) -> tuple[tuple[str, str], ...] | None:
        """Address and name of each chip on the bus; None without a bus. Their class differs, so it isn't asked."""
        addresses = self.machine.names(_DEVICES)
        if addresses is None:
            return None
        found = []
        for address in addresses:
            vendor, number = (
                self.machine.number(f"{_DEVICES}/{address}/{name}", 16) for name in ("vendor", "device")
            )
            if vendor == PCI_VENDOR_ID and number is not None and number in CHIPS:
                found.append((address, CHIPS[number]))
        return tuple(found)

    def _nodes(self) -> list[str]:
        """Device nodes that a TPU's driver makes; VFIO's are those of any device that is handed through."""
        accel = [f"/dev/{name}" for name in self.machine.names("/dev") or () if re.fullmatch(r"accel\d+", name)]
        return accel + [f"/dev/vfio/{name}" for name in self.machine.names("/dev/vfio") or () if name.isdigit()]


def missing_tpu(versions: Mapping[str, str], *, machine: Machine | None = None) -> str:
    """What of a TPU isn't here: chip, device node, libtpu; the empty string where all of it is.

    `versions` are those of the packages in the target's environment.
    """
    google = GoogleAccelerators(machine)
    chips, nodes = google._chips(), google._nodes()
    said = []
    if chips is None:
        said.append("no PCI bus to look for a TPU on")
    elif not chips:
        said.append("no TPU on the PCI bus (vendor 0x1ae0)")
    if not nodes:
        said.append("no /dev/accel* and no /dev/vfio/* node")
    if not _has_library(versions):
        said.append("no libtpu in its environment")
    return ", ".join(said)


def _has_library(versions: Mapping[str, str]) -> bool:
    return "libtpu" in versions or Path(os.environ.get(LIBRARY_VARIABLE, "")).is_file()
