"""What Linux tells of a disk's health without root, and how fast its link is at most.

NVMe: the driver's hwmon (temperature, and the alarm that is the controller's critical warning) and its state. eMMC:
`life_time` and `pre_eol_info`, which the JEDEC standard JESD84-B51 defines. SATA disks tell their temperature by the
module drivetemp, whose documentation warns that reading it may keep a disk from spinning down: it isn't read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...machine import Machine
from ...values import first_number, whole

_EMMC_HEALTH = {1: ("healthy", ""), 2: ("warning", "80 % of the reserved blocks are used"),
                3: ("critical", "90 % of the reserved blocks are used")}  # fmt: skip

_PCIE_EFFICIENCY = {2.5: 8 / 10, 5.0: 8 / 10, 8.0: 128 / 130, 16.0: 128 / 130, 32.0: 128 / 130, 64.0: 242 / 256}
"""Share of a PCIe lane's transfers that are data, by speed in GT/s: 8b/10b, 128b/130b, and 1.0's flits in 6.0."""


@dataclass(frozen=True, kw_only=True)
class Health:
    """What is known of a disk's health; `reason` is what a status that isn't good rests on."""

    status: str | None = None
    temperature_celsius: float | None = None
    wear_percent: float | None = None
    power_on_hours: int | None = None
    reason: str = ""
    extra: Mapping[str, str | int | float | bool] = field(default_factory=dict)


def health_without_root(machine: Machine, name: str, link: str) -> Health:
    """Health of the block device `name` from sysfs alone. That an NVMe disk says nothing isn't `healthy`."""
    if name.startswith("nvme"):
        return _of_nvme(machine, name, link)
    if name.startswith("mmcblk"):
        return _of_emmc(machine, name)
    if machine.text(f"/sys/block/{name}/device/state") == "offline":
        return Health(status="critical", reason="the kernel took it offline after errors")
    return Health()


def controller(machine: Machine, name: str, link: str) -> str:
    """The sysfs folder of an NVMe disk's controller. One with several ways hangs below its subsystem."""
    below = re.search(r"/nvme-subsystem/([\w-]+)/", link)
    if below:
        inside = machine.names(f"/sys/class/nvme-subsystem/{below[1]}") or ()
        first = next((one for one in inside if re.fullmatch(r"nvme\d+", one)), None)
        if first:
            return f"/sys/class/nvme/{first}"
    number = re.search(r"/(nvme\d+)/nvme\d+n\d+$", link) or re.match(r"(nvme\d+)", name)
    return f"/sys/class/nvme/{number[1] if number else name}"


def _of_nvme(machine: Machine, name: str, link: str) -> Health:
    folder = controller(machine, name, link)
    sensors = [f"{folder}/{one}" for one in machine.names(folder) or () if re.fullmatch(r"hwmon\d+", one)]
    temperature = alarm = None
    for sensor in sensors:
        value = whole(machine.text(f"{sensor}/temp1_input"), least=-100_000, most=300_000)
        temperature = None if value is None else value / 1000
        alarm = machine.text(f"{sensor}/temp1_alarm")
    state = machine.text(f"{folder}/state")
    if state == "dead":
        return Health(status="critical", temperature_celsius=temperature, reason="the kernel gave its controller up")
    if alarm == "1":
        reason = "its temperature is beyond the threshold that it names"
        return Health(status="warning", temperature_celsius=temperature, reason=reason)
    return Health(temperature_celsius=temperature)


def _of_emmc(machine: Machine, name: str) -> Health:
    folder = f"/sys/block/{name}/device"
    status, reason = _EMMC_HEALTH.get(_hexadecimal(machine.text(f"{folder}/pre_eol_info")) or 0, (None, ""))
    steps = [step for word in (machine.text(f"{folder}/life_time") or "").split() if (step := _hexadecimal(word))]
    if not steps or not 1 <= max(steps) <= 11:
        return Health(status=status, reason=reason)
    worst = max(steps)
    if worst == 11:
        return Health(status="warning", reason="it is beyond its rated life", extra={"life_time_used": "over 100 %"})
    return Health(status=status, reason=reason, extra={"life_time_used": f"{10 * (worst - 1)} to {10 * worst} %"})


def _hexadecimal(written: str | None) -> int | None:
    try:
        return int(written or "", 16)
    except ValueError:
        return None


def link_limit(machine: Machine, name: str, link: str) -> dict[str, str | int | float | bool]:
    """What the link of a disk allows at most: a property of the link, no speed of the disk."""
    found: dict[str, str | int | float | bool] = {}
    if name.startswith("nvme"):
        device = f"{controller(machine, name, link)}/device"
        speed, current = (first_number(machine.text(f"{device}/{which}_link_speed")) for which in ("max", "current"))
        lanes, lanes_now = (whole(machine.text(f"{device}/{which}_link_width"), least=1, most=32)
                            for which in ("max", "current"))  # fmt: skip
        limits = [one for one in (speed, current) if one in _PCIE_EFFICIENCY]
        widths = [one for one in (lanes, lanes_now) if one]
        if len(limits) == 2 and len(widths) == 2:
            lowest = min(limits)
            found["pcie_link_limit_mbps"] = round(lowest * 1e3 * _PCIE_EFFICIENCY[lowest] * min(widths) / 8)
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
