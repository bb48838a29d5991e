"""The inventory on one screen: the host, accelerators in groups of equal devices, and targets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from .command_names import as_runnable
from .plain_text import labelled, one_line, size_text
from .target import Target

if TYPE_CHECKING:
    from .detection import HardwareInfo
    from .expected_targets import TargetStatus
    from .inventory.system.storage import StorageDeviceInfo
    from .inventory.vendors._pci import PciDevice
    from .inventory.vendors.vendor import AcceleratorInfo

WIDTH = 100
NO_DEVICE = "no device found"

_LONGEST = 160
"""At most two lines for one remark; the whole list has all of it."""

_DISKS = 3
_VERSIONS = 2

Row = tuple[str, str]
Section = tuple[str, list[Row]]


SIMULATED = "simulated"
"""The name of the fact that a device is simulated."""


def summary_text(inventory: HardwareInfo, statuses: Sequence[TargetStatus]) -> str:
    """Return the inventory in about 24 lines of 100 columns; ends in a newline."""
    usable = [(one.target, _remark(one, inventory)) for one in statuses if one.expected]
    unusable = grouped((one.target, short_reason(one, inventory)) for one in statuses if not one.expected)
    sections = (
        ("", [*_host(inventory), *_accelerators(inventory), *_vendors(inventory)]),
        (f"Targets that can run here (test them: {as_runnable('hwcompat doctor')})", usable + _variants(inventory)),
        ("Targets that can't run here", unusable),
    )
    lines: list[str] = []
    for title, rows in sections:
        if rows:
            cut = [(name, one_line(text, longest=_LONGEST)) for name, text in rows]
            lines += [*filter(None, [title]), *labelled(cut, width=WIDTH), ""]
    return "\n".join([*lines, f"Show everything: {as_runnable('hwcompat devices list --all')}"]) + "\n"


def short_reason(status: TargetStatus, inventory: HardwareInfo) -> str:
    """Return why a target can't run. A missing device is the only reason for one that needs a device."""
    from .backends.factory import declarations_of

    target = declarations_of(status.target)
    devices = [one.hardware for one in inventory.vendors if one.vendor == target.VENDOR]
    missing = bool(devices) and "present" not in devices
    return NO_DEVICE if missing and not target.OWN_ENVIRONMENT else status.reason


def grouped(rows: Iterable[Row]) -> list[Row]:
    """Return one row for all names with the same text, in the order of the first of them."""
    names: dict[str, list[str]] = {}
    for name, text in rows:
        names.setdefault(text, []).append(name)
    return [(", ".join(same), text) for text, same in names.items()]


def capacity_text(size: int) -> str:
    """Return a size in the decimal units in which disks are sold."""
    for power, unit in ((15, "PB"), (12, "TB"), (9, "GB"), (6, "MB")):
        if size >= 10**power:
            return f"{size / 10**power:.3g} {unit}" if size < 1000 * 10**power else f"{size / 10**power:.0f} {unit}"
    return f"{size} B"


def other_devices(inventory: HardwareInfo) -> list[Section]:
    """Return the devices that no vendor lists: those on the bus, and those that are part of the chip."""
    shown = {one.extra_info.get("pci_address") for one in inventory.accelerators}
    others = [(one.address, _bus_device(one)) for one in inventory.on_bus or () if one.address not in shown]
    on_chip = [(one.place, f"{one.name} ({one.kind}, driver {one.driver})") for one in inventory.on_chip]
    found = [("Seen on the bus", others), ("Part of the chip", on_chip)]
    return [(f"{title}, listed by no vendor above", rows) for title, rows in found if rows]


def _bus_device(device: PciDevice) -> str:
    name = device.name or f"{device.vendor_id:04x}:{device.device_id:04x}"
    remarks = ", ".join(filter(None, [device.kind, "external" if device.external else ""]))
    return f"{name} ({remarks})" if remarks else name


def _host(inventory: HardwareInfo) -> list[Row]:
    host, cpu, memory = inventory.host, inventory.cpu, inventory.memory
    limit = "" if memory.cgroup_limit_bytes is None else f", limited to {size_text(memory.cgroup_limit_bytes)}"
    why = f": {memory.reason}" if memory.reason else ""
    counts = ((cpu.sockets, "socket"), (cpu.cores, "core"), (cpu.threads, "thread"))
    known = [f"{count} {name}{'s' if count > 1 else ''}" for count, name in counts if count]
    if cpu.cgroup_threads is not None:
        known.append(f"limited to {cpu.cgroup_threads:g} CPUs")
    disks = [_disk(one.shareable()) for one in inventory.storage]
    more = [f"{len(disks) - _DISKS} more"] if len(disks) > _DISKS else []
    return [
        ("System", f"{host.system} {host.release} on {host.machine}, Python {host.python_version}"),
        ("CPU", (cpu.model or "unknown") + (f" ({', '.join(known)})" if known else "")),
        ("Memory", f"{size_text(memory.total_bytes)}, {size_text(memory.available_bytes)} available{limit}{why}"),
        ("Disks", ", ".join([*disks[:_DISKS], *more]) or "none found"),
    ]


