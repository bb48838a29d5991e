"""The inventory as text: a table for a terminal of 80 columns, JSON, Markdown, or the resources of a node of Ray."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from .errors import UsageError, did_you_mean, echo
from .expected_targets import node_resources
from .markdown import markdown
from .plain_text import json_text, printable, size_text, wrapped
from .software import library_wheels
from .system.libraries import library_names

if TYPE_CHECKING:
    from .accelerators._pci import PciDevice
    from .accelerators.base import AcceleratorInfo, VendorFacts
    from .detection import HardwareInfo
    from .expected_targets import TargetStatus
    from .system.storage import StorageDeviceInfo

WIDTH = 80
UNKNOWN = "unknown"

_LONGEST_CELL = 2_000

_SHOWN = {
    "health_status": "health",
    "temperature_celsius": "temperature",
    "wear_level_percent": "wear",
    "power_on_hours": "hours of use",
}

Row = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class _Section:
    title: str
    rows: tuple[Row, ...]


def list_text(inventory: HardwareInfo, format: str = "table") -> str:
    """The inventory and the targets that may be here, in `table`, `json` or `markdown`, and in `ray` what `ray start
    --resources` takes; never coloured.

    Raises `UsageError` for another format.
    """
    from .detection import targets

    if format not in _FORMATS:
        raise UsageError(
            f"{echo(format)} is not a format of the list",
            fix=" ".join(filter(None, [did_you_mean(format, _FORMATS), f"Known: {', '.join(_FORMATS)}."])),
        )
    return _FORMATS[format](inventory, targets(inventory))


def _json(inventory: HardwareInfo, statuses: tuple[TargetStatus, ...]) -> str:
    data = {**inventory.to_dict(), "targets": [asdict(status) for status in statuses]}
    return json_text(data) + "\n"


def _table(inventory: HardwareInfo, statuses: tuple[TargetStatus, ...]) -> str:
    lines: list[str] = []
    for section in _sections(inventory):
        title = printable(section.title)
        lines += [title, "-" * len(title)]
        for label, value in section.rows:
            lines += _wrapped(f"  {label + ':':<22} ", value)
        lines.append("")
    lines += ["Targets", "-------", "  (expected: it may be here; only a probe says that it works)", ""]
    lines.append(f"  {'target':<12} {'expected':<8} {'memory':>10}  device or reason")
    for status in statuses:
        expected = "yes" if status.expected else "no"
        start = f"  {status.target:<12} {expected:<8} {size_text(status.memory_bytes, '-'):>10}  "
        lines += _wrapped(start, _remark(status))
    return "\n".join(lines) + "\n"


def _markdown(inventory: HardwareInfo, statuses: tuple[TargetStatus, ...]) -> str:
    lines = ["# Hardware", ""]
    for section in _sections(inventory):
        lines += [f"## {markdown(section.title)}", "", "| | |", "|---|---|"]
        lines += [f"| {_cell(label)} | {_cell(value)} |" for label, value in section.rows]
        lines.append("")
    lines += ["## Targets", "", "Expected means that it may be here; only a probe says that it works.", ""]
    lines += ["| target | expected | memory | device or reason |", "|---|---|---|---|"]
    lines += [
        f"| {_cell(one.target)} | {'yes' if one.expected else 'no'} | {size_text(one.memory_bytes, '-')} "
        f"| {_cell(_remark(one))} |"
        for one in statuses
    ]
    return "\n".join(lines) + "\n"


_FORMATS: dict[str, Callable[[HardwareInfo, tuple[TargetStatus, ...]], str]] = {
    "table": _table,
    "json": _json,
    "markdown": _markdown,
    "ray": lambda inventory, _: json.dumps(node_resources(inventory), sort_keys=True) + "\n",
}

NOT_INSTALLED = "Not installed"

FORMATS = tuple(_FORMATS)


def _sections(inventory: HardwareInfo) -> tuple[_Section, ...]:
    return (
        _Section(title="CPU", rows=_cpu(inventory)),
        _Section(title="Memory", rows=_memory(inventory)),
        _Section(title="Storage", rows=_storage(inventory)),
        *(_vendor(facts, inventory) for facts in inventory.vendors),
        *_other_devices(inventory),
        _Section(title="Libraries", rows=_libraries(inventory)),
        _Section(title="Containers", rows=_containers(inventory)),
        _Section(title="Software", rows=_software(inventory)),
    )


def _cpu(inventory: HardwareInfo) -> tuple[Row, ...]:
    cpu = inventory.cpu
    caches = ", ".join(f"L{one.level} {one.kind} {one.instances} × {size_text(one.size_bytes)}" for one in cpu.caches)
    details: tuple[Row, ...] = ()
    if len(cpu.socket_details) > 1:
        details = tuple(
            (f"Socket {one.socket}", f"{one.cores} cores, {one.threads} threads") for one in cpu.socket_details
        )
    details += tuple(
        (f"  {one.name}", f"{one.threads} threads" + _at_most(one.max_frequency_mhz)) for one in cpu.clusters
    )
    if len(cpu.numa_nodes) > 1:
        details += tuple(
            (f"NUMA node {one.node}", f"{one.threads} threads, {size_text(one.memory_bytes)}")
            for one in cpu.numa_nodes
        )
    if cpu.cgroup_threads is not None:
        details += (("Control group", f"at most {cpu.cgroup_threads:g} processors' time"),)
    return (
        ("Make", cpu.vendor or UNKNOWN),
        ("Model", cpu.model or UNKNOWN),
        ("Architecture", cpu.architecture or UNKNOWN),
        ("Sockets", _known(cpu.sockets)),
        ("Physical cores", _known(cpu.cores)),
        ("Logical cores", _logical(cpu.threads, cpu.usable_threads)),
        *details,
        ("Base frequency", _known(cpu.base_frequency_mhz, "MHz")),
        ("Boost frequency", _known(cpu.boost_frequency_mhz, "MHz")),
        ("Current frequency", _known(cpu.current_frequency_mhz, "MHz")),
        ("Caches", caches or UNKNOWN),
        ("Instruction sets", ", ".join(cpu.instruction_sets) or UNKNOWN),
    )


def _memory(inventory: HardwareInfo) -> tuple[Row, ...]:
    memory = inventory.memory
    limit = memory.cgroup_limit_bytes
    return (
        ("Total", size_text(memory.total_bytes) + (f": {memory.reason}" if memory.reason else "")),
        ("Available", size_text(memory.available_bytes)),
        ("Swap", _swap(memory.swap_total_bytes, memory.swap_free_bytes)),
        (
            "Control group",
            "no limit"
            if limit is None
            else f"at most {size_text(limit)}, {size_text(memory.cgroup_used_bytes)} used",
        ),
        ("Persistent memory", size_text(memory.persistent_bytes)),
        ("Type", _known(memory.kind)),
        ("Speed", _known(memory.speed_mts, "MT/s")),
        ("Channels", _known(memory.channels)),
    )


def _logical(threads: int | None, usable: int | None) -> str:
    return _known(threads) + ("" if usable is None else f" ({usable} usable by this process)")


def _at_most(megahertz: float | None) -> str:
    return "" if megahertz is None else f", at most {megahertz:.0f} MHz"


def _swap(total: int | None, free: int | None) -> str:
    return UNKNOWN if total is None else "none" if not total else f"{size_text(total)}, {size_text(free)} free"


def _storage(inventory: HardwareInfo) -> tuple[Row, ...]:
    rows: list[Row] = []
    for number, device in enumerate(inventory.storage):
        rows += _disk(number, device.shareable())
    rows += [(f"{kind}: not listed", reason) for kind, reason in inventory.storage_failures.items()]
    return tuple(rows) or (("Devices", "none"),)


def _disk(number: int, device: StorageDeviceInfo) -> list[tuple[str, str]]:
    """Labels and values of a device; what isn't known stands in one row for each reason."""
    rows = [(f"[{number}]", device.device_type or "of unknown kind")]
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
    return [*rows, *_untold(device)]


