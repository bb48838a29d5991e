"""Health of disks and the limits of their links, from sysfs without root and from `smartctl --json`.

NVMe without root: the driver's hwmon (temperature, and the alarm of the controller's critical warning) and its state.
eMMC: `life_time` and `pre_eol_info`, defined in the JEDEC standard JESD84-B51. The temperature of SATA disks isn't
read: the documentation of the module drivetemp warns that it may keep a disk from spinning down.

smartctl (smartmontools 7.0 and later) needs root for most disks. A sleeping disk isn't woken (`-n standby`). Its exit
code is a set of bits, some of which are set for a failing disk whose data is valid (smartctl(8), EXIT STATUS).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ....machine import Machine
from ....values import data_file, decimal, first_number, from_json, inside, table, tables, text, whole
from .storage_device import codes


@dataclass(frozen=True, kw_only=True)
class DiskHealth:
    """The health of a disk; `reason` explains a status that isn't good. smartctl also reports model, serial number
    and firmware, and `untold` is why it reports no health."""

    status: str | None = None
    temperature_celsius: float | None = None
    wear_percent: float | None = None
    power_on_hours: int | None = None
    reason: str = ""
    extra: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    model: str | None = None
    serial: str | None = None
    firmware: str | None = None
    rotates: bool | None = None
    untold: str = ""

    def over(self, other: DiskHealth) -> DiskHealth:
        """Return this health, completed from `other`, with the worse of both states."""
        states = [one for one in (self, other) if one.status is not None]
        worst = max(states, key=lambda one: _ORDER.index(one.status or "healthy"), default=other)
        temperature = self.temperature_celsius
        return replace(
            self,
            status=worst.status,
            reason=worst.reason,
            temperature_celsius=other.temperature_celsius if temperature is None else temperature,
            extra={**other.extra, **self.extra},
        )


def health_without_root(machine: Machine, name: str, link: str) -> DiskHealth:
    """Return the health of the block device `name` from sysfs. An NVMe disk without an alarm has no status."""
    if name.startswith("nvme"):
        return _of_nvme(machine, name, link)
    if name.startswith("mmcblk"):
        return _of_emmc(machine, name)
    if machine.text(f"/sys/block/{name}/device/state") == "offline":
        return DiskHealth(status="critical", reason="the kernel took it offline after errors")
    return DiskHealth()


def controller(machine: Machine, name: str, link: str) -> str:
    """Return the sysfs folder of an NVMe disk's controller. With several paths it is below the subsystem."""
    below = re.search(r"/nvme-subsystem/([\w-]+)/", link)
    if below:
        inside = machine.names(f"/sys/class/nvme-subsystem/{below[1]}") or ()
        first = next((one for one in inside if re.fullmatch(r"nvme\d+", one)), None)
        if first:
            return f"/sys/class/nvme/{first}"
    number = re.search(r"/(nvme\d+)/nvme\d+n\d+$", link) or re.match(r"(nvme\d+)", name)
    return f"/sys/class/nvme/{number[1] if number else name}"


def _of_nvme(machine: Machine, name: str, link: str) -> DiskHealth:
    folder = controller(machine, name, link)
    sensors = [f"{folder}/{one}" for one in machine.names(folder) or () if re.fullmatch(r"hwmon\d+", one)]
    temperature = alarm = None
    for sensor in sensors:
        value = whole(machine.text(f"{sensor}/temp1_input"), least=-100_000, most=300_000)
        temperature = None if value is None else value / 1000
        alarm = machine.text(f"{sensor}/temp1_alarm")
    state = machine.text(f"{folder}/state")
    if state == "dead":
        return DiskHealth(
            status="critical", temperature_celsius=temperature, reason="the kernel gave up on its controller"
        )
    if alarm == "1":
        reason = "its temperature exceeds its threshold"
        return DiskHealth(status="warning", temperature_celsius=temperature, reason=reason)
    return DiskHealth(temperature_celsius=temperature)


def _of_emmc(machine: Machine, name: str) -> DiskHealth:
    folder = f"/sys/block/{name}/device"
    status, reason = codes("emmc_health").get(str(_hexadecimal(machine.text(f"{folder}/pre_eol_info"))), (None, ""))
    steps = [step for word in (machine.text(f"{folder}/life_time") or "").split() if (step := _hexadecimal(word))]
    if not steps or not 1 <= max(steps) <= 11:
        return DiskHealth(status=status, reason=reason)
    worst = max(steps)
    if worst == 11:
        return DiskHealth(
            status="warning", reason="its rated life is exceeded", extra={"life_time_used": "over 100 %"}
        )
    return DiskHealth(status=status, reason=reason, extra={"life_time_used": f"{10 * (worst - 1)} to {10 * worst} %"})


def _hexadecimal(written: str | None) -> int | None:
    try:
        return int(written or "", 16)
    except ValueError:
        return None


