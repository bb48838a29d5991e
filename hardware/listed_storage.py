"""The rows of a list that one storage device takes."""

from __future__ import annotations

from .system.storage import StorageDeviceInfo

_SHOWN = {
    "health_status": "health",
    "temperature_celsius": "temperature",
    "wear_level_percent": "wear",
    "power_on_hours": "hours of use",
}


def storage_rows(number: int, device: StorageDeviceInfo) -> list[tuple[str, str]]:
    """Labels and values of a device; what isn't known stands in one row for each reason."""
    rows = [(f"[{number}]", device.device_type or "of a kind that isn't told")]
    rows += [("  Device", device.device_path), ("  Model", device.model or "unknown")]
    rows += [("  Bus", device.bus_type or "unknown")]
    if device.capacity_bytes is not None:
        rows.append(("  Capacity", _capacity(device.capacity_bytes)))
    if device.mount_points:
        rows.append(("  Mounted at", ", ".join(device.mount_points)))
    if device.filesystem:
        rows.append(("  Filesystem", device.filesystem))
    if device.firmware:
        rows.append(("  Firmware", device.firmware))
    if device.health_status:
        why = device.reasons.get("health_status")
        rows.append(("  Health", device.health_status + (f": {why}" if why else "")))
    if device.temperature_celsius is not None:
        rows.append(("  Temperature", f"{device.temperature_celsius:.0f} °C"))
    if device.wear_level_percent is not None:
        rows.append(("  Endurance used", f"{device.wear_level_percent:g} %"))
    if device.power_on_hours is not None:
        rows.append(("  Hours of use", f"{device.power_on_hours:,}".replace(",", " ")))
    for label, value in (("Reads at most", device.max_read_mbps), ("Writes at most", device.max_write_mbps)):
        if value is not None:
            rows.append((f"  {label}", f"{value:g} MB/s"))
    rows += [(f"  {name.replace('_', ' ')}", str(value)) for name, value in device.extra_info.items()]
    return [*rows, *_unknown(device)]


def _unknown(device: StorageDeviceInfo) -> list[tuple[str, str]]:
    by_reason: dict[str, list[str]] = {}
    for name, label in _SHOWN.items():
        if getattr(device, name) is None and name in device.reasons:
            by_reason.setdefault(device.reasons[name], []).append(label)
    if device.device_type is None and "device_type" in device.reasons:
        by_reason.setdefault(device.reasons["device_type"], []).append("type")
    return [("  Unknown", f"{', '.join(labels)} ({reason})") for reason, labels in by_reason.items()]


def _capacity(size: int) -> str:
    """In the decimal units that disks are sold in."""
    for power, unit in ((15, "PB"), (12, "TB"), (9, "GB"), (6, "MB")):
        if size >= 10**power:
            return f"{size / 10**power:.3g} {unit}" if size < 1000 * 10**power else f"{size / 10**power:.0f} {unit}"
    return f"{size} B"
