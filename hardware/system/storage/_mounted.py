"""Storage that is known by its mounts alone: one device for each source that is mounted."""

from __future__ import annotations

from typing import ClassVar

from ._mounts import Mount, remote, unique
from .base import SMART_FIELDS, StorageBackend, StorageDeviceInfo, with_reasons

_ELSEWHERE = "it lies in the network: its servers know"
_CAPACITY = "not asked: a server that doesn't answer would hold up the list"


class MountedStorage(StorageBackend):
    """Lists the mounts of one kind of filesystem."""

    KIND: ClassVar[str]
    DEVICE_TYPE: ClassVar[str] = "network"

    def list_devices(self) -> tuple[StorageDeviceInfo, ...]:
        grouped: dict[tuple[str, str, str], list[Mount]] = {}
        names: dict[tuple[str, str, str], str] = {}
        for mount in self.mounts:
            filesystem = remote(mount)
            if filesystem is not None and filesystem.kind == self.KIND:
                key = (mount.source, mount.filesystem, mount.device)
                grouped.setdefault(key, []).append(mount)
                names[key] = filesystem.name
        return tuple(self._described(key[0], key[1], names[key], mounts) for key, mounts in grouped.items())

    def _described(self, source: str, filesystem: str, name: str, mounts: list[Mount]) -> StorageDeviceInfo:
        reasons = dict.fromkeys((*SMART_FIELDS, "serial", "firmware"), _ELSEWHERE) | {"capacity_bytes": _CAPACITY}
        device = StorageDeviceInfo(
            device_path=source,
            model=name,
            device_type=self.DEVICE_TYPE,
            bus_type="network",
            mount_points=unique(one.point for one in mounts),
            filesystem=filesystem,
        )
        return with_reasons(device, reasons)
