"""The inventory as text: a short or a whole table, JSON, Markdown, or the resources of a Ray node."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from .errors import UsageError, did_you_mean, echo
from .expected_targets import node_resources
from .inventory.system.system_libraries import library_names
from .inventory_summary import Row, Section, capacity_text, other_devices, summary_text
from .plain_text import json_text, markdown, printable, size_text, wrapped
from .software import library_wheels

if TYPE_CHECKING:
    from .detection import HardwareInfo
    from .expected_targets import TargetStatus
    from .inventory.system.main_memory import MemoryInfo
    from .inventory.system.processor_info import CPUInfo
    from .inventory.system.storage import StorageDeviceInfo
    from .inventory.vendors.vendor import AcceleratorInfo, VendorFacts

WIDTH = 80
UNKNOWN = "unknown"

_LONGEST_CELL = 2_000


def list_text(inventory: HardwareInfo, format: str = "table", everything: bool = False) -> str:
    """Return the inventory and the expected targets as `table`, `json` or `markdown`, or as the value of `ray start
    --resources` with `ray`; without color. A table fits one screen unless it holds `everything`.

    Raises `UsageError` for another format.
    """
    from .expected_targets import targets

    if format not in _FORMATS:
        raise UsageError(
            f"{echo(format)} is not a format of the list",
            fix=" ".join(filter(None, [did_you_mean(format, _FORMATS), f"Known: {', '.join(_FORMATS)}."])),
        )
    write = summary_text if format == "table" and not everything else _FORMATS[format]
    return write(inventory, targets(inventory))


def _json(inventory: HardwareInfo, statuses: tuple[TargetStatus, ...]) -> str:
    data = {**inventory.to_dict(), "targets": [asdict(status) for status in statuses]}
    return json_text(data) + "\n"


def _table(inventory: HardwareInfo, statuses: tuple[TargetStatus, ...]) -> str:
    lines: list[str] = []
    for title, rows in _sections(inventory):
        lines += [printable(title), "-" * len(printable(title))]
        for label, value in rows:
            lines += _wrapped(f"  {label + ':':<22} ", value)
        lines.append("")
    lines += ["Targets", "-------", "  (expected: it may be here; only a probe says that it works)", ""]
    lines.append(f"  {'target':<12} {'expected':<8} {'memory':>10}  device or reason")
    for target, expected, memory, remark in _targets(statuses):
        lines += _wrapped(f"  {target:<12} {expected:<8} {memory:>10}  ", remark)
    return "\n".join(lines) + "\n"


def _markdown(inventory: HardwareInfo, statuses: tuple[TargetStatus, ...]) -> str:
    lines = ["# Hardware", ""]
    for title, rows in _sections(inventory):
        lines += [f"## {markdown(title)}", "", *_grid([("", ""), *rows]), ""]
    lines += ["## Targets", "", "Expected means that it may be here; only a probe says that it works.", ""]
    lines += _grid([("target", "expected", "memory", "device or reason"), *_targets(statuses)])
    return "\n".join(lines) + "\n"


def _grid(rows: Sequence[Sequence[str]]) -> list[str]:
    cells = ([markdown(cell, longest=_LONGEST_CELL) for cell in row] for row in rows)
    heading, *others = (f"| {' | '.join(row)} |" for row in cells)
    return [heading, "|---" * len(rows[0]) + "|", *others]


def _targets(statuses: Iterable[TargetStatus]) -> list[tuple[str, str, str, str]]:
    return [
        (
            one.target,
            "yes" if one.expected else "no",
            size_text(one.memory_bytes, "-"),
            ": ".join(filter(None, [one.device_name, one.reason])),
        )
        for one in statuses
    ]


_FORMATS: dict[str, Callable[[HardwareInfo, tuple[TargetStatus, ...]], str]] = {
    "table": _table,
    "json": _json,
    "markdown": _markdown,
    "ray": lambda inventory, _: json.dumps(node_resources(inventory), sort_keys=True) + "\n",
}

NOT_INSTALLED = "Not installed"

FORMATS = tuple(_FORMATS)


def _sections(inventory: HardwareInfo) -> list[Section]:
    return [
        ("CPU", _cpu(inventory.cpu)),
        ("Memory", _memory(inventory.memory)),
        ("Storage", _storage(inventory)),
        *((facts.vendor, _vendor(facts, inventory)) for facts in inventory.vendors),
        *other_devices(inventory),
        ("Libraries", _libraries(inventory)),
        ("Containers", _containers(inventory)),
        ("Software", _software(inventory)),
    ]


def _fields(thing: object, fields: Mapping[str, str], unit: str = "") -> list[Row]:
    """Return the values of an object's fields by their labels."""
    return [(label, _known(getattr(thing, name), unit)) for label, name in fields.items()]


