"""Disks of a Mac: `diskutil list -plist` lists them, `system_profiler` describes them.

APFS containers and disk images aren't physical. `diskutil info -plist` is started only for disks that system_profiler
doesn't list (USB).
"""

from __future__ import annotations

import plistlib
from collections.abc import Iterator, Mapping
from typing import Any
from xml.parsers.expat import ExpatError

from ....machine import Machine
from ....values import table, tables, text, whole
from .._macos import profiler
from .storage_device import Mount, StorageDeviceInfo, codes, unique, with_reasons

LIST = ("diskutil", "list", "-plist")
_NO_SMART = "macOS only reports a status; smartctl (brew install smartmontools) reports more"


def why_nothing(machine: Machine) -> str:
    """Return why no disk can be listed."""
    return machine.run(*LIST).reason


def disks(machine: Machine, mounts: tuple[Mount, ...], *, smart: bool) -> tuple[StorageDeviceInfo, ...]:
    """Return the physical disks, each once, with the mounts of the containers in them."""
    listed = tables(_plist(machine.run(*LIST).value).get("AllDisksAndPartitions"))
    known = dict(_profiled(machine))
    made = [one for one in listed if one.get("APFSPhysicalStores")]
    filesystems = {mount.point: mount.filesystem for mount in mounts}
    found = []
    for disk in listed:
        name = text(disk.get("DeviceIdentifier"))
        if name is None or disk in made:
            continue
        kind, profile = known.get(name, (None, None))
        details = _plist(machine.run("diskutil", "info", "-plist", name).value) if profile is None else {}
        if details.get("VirtualOrPhysical") == "Virtual" or details.get("BusProtocol") == "Disk Image":
            continue
        points = unique(_points(disk, made))
        found.append(_described(name, disk, kind, profile or {}, details, points, filesystems))
    return tuple(found)


def _described(
    name: str,
    disk: Mapping[str, Any],
    kind: str | None,
    profile: Mapping[str, Any],
    details: Mapping[str, Any],
    points: tuple[str, ...],
    filesystems: Mapping[str, str],
) -> StorageDeviceInfo:
    bus = (
        "pcie"
        if kind == "nvme_ssd"
        else "sata"
        if kind
        else codes("macos_buses").get(str(details.get("BusProtocol")))
    )
    solid = details.get("SolidState")
    medium = str(profile.get("spsata_medium_type", "")).lower()
    if kind is None and bus == "mmc":
        kind = "flash"
    elif kind is None and isinstance(solid, bool) and (solid or bus != "usb"):  # USB sticks report not to be solid
        kind = ("sata_ssd" if bus == "sata" else "ssd") if solid else "hdd"
    elif kind == "sata_ssd" and medium != "solid state":
        kind = "hdd" if medium == "rotational" else None
    state = text(profile.get("smart_status")) or text(details.get("SMARTStatus")) or ""
    known = unique(filesystems[point] for point in points if point in filesystems)
    device = StorageDeviceInfo(
        device_path=f"/dev/{name}",
        model=text(profile.get("device_model")) or text(details.get("MediaName")),
        serial=text(profile.get("device_serial")),
        firmware=text(profile.get("device_revision")),
        device_type=kind,
        bus_type=bus,
        capacity_bytes=whole(disk.get("Size"), least=1),
        health_status=codes("macos_health").get(state.lower()),
        mount_points=points,
        filesystem=" + ".join(known) or None,
    )
    reasons = dict.fromkeys(("temperature_celsius", "wear_level_percent", "power_on_hours"), _NO_SMART)
    usb = {"device_type": "a USB bridge doesn't report the disk behind it"} if bus == "usb" else {}
    return with_reasons(device, reasons | usb | {"health_status": f"macOS says {state or 'nothing'!r}"})


def _profiled(machine: Machine) -> Iterator[tuple[str, tuple[str, dict[str, Any]]]]:
    profile = table(profiler(machine).value)
    for section, kind in (("SPNVMeDataType", "nvme_ssd"), ("SPSerialATADataType", "sata_ssd")):
        for controller in tables(profile.get(section)):
            for one in tables(controller.get("_items")):
                name = text(one.get("bsd_name"))
                if name:
                    yield name, (kind, one)


def _points(disk: Mapping[str, Any], made: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the mount points of a disk's partitions and of the volumes of APFS containers in them."""
    parts = tables(disk.get("Partitions"))
    own = {text(one.get("DeviceIdentifier")) for one in parts} | {text(disk.get("DeviceIdentifier"))}
    above = [
        one
        for one in made
        if any(text(store.get("DeviceIdentifier")) in own for store in tables(one.get("APFSPhysicalStores")))
    ]
    for volume in (disk, *parts, *(one for container in above for one in tables(container.get("APFSVolumes")))):
        point = text(volume.get("MountPoint"))
        if point:
            yield point
        for snapshot in tables(volume.get("MountedSnapshots")):
            shown = text(snapshot.get("SnapshotMountPoint"))
            if shown:
                yield shown


def _plist(text: str | None) -> dict[str, Any]:
    try:
        found = plistlib.loads((text or "").encode())
    except (ExpatError, plistlib.InvalidFileException, ValueError, TypeError, AttributeError, LookupError,
            OverflowError, RecursionError):  # fmt: skip
        return {}
    return found if isinstance(found, dict) else {}
