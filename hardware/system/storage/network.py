"""Storage beyond a network: file servers, and disks behind iSCSI, Fibre Channel and NVMe over a network."""

from __future__ import annotations

from dataclasses import replace

from ...values import inside, tables, text
from ._mounted import MountedStorage
from .base import StorageDeviceInfo, with_reasons
from .local import linux_disks

_WINDOWS_NETWORK_DRIVE = 4
"""`DriveType` of Win32_LogicalDisk."""


class NetworkStorage(MountedStorage):
    """File servers and block devices beyond a network."""

    NAME = "network"
    KIND = "network"

    def list_devices(self) -> tuple[StorageDeviceInfo, ...]:
        if self.machine.host().system == "Windows":
            return self._windows_drives()
        return (*super().list_devices(), *linux_disks(self.machine, self.mounts, network=True, smart=self.smart))

    def _windows_drives(self) -> tuple[StorageDeviceInfo, ...]:
        from .._windows import cim

        drives = tables(inside(cim(self.machine).value, "volumes"))
        found = []
        for one in drives:
            source, letter = text(one.get("ProviderName")), text(one.get("DeviceID"))
            if one.get("DriveType") == _WINDOWS_NETWORK_DRIVE and source:
                filesystem = text(one.get("FileSystem"))
                device = StorageDeviceInfo(device_path=source, device_type="network", bus_type="network")
                points = (letter,) if letter else ()
                found.append(with_reasons(replace(device, mount_points=points, filesystem=filesystem)))
        return tuple(found)