def _cpu(cpu: CPUInfo) -> list[Row]:
    caches = (f"L{one.level} {one.kind} {one.instances} × {size_text(one.size_bytes)}" for one in cpu.caches)
    usable = "" if cpu.usable_threads is None else f" ({cpu.usable_threads} usable by this process)"
    rows = _fields(cpu, {"Make": "vendor", "Model": "model", "Architecture": "architecture"})
    rows += _fields(cpu, {"Sockets": "sockets", "Physical cores": "cores"})
    rows.append(("Logical cores", _known(cpu.threads) + usable))
    if len(cpu.socket_details) > 1:
        rows += [(f"Socket {one.socket}", f"{one.cores} cores, {one.threads} threads") for one in cpu.socket_details]
    for cluster in cpu.clusters:
        most = "" if cluster.max_frequency_mhz is None else f", at most {cluster.max_frequency_mhz:.0f} MHz"
        rows.append((f"  {cluster.name}", f"{cluster.threads} threads{most}"))
    for one in cpu.numa_nodes if len(cpu.numa_nodes) > 1 else ():
        rows.append((f"NUMA node {one.node}", f"{one.threads} threads, {size_text(one.memory_bytes)}"))
    if cpu.cgroup_threads is not None:
        rows.append(("Control group", f"at most {cpu.cgroup_threads:g} processors' time"))
    frequencies = {f"{name} frequency": f"{name.lower()}_frequency_mhz" for name in ("Base", "Boost", "Current")}
    rows += _fields(cpu, frequencies, "MHz")
    rows.append(("Caches", ", ".join(caches) or UNKNOWN))
    return [*rows, *_fields(cpu, {"Instruction sets": "instruction_sets"})]


def _memory(memory: MemoryInfo) -> list[Row]:
    limit, swap = memory.cgroup_limit_bytes, memory.swap_total_bytes
    used = f"at most {size_text(limit)}, {size_text(memory.cgroup_used_bytes)} used"
    free = f"{size_text(swap)}, {size_text(memory.swap_free_bytes)} free"
    return [
        ("Total", size_text(memory.total_bytes) + (f": {memory.reason}" if memory.reason else "")),
        ("Available", size_text(memory.available_bytes)),
        ("Swap", UNKNOWN if swap is None else free if swap else "none"),
        ("Control group", "no limit" if limit is None else used),
        ("Persistent memory", size_text(memory.persistent_bytes)),
        ("Type", _known(memory.kind)),
        ("Speed", _known(memory.speed_mts, "MT/s")),
        ("Channels", _known(memory.channels)),
    ]


def _storage(inventory: HardwareInfo) -> list[Row]:
    rows = [row for number, device in enumerate(inventory.storage) for row in _disk(number, device.shareable())]
    rows += [(f"{kind}: not listed", reason) for kind, reason in inventory.storage_failures.items()]
    return rows or [("Devices", "none")]


def _disk(number: int, device: StorageDeviceInfo) -> list[Row]:
    """Return the labels and values of a disk; unknown values are grouped in one row per reason."""
    rows = [(f"[{number}]", device.device_type or "of unknown kind")]
    rows += _fields(device, {"  Device": "device_path", "  Model": "model", "  Bus": "bus_type"})
    for label, (name, text) in _OF_A_DISK.items():
        value, why = getattr(device, name), device.reasons.get(name) if name == "health_status" else None
        if value not in (None, ()):
            rows.append((f"  {label}", text(value) + (f": {why}" if why else "")))
    rows += [(f"  {name.replace('_', ' ')}", str(value)) for name, value in device.extra_info.items()]
    by_reason: dict[str, list[str]] = {}
    for name, label in _MISSED.items():
        if getattr(device, name) is None and name in device.reasons:
            by_reason.setdefault(device.reasons[name], []).append(label)
    return [*rows, *(("  Unknown", f"{', '.join(labels)} ({reason})") for reason, labels in by_reason.items())]


_OF_A_DISK: dict[str, tuple[str, Callable[[Any], str]]] = {
    "Capacity": ("capacity_bytes", capacity_text),
    "Mounted at": ("mount_points", ", ".join),
    "Filesystem": ("filesystem", str),
    "Firmware": ("firmware", str),
    "Health": ("health_status", str),
    "Temperature": ("temperature_celsius", "{:.0f} °C".format),
    "Endurance used": ("wear_level_percent", "{:g} %".format),
    "Hours of use": ("power_on_hours", lambda hours: f"{hours:,}".replace(",", " ")),
    "Reads at most": ("max_read_mbps", "{:g} MB/s".format),
    "Writes at most": ("max_write_mbps", "{:g} MB/s".format),
}
"""The fields of a disk that are shown if they are known, with their text."""