def _disk(disk: StorageDeviceInfo) -> str:
    size = "" if disk.capacity_bytes is None else f" {capacity_text(disk.capacity_bytes)}"
    return f"{disk.device_path}{size}{f' at {min(disk.mount_points, key=len)}' if disk.mount_points else ''}"


def _accelerators(inventory: HardwareInfo) -> list[Row]:
    equal = Counter(map(_device, inventory.accelerators))
    rows = [
        f"{count} × {name} ({memory} each){remarks}" if count > 1 else f"{name} ({memory}){remarks}"
        for (name, memory, remarks), count in equal.items()
    ]
    found = [("Accelerators", rows[0] if rows else "none found"), *(("", row) for row in rows[1:])]
    others = Counter(text for _, unlisted in other_devices(inventory) for _, text in unlisted)
    if others:
        texts = (f"{count} × {name}" if count > 1 else name for name, count in others.items())
        found.append(("Unlisted", ", ".join(texts)))
    return found


def _device(device: AcceleratorInfo) -> tuple[str, str, str]:
    """Return the name, the memory and the remarks of a device. Devices that have the same ones are equal."""
    name = device.model if device.vendor.lower() in device.model.lower() else f"{device.vendor} {device.model}"
    usable, hidden = device.extra_info.get("usable_memory_bytes"), device.extra_info.get("hidden_by")
    of_config = device.extra_info.get("seen_through") == "configuration"
    remarks = (
        f"driver {device.driver_version}" if device.driver_version else "",
        f"{size_text(usable)} usable" if isinstance(usable, int) and usable != device.memory_bytes else "",
        f"hidden by {hidden}" if hidden else "",
        "" if device.seen_by != "bus" else "configured" if of_config else "no usable driver",
        SIMULATED if device.simulated else "",
    )
    shared = "unified memory" if device.memory_type == "unified" else ""
    size = size_text(device.memory_bytes, "" if shared else "memory unknown")
    return name, f"{size} {shared}".strip(), "".join(f", {one}" for one in remarks if one)


def _vendors(inventory: HardwareInfo) -> list[Row]:
    """Return the vendors whose devices can't be used, with the reason, and those without devices in one row."""
    from .inventory.vendors.vendor import HardwareState, LibraryState, VendorState

    rows, unknown = [], []
    for one in inventory.vendors:
        if one.state is VendorState.UNUSABLE or one.failed:
            rows.append(("Unusable", f"{one.vendor}: {one.reason}"))
        elif one.hardware is HardwareState.UNKNOWN and one.library is LibraryState.OK:
            rows.append(("Unknown", f"{one.vendor}: {one.reason}"))
        elif one.hardware is HardwareState.UNKNOWN:
            unknown.append(one.vendor)
    absent = [one.vendor for one in inventory.vendors if one.hardware is HardwareState.ABSENT]
    rows += [(NO_DEVICE.capitalize(), ", ".join(absent))] if absent else []
    return rows + ([("Unknown", f"{', '.join(unknown)} (no driver or bus to read)")] if unknown else [])


def _remark(status: TargetStatus, inventory: HardwareInfo) -> str:
    """Return the remark on a target that can run, or else the versions of what it runs with."""
    from .backends.factory import declarations_of

    if status.reason:
        return ": ".join(filter(None, [status.device_name, status.reason]))
    names = [name for name in declarations_of(status.target).EXPIRES_ON if inventory.packages.get(name)]
    return ", ".join(f"{name.partition(' (')[0]} {inventory.packages[name]}" for name in names[:_VERSIONS])


def _variants(inventory: HardwareInfo) -> list[Row]:
    """Return the variants that need only one package and no device, and have it."""
    from .backends.factory import backend_class, built_in_targets
    from .expected_targets import why_absent

    return [
        (f"{name}:{variant}", f"{package} {inventory.packages[package]}")
        for name in built_in_targets()
        for variant, (package, _) in backend_class(name).VARIANTS_NEED.items()
        if not why_absent(Target(name=name, variant=variant), inventory)
    ]