def _untold(device: StorageDeviceInfo) -> list[tuple[str, str]]:
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


def _vendor(facts: VendorFacts, inventory: HardwareInfo) -> _Section:
    devices = [one for one in inventory.accelerators if one.vendor == facts.vendor]
    rows: list[Row] = [
        ("State", facts.state),
        ("Hardware", str(facts.hardware)),
        ("Driver", str(facts.driver)),
        ("Library", str(facts.library)),
    ]
    if facts.reason:
        rows.append(("Reason", facts.reason))
    if facts.on_bus is not None:
        rows.append(("On the PCI bus", str(facts.on_bus)))
    for device in devices:
        rows += _device(device)
    return _Section(title=facts.vendor, rows=tuple(rows))


def _device(device: AcceleratorInfo) -> list[Row]:
    label = "Bus only" if device.index is None else f"[{device.index}]"
    rows: list[Row] = [(label, f"{device.model} ({device.device_type})")]
    if device.simulated:
        rows.append(("  Simulated", "yes; this is no real device"))
    rows += [
        ("  Memory", " ".join(filter(None, [size_text(device.memory_bytes), device.memory_type]))),
        ("  Bandwidth", _known(device.bandwidth_gbps, "GB/s")),
        ("  Compute", _known(device.compute_capability)),
        ("  Bus", _known(device.bus_type)),
        ("  PCIe generation", _known(device.pcie_gen)),
        ("  Driver version", _known(device.driver_version)),
        ("  Firmware", _known(device.firmware_version)),
    ]
    rows += [(f"  {key.replace('_', ' ')}", str(value)) for key, value in device.extra_info.items()]
    return rows