_MISSED = {
    "health_status": "health",
    "temperature_celsius": "temperature",
    "wear_level_percent": "wear",
    "power_on_hours": "hours of use",
    "device_type": "type",
}
"""The labels of fields that may be unknown."""


def _vendor(facts: VendorFacts, inventory: HardwareInfo) -> list[Row]:
    rows = _fields(facts, {"State": "state", "Hardware": "hardware", "Driver": "driver", "Library": "library"})
    if facts.reason:
        rows.append(("Reason", facts.reason))
    if facts.on_bus is not None:
        rows.append(("On the PCI bus", str(facts.on_bus)))
    own = [one for one in inventory.accelerators if one.vendor == facts.vendor]
    equal: dict[str, list[AcceleratorInfo]] = {}
    for one in own:
        common = {name: value for name, value in one.extra_info.items() if name not in _OF_ONE_DEVICE}
        equal.setdefault(repr(replace(one, index=None, extra_info=common)), []).append(one)
    return rows + [row for devices in equal.values() for row in _device(*devices)]


_OF_ONE_DEVICE = ("pci_address", "uuid", "device_node", "pcie_gen_now")
"""Keys of `extra_info` in which equal devices differ."""


def _device(device: AcceleratorInfo, *equal: AcceleratorInfo) -> list[Row]:
    """Return the rows of a device, or of several that are equal but for their places."""
    indexes = [str(one.index) for one in (device, *equal) if one.index is not None]
    label = f"[{', '.join(indexes)}]" if indexes else "Bus only"
    rows: list[Row] = [(label, f"{device.model} ({device.device_type})")]
    if device.simulated:
        rows.append(("  Simulated", "yes; this is no real device"))
    rows.append(("  Memory", " ".join(filter(None, [size_text(device.memory_bytes), device.memory_type]))))
    rows += _fields(device, {"  Bandwidth": "bandwidth_gbps", "  PCIe link": "interconnect_gbps"}, "GB/s")
    rows += _fields(device, {"  Compute": "compute_capability", "  Bus": "bus_type", "  PCIe generation": "pcie_gen"})
    rows += _fields(device, {"  Driver version": "driver_version", "  Firmware": "firmware_version"})
    for key in dict.fromkeys(key for one in (device, *equal) for key in one.extra_info):
        values = dict.fromkeys(str(one.extra_info.get(key, UNKNOWN)) for one in (device, *equal))
        rows.append((f"  {key.replace('_', ' ')}", ", ".join(values)))
    return rows


def _libraries(inventory: HardwareInfo) -> list[Row]:
    """Return the rows of system libraries. Libraries bundled in the wheels of frameworks aren't detected."""
    there = {one.name: f"{one.version or 'present'} ({one.source})" for one in inventory.libraries}
    return [*there.items(), *_missing([name for name in library_names() if name not in there])]


def _containers(inventory: HardwareInfo) -> list[Row]:
    rows: list[Row] = []
    for one in inventory.container_engines:
        rows += [(one.name, "installed"), *_fields(one, {"  Version": "version", "  Path": "path"})]
    return rows or [("Installed", "none")]


def _software(inventory: HardwareInfo) -> list[Row]:
    host, torch = inventory.host, inventory.torch
    packages = {name: version for name, version in inventory.packages.items() if name not in library_wheels()}
    return [
        ("System", f"{host.system} {host.release} on {host.machine}"),
        ("Python", host.python_version),
        *((name, version) for name, version in packages.items() if version),
        ("torch is built for", torch.reason or torch.kind),
        *_missing([name for name, version in packages.items() if not version]),
    ]


def _missing(names: list[str]) -> list[Row]:
    return [(NOT_INSTALLED, ", ".join(names))] if names else []


def _known(value: object, unit: str = "") -> str:
    if value in (None, "", ()):
        return UNKNOWN
    text = f"{value:.0f}" if isinstance(value, float) else str(value)
    text = ", ".join(value) if isinstance(value, tuple) else text
    return f"{text} {unit}".rstrip()


def _wrapped(start: str, text: str) -> list[str]:
    """Return `start` and `text` wrapped to the width of the terminal; unprintable characters are escaped."""
    return wrapped(text, width=WIDTH, start=printable(start), indent=" " * min(len(start), 36))
