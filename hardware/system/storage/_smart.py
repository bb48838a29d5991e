"""What a disk says of itself, through `smartctl --json` (smartmontools 7.0 and later). Needs root for most disks.

A sleeping disk isn't woken (`-n standby`). smartctl's exit code is a set of bits: a disk that fails sets some of them
and is told of all the same (smartctl(8), EXIT STATUS).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...machine import Machine
from ...values import data_file, decimal, from_json, inside, table, tables, text, whole
from ._linux_health import Health

_ATTRIBUTES = Path(__file__).with_name("smart_attributes.toml")
_ALL_BITS = 0xFF

_NVME_WARNINGS = {
    0x01: ("warning", "its spare blocks are below the threshold"),
    0x02: ("warning", "its temperature is beyond a threshold"),
    0x04: ("critical", "its reliability is degraded"),
    0x08: ("critical", "it is read-only"),
    0x10: ("warning", "the backup of its volatile memory failed"),
    0x20: ("critical", "its persistent memory is unreliable or read-only"),
}
"""NVM Express Base Specification 2.0, figure "SMART / Health Information Log Page", Critical Warning."""

_ORDER = ("healthy", "warning", "critical")


@dataclass(frozen=True, kw_only=True)
class Smart:
    """What smartctl told of a disk; `reason` is why it told nothing of its health."""

    health: Health = field(default_factory=Health)
    model: str | None = None
    serial: str | None = None
    firmware: str | None = None
    rotates: bool | None = None
    reason: str = ""

    def over(self, other: Health) -> Health:
        """This health, with what it lacks from `other`; the worse of both states counts."""
        states = [one for one in (self.health, other) if one.status is not None]
        worst = max(states, key=lambda one: _ORDER.index(one.status or "healthy"), default=other)
        temperature = self.health.temperature_celsius
        return replace(
            self.health,
            status=worst.status,
            reason=worst.reason,
            temperature_celsius=other.temperature_celsius if temperature is None else temperature,
            extra={**other.extra, **self.health.extra},
        )


def command(path: str) -> tuple[str, ...]:
    """The words that ask a disk."""
    return ("smartctl", "--json", "-n", "standby", "-a", path)


def read_smart(machine: Machine, path: str) -> Smart:
    """Ask the disk at `path`."""
    told = machine.run(*command(path), accept=_ALL_BITS)
    if told.value is None:
        return Smart(reason=told.reason)
    data = from_json(told.value)
    if not isinstance(data, dict):
        return Smart(reason="smartctl printed no JSON; 7.0 and later do")
    return from_smartctl(data)


def from_smartctl(data: Mapping[str, Any]) -> Smart:
    """What the JSON of `smartctl -a` tells."""
    states = sorted(_states(data), key=lambda one: _ORDER.index(one[0]), reverse=True)
    passed = inside(data, "smart_status", "passed")
    status = states[0][0] if states else "healthy" if passed is True else None
    log = table(data.get("nvme_smart_health_information_log"))
    temperature = decimal(inside(data, "temperature", "current"), least=-100, most=300)
    health = Health(
        status=status,
        temperature_celsius=temperature,
        wear_percent=_wear(data, log),
        power_on_hours=whole(inside(data, "power_on_time", "hours"), most=2**32),
        reason="; ".join(why for _, why in states),
        extra=dict(_extra(data, log)),
    )
    rate = whole(data.get("rotation_rate"), most=100_000)
    return Smart(
        health=health,
        model=text(data.get("model_name")) or text(data.get("scsi_model_name")),
        serial=text(data.get("serial_number")),
        firmware=text(data.get("firmware_version")) or text(data.get("scsi_revision")),
        rotates=None if rate is None else rate > 0,
        reason=_why_nothing(data) if status is None else "",
    )


def _states(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each thing that isn't well, as a status and its reason."""
    log = table(data.get("nvme_smart_health_information_log"))
    bits = whole(log.get("critical_warning"), most=0xFF)
    if bits is None:
        bits = whole(inside(data, "smart_status", "nvme", "value"), most=0xFF) or 0
    yield from (found for bit, found in _NVME_WARNINGS.items() if bits & bit)
    spare, least = (whole(log.get(name)) for name in ("available_spare", "available_spare_threshold"))
    if spare is not None and least is not None and spare < least and not bits & 0x01:
        yield "warning", f"{spare} % of its spare blocks are left, less than the threshold of {least} %"
    if errors := whole(log.get("media_errors"), least=1):
        yield "warning", f"{errors} errors of the medium"
    if inside(data, "smart_status", "passed") is False and not bits:
        yield "critical", "its own assessment says that it fails"
    if (wear := _wear(data, log)) is not None and wear >= 100:
        yield "warning", f"{wear:g} % of its rated endurance are used"
    for attribute in tables(inside(data, "ata_smart_attributes", "table")):
        name, count = str(attribute.get("name")), whole(inside(attribute, "raw", "value"), least=1, most=2**32)
        if name in data_file(_ATTRIBUTES)["counted"] and count:
            yield "warning", f"{count} {data_file(_ATTRIBUTES)['counted'][name]}"
        if attribute.get("when_failed") == "now" and inside(attribute, "flags", "prefailure") is True:
            yield "critical", f"{name} is below its threshold"
    for way in ("read", "write", "verify"):
        count = whole(inside(data, "scsi_error_counter_log", way, "total_uncorrected_errors"), least=1)
        if count:
            yield "warning", f"{count} errors of {way} couldn't be corrected"


def _wear(data: Mapping[str, Any], log: Mapping[str, Any]) -> float | None:
    """Percent of the rated endurance that is used: NVMe and SAS count it, SATA disks have attributes of their own."""
    counted = (
        inside(data, "endurance_used", "current_percent"),
        log.get("percentage_used"),
        data.get("scsi_percentage_used_endurance_indicator"),
    )
    for value in counted:
        if (used := decimal(value, most=255)) is not None:
            return used
    left = {str(one.get("name")): one.get("value") for one in tables(inside(data, "ata_smart_attributes", "table"))}
    for name in data_file(_ATTRIBUTES)["remaining"]:
        if (value := decimal(left.get(name), most=100)) is not None:
            return 100 - value
    return None


def _extra(data: Mapping[str, Any], log: Mapping[str, Any]) -> Iterator[tuple[str, str | int | float | bool]]:
    figures = {
        "available_spare_percent": whole(log.get("available_spare"), most=255),
        "rotation_rpm": whole(data.get("rotation_rate"), least=1, most=100_000),
        "grown_defects": whole(data.get("scsi_grown_defect_list")),
    }
    for one in tables(inside(data, "ata_smart_attributes", "table")):
        if one.get("name") == "Reallocated_Sector_Ct":
            figures["reallocated_sectors"] = whole(inside(one, "raw", "value"), most=2**32)
    yield from ((name, value) for name, value in figures.items() if value is not None)


def _why_nothing(data: Mapping[str, Any]) -> str:
    """smartctl's own words; what needs root is said so."""
    messages = [said for one in tables(inside(data, "smartctl", "messages")) if (said := text(one.get("string")))]
    power = text(inside(data, "power_mode", "string")) or ""
    if "standby" in power.lower() or any("STANDBY" in one for one in messages):
        return "the disk sleeps, and asking would wake it"
    if any("Permission denied" in one or "root privileges" in one for one in messages):
        return f"needs root: smartctl says {messages[0]!r}"
    if messages:
        return f"smartctl says {messages[0]!r}"
    return "smartctl doesn't report a status"