def _other_devices(inventory: HardwareInfo) -> tuple[_Section, ...]:
    shown = {one.extra_info.get("pci_address") for one in inventory.accelerators}
    others = [one for one in inventory.on_bus or () if one.address not in shown]
    sections = []
    if others:
        rows = tuple((one.address, _bus_device(one)) for one in others)
        sections.append(_Section(title="Seen on the bus, listed by no vendor above", rows=rows))
    if inventory.on_chip:
        rows = tuple((one.place, f"{one.name} ({one.kind}, driver {one.driver})") for one in inventory.on_chip)
        sections.append(_Section(title="Part of the chip, listed by no vendor above", rows=rows))
    return tuple(sections)


def _bus_device(device: PciDevice) -> str:
    name = device.name or f"{device.vendor_id:04x}:{device.device_id:04x}"
    remarks = ", ".join(filter(None, [device.kind, "external" if device.external else ""]))
    return f"{name} ({remarks})" if remarks else name


def _libraries(inventory: HardwareInfo) -> tuple[Row, ...]:
    """Those that frameworks bring inside their own wheels aren't seen."""
    there = {one.name: f"{one.version or 'present'} ({one.source})" for one in inventory.libraries}
    return (*there.items(), *_missing([name for name in library_names() if name not in there]))


def _containers(inventory: HardwareInfo) -> tuple[Row, ...]:
    rows: list[Row] = []
    for one in inventory.container_engines:
        rows += [(one.name, "installed"), ("  Version", _known(one.version)), ("  Path", _known(one.path))]
    return tuple(rows) or (("Installed", "none"),)


def _software(inventory: HardwareInfo) -> tuple[Row, ...]:
    host, torch = inventory.host, inventory.torch
    packages = {name: version for name, version in inventory.packages.items() if name not in library_wheels()}
    return (
        ("System", f"{host.system} {host.release} on {host.machine}"),
        ("Python", host.python_version),
        *((name, version) for name, version in packages.items() if version),
        ("torch is built for", torch.reason or torch.kind),
        *_missing([name for name, version in packages.items() if not version]),
    )


def _missing(names: list[str]) -> tuple[Row, ...]:
    return ((NOT_INSTALLED, ", ".join(names)),) if names else ()


def _remark(status: TargetStatus) -> str:
    return ": ".join(filter(None, [status.device_name, status.reason]))


def _known(value: object, unit: str = "") -> str:
    if value is None:
        return UNKNOWN
    text = f"{value:.0f}" if isinstance(value, float) else str(value)
    return f"{text} {unit}" if unit else text


def _wrapped(start: str, text: str) -> list[str]:
    """`text` behind `start`, folded at the terminal's width; what isn't printable is escaped."""
    return wrapped(text, width=WIDTH, start=printable(start), indent=" " * min(len(start), 36))


def _cell(value: object) -> str:
    return markdown(str(value), longest=_LONGEST_CELL)
