"""Disks of this machine: NVMe, SATA, SAS, USB, SD cards and eMMC, and what a hypervisor shows as a disk."""

from __future__ import annotations

from .._macos import is_macos
from .._windows import is_windows
from ._linux_disks import BLOCK, linux_disks
from .base import StorageBackend, StorageDeviceInfo


class LocalStorage(StorageBackend):
    """Physical disks, each once: no partition, mapping, array, memory disk, loop device or synthesised container."""

    NAME = "local"

    def list_devices(self) -> tuple[StorageDeviceInfo, ...]:
        if is_macos(self.machine):
            from . import _macos_disks

            return _macos_disks.macos_disks(self.machine, self.mounts)
        if is_windows(self.machine):
            from . import _windows_disks

            return _windows_disks.windows_disks(self.machine, smart=self.smart)
        return linux_disks(self.machine, self.mounts, network=False, smart=self.smart)

    def reason(self) -> str:
        if is_macos(self.machine):
            from . import _macos_disks

            return _macos_disks.why_nothing(self.machine)
        if is_windows(self.machine):
            from . import _windows_disks

            return _windows_disks.why_nothing(self.machine)
        return "" if self.machine.is_folder(BLOCK) else f"{BLOCK} can't be listed"
