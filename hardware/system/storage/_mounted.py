"""What is mounted from other machines: file servers, parallel filesystems and object stores.

Parallel filesystems are those that `filesystems.toml` names; object stores are S3, Azure and GCS through s3fs,
goofys, mountpoint-s3, gcsfuse, blobfuse2 and rclone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ...values import data_file
from .base import SMART_FIELDS, Mount, StorageBackend, StorageDeviceInfo, unique, with_reasons

_FILESYSTEMS = Path(__file__).with_name("filesystems.toml")
_ELSEWHERE = "it lies in the network: its servers know"
_CAPACITY = "not asked: a server that doesn't answer would hold up the list"


@dataclass(frozen=True, kw_only=True)
class Filesystem:
    """A filesystem that lies elsewhere: its kind (`network`, `parallel`, `object`) and the name of its software."""

    kind: str
    name: str


def remote(mount: Mount) -> Filesystem | None:
    """What lies behind a mount whose data isn't on a disk of this machine; `None` where it is."""
    known = data_file(_FILESYSTEMS)
    found = known["type"].get(mount.filesystem)
    if found is None and mount.filesystem in ("fuse", "macfuse", "osxfuse"):
        # These tell what they are by the source alone.
        found = known["source"].get(mount.source.partition(":")[0].partition("#")[0].lower())
    if found is None or mount.source.startswith("/dev/"):
        return None  # a server of Lustre mounts its own disks as `lustre`
    return Filesystem(kind=found["kind"], name=found["name"])


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