def link_limit(machine: Machine, name: str, link: str) -> dict[str, str | int | float | bool]:
    """Return the maximum rate of a disk's link, which isn't the speed of the disk."""
    found: dict[str, str | int | float | bool] = {}
    if name.startswith("nvme"):
        device = f"{controller(machine, name, link)}/device"
        speed, current = (first_number(machine.text(f"{device}/{which}_link_speed")) for which in ("max", "current"))
        lanes, lanes_now = (whole(machine.text(f"{device}/{which}_link_width"), least=1, most=32)
                            for which in ("max", "current"))  # fmt: skip
        shares = {float(one): share for one, share in codes("pcie_efficiency").items()}
        limits = [one for one in (speed, current) if one in shares]
        widths = [one for one in (lanes, lanes_now) if one]
        if len(limits) == 2 and len(widths) == 2:
            lowest = min(limits)
            found["pcie_link_limit_mbps"] = round(lowest * 1e3 * shares[lowest] * min(widths) / 8)
            found["pcie_link"] = f"{lowest:g} GT/s x{min(widths)}"
            if (lowest, min(widths)) != (speed, lanes):
                found["pcie_link_of_the_disk"] = f"{speed:g} GT/s x{lanes}"
        node = whole(machine.text(f"{device}/numa_node"))
        if node is not None:
            found["numa_node"] = node
    port = re.search(r"/ata(\d+)/", link)
    if port:
        gigabits = first_number(machine.text(f"/sys/class/ata_link/link{port[1]}/sata_spd"))
        if gigabits:
            found["sata_link_gbps"] = gigabits
    return found


_ATTRIBUTES = Path(__file__).with_name("smart_attributes.toml")
_ALL_BITS = 0xFF

_ORDER = ("healthy", "warning", "critical")


def read_smart(machine: Machine, path: str) -> DiskHealth:
    """Return the health of the disk at `path` from smartctl."""
    printed = machine.run("smartctl", "--json", "-n", "standby", "-a", path, accept=_ALL_BITS)
    if printed.value is None:
        return DiskHealth(untold=printed.reason)
    data = from_json(printed.value)
    return (
        from_smartctl(data)
        if isinstance(data, dict)
        else DiskHealth(untold="smartctl didn't print JSON (needs version 7.0 or later)")
    )


def from_smartctl(data: Mapping[str, Any]) -> DiskHealth:
    """Return the health in the JSON of `smartctl -a`."""
    states = sorted(_states(data), key=lambda one: _ORDER.index(one[0]), reverse=True)
    passed = inside(data, "smart_status", "passed")
    status = states[0][0] if states else "healthy" if passed is True else None
    log = table(data.get("nvme_smart_health_information_log"))
    temperature = decimal(inside(data, "temperature", "current"), least=-100, most=300)
    rate = whole(data.get("rotation_rate"), most=100_000)
    return DiskHealth(
        status=status,
        temperature_celsius=temperature,
        wear_percent=_wear(data, log),
        power_on_hours=whole(inside(data, "power_on_time", "hours"), most=2**32),
        reason="; ".join(why for _, why in states),
        extra=dict(_extra(data, log)),
        model=text(data.get("model_name")) or text(data.get("scsi_model_name")),
        serial=text(data.get("serial_number")),
        firmware=text(data.get("firmware_version")) or text(data.get("scsi_revision")),
        rotates=None if rate is None else rate > 0,
        untold=_why_nothing(data) if status is None else "",
    )


def _states(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each problem as a status and its reason."""
    log = table(data.get("nvme_smart_health_information_log"))
    bits = whole(log.get("critical_warning"), most=0xFF)
    if bits is None:
        bits = whole(inside(data, "smart_status", "nvme", "value"), most=0xFF) or 0
    yield from ((status, why) for bit, (status, why) in codes("nvme_warnings").items() if bits & int(bit, 16))
    spare, least = (whole(log.get(name)) for name in ("available_spare", "available_spare_threshold"))
    if spare is not None and least is not None and spare < least and not bits & 0x01:
        yield "warning", f"{spare} % of its spare blocks are left, less than the threshold of {least} %"
    if errors := whole(log.get("media_errors"), least=1):
        yield "warning", f"{errors} media errors"
    if inside(data, "smart_status", "passed") is False and not bits:
        yield "critical", "its self-assessment reports a failure"
    if (wear := _wear(data, log)) is not None and wear >= 100:
        yield "warning", f"{wear:g} % of its rated endurance is used"
    for attribute in tables(inside(data, "ata_smart_attributes", "table")):
        name, count = str(attribute.get("name")), whole(inside(attribute, "raw", "value"), least=1, most=2**32)
        if name in data_file(_ATTRIBUTES)["counted"] and count:
            yield "warning", f"{count} {data_file(_ATTRIBUTES)['counted'][name]}"
        if attribute.get("when_failed") == "now" and inside(attribute, "flags", "prefailure") is True:
            yield "critical", f"{name} is below its threshold"
    for kind in ("read", "write", "verify"):
        count = whole(inside(data, "scsi_error_counter_log", kind, "total_uncorrected_errors"), least=1)
        if count:
            yield "warning", f"{count} uncorrected {kind} errors"


def _wear(data: Mapping[str, Any], log: Mapping[str, Any]) -> float | None:
    """Return the percentage of the rated endurance that is used: a counter of NVMe and SAS, vendor attributes of
    SATA."""
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
    """Return the message of smartctl, or that root is needed."""
    messages = [line for one in tables(inside(data, "smartctl", "messages")) if (line := text(one.get("string")))]
    power = text(inside(data, "power_mode", "string")) or ""
    if "standby" in power.lower() or any("STANDBY" in one for one in messages):
        return "the disk is in standby, and reading its status would wake it"
    if any("Permission denied" in one or "root privileges" in one for one in messages):
        return f"needs root: smartctl says {messages[0]!r}"
    if messages:
        return f"smartctl says {messages[0]!r}"
    return "smartctl doesn't report a status"
