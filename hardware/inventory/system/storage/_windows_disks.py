"""Disks of a Windows machine: `Get-PhysicalDisk`, their partitions, and the values that need an administrator."""

from __future__ import annotations

from typing import Any

from ....machine import Machine
from ....values import decimal, from_json, inside, tables, text, whole
from .._windows import RELIABILITY, cim
from .storage_device import SMART_FIELDS, SMART_NOT_ASKED, Mount, StorageDeviceInfo, codes, unique, with_reasons

_NVME, _SPACES = ("NVMe", "17"), ("Spaces", "16")


def why_nothing(machine: Machine) -> str:
    """Return why no disk can be listed."""
    return cim(machine).reason


def disks(machine: Machine, mounts: tuple[Mount, ...], *, smart: bool) -> tuple[StorageDeviceInfo, ...]:
    """Return the physical disks, without those made by Storage Spaces."""
    classes = cim(machine).value
    letters: dict[str, list[str]] = {}
    for one in tables(inside(classes, "partitions")):
        letter = (text(one.get("DriveLetter")) or "").strip("\0")
        if letter:
            letters.setdefault(str(one.get("DiskNumber")), []).append(f"{letter[0]}:")
    kinds = {text(one.get("DeviceID")): text(one.get("FileSystem")) for one in tables(inside(classes, "volumes"))}
    counters, reason = _counters(machine) if smart else ({}, SMART_NOT_ASKED)
    return tuple(
        _described(one, letters, kinds, counters, reason)
        for one in tables(inside(classes, "disks"))
        if str(one.get("BusType")) not in _SPACES
    )


def _described(
    one: dict[str, Any],
    letters: dict[str, list[str]],
    kinds: dict[str | None, str | None],
    counters: dict[str, dict[str, Any]],
    reason: str,
) -> StorageDeviceInfo:
    number, bus_code = str(one.get("DeviceId")), str(one.get("BusType"))
    bus = codes("windows_buses").get(bus_code)
    medium = codes("windows_media").get(str(one.get("MediaType")))
    if bus_code in _NVME:
        medium = "nvme_ssd"
    elif bus == "sata" and medium == "ssd":
        medium = "sata_ssd"
    elif bus in ("virtual", "network", "mmc"):
        medium = "flash" if bus == "mmc" else bus
    points = tuple(letters.get(number, ()))
    counted = counters.get(number, {})
    device = StorageDeviceInfo(
        device_path=rf"\\.\PhysicalDrive{number}",
        model=text(one.get("FriendlyName")),
        serial=text(one.get("SerialNumber")),
        firmware=text(one.get("FirmwareVersion")),
        device_type=medium,
        bus_type=bus,
        capacity_bytes=whole(one.get("Size"), least=1),
        health_status=codes("windows_health").get(str(one.get("HealthStatus"))),
        temperature_celsius=decimal(counted.get("Temperature"), least=1, most=300),
        wear_level_percent=decimal(counted.get("Wear"), most=255),
        power_on_hours=whole(counted.get("PowerOnHours"), most=2**32),
        mount_points=points,
        filesystem=" + ".join(unique(kind for point in points if (kind := kinds.get(point)))) or None,
    )
    reasons = dict.fromkeys(SMART_FIELDS, reason or "the disk doesn't report it")
    return with_reasons(device, reasons | {"device_type": f"Windows calls its medium {str(one.get('MediaType'))!r}"})


def _counters(machine: Machine) -> tuple[dict[str, dict[str, Any]], str]:
    ran = machine.run(*RELIABILITY)
    found = {str(one.get("DeviceId")): one for one in tables(from_json((ran.value or "").lstrip("\ufeff")))}
    return (
        found,
        "" if found else ran.reason or "needs an administrator: Get-StorageReliabilityCounter returned nothing",
    )
