"""Network storage: mounted file servers, parallel filesystems and object stores, and disks behind iSCSI, Fibre
Channel and NVMe over a network.

Parallel filesystems and object stores are listed in `filesystems.toml`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ....values import data_file, inside, tables, text
from .local import linux_disks
from .storage_device import SMART_FIELDS, Mount, StorageBackend, StorageDeviceInfo, unique, with_reasons

_FILESYSTEMS = Path(__file__).with_name("filesystems.toml")
_ELSEWHERE = "it is network storage: only its servers know"
_CAPACITY = "skipped: an unreachable server would block the list"
_WINDOWS_NETWORK_DRIVE = 4
"""`DriveType` of Win32_LogicalDisk."""


def remote(mount: Mount) -> dict[str, str] | None:
    """Return the `kind` (`network`, `parallel`, `object`) and the `name` of the software of a mount whose data
    isn't on a disk of this machine; None if it is."""
    known = data_file(_FILESYSTEMS)
    found: dict[str, str] | None = known["type"].get(mount.filesystem)
    if found is None and mount.filesystem in ("fuse", "macfuse", "osxfuse"):
        # These are identified by the source alone.
        found = known["source"].get(mount.source.partition(":")[0].partition("#")[0].lower())
    # A Lustre server mounts its own disks as `lustre`.
    return None if mount.source.startswith("/dev/") else found


class NetworkStorage(StorageBackend):
    """Mounts from other machines, and block devices beyond a network."""

    NAME = "network"

    def list_devices(self) -> tuple[StorageDeviceInfo, ...]:
        if self.machine.host().system == "Windows":
            return self._windows_drives()
        grouped: dict[tuple[str, str, str], list[Mount]] = {}
        for mount in self.mounts:
            if remote(mount) is not None:
                grouped.setdefault((mount.source, mount.filesystem, mount.device), []).append(mount)
        mounted = (_described(mounts) for mounts in grouped.values())
        return (*mounted, *linux_disks(self.machine, self.mounts, network=True, smart=self.smart))

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


def _described(mounts: list[Mount]) -> StorageDeviceInfo:
    known, first = remote(mounts[0]) or {}, mounts[0]
    device = StorageDeviceInfo(
        device_path=first.source,
        model=known.get("name"),
        device_type="object" if known.get("kind") == "object" else "network",
        bus_type="network",
        mount_points=unique(one.point for one in mounts),
        filesystem=first.filesystem,
    )
    reasons = dict.fromkeys((*SMART_FIELDS, "serial", "firmware"), _ELSEWHERE) | {"capacity_bytes": _CAPACITY}
    return with_reasons(device, reasons)
