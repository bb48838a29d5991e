"""Limits of the hardware, from `limits.toml` or the inventory; an unknown limit has a reason."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwcompat.hardware.values import data_file

from .stress_result import Figure

if TYPE_CHECKING:
    from hwcompat.hardware.inventory.system.main_memory import MemoryInfo
    from hwcompat.hardware.inventory.system.processor import CPUInfo
    from hwcompat.hardware.inventory.vendors.vendor import AcceleratorInfo

FILE = Path(__file__).with_name("limits.toml")
_BYTES_OF_CHANNEL = 8  # a channel of DDR memory is 64 bits wide (JEDEC JESD79)


_MARKS = re.compile(
    r"\((?:r|tm)\)|\bcorporation\b|\badvanced micro devices, inc\.|\[amd/ati\]|\b(?:nvidia|amd|intel)\b",
    re.IGNORECASE,
)
"""Marks and makers, which drivers, frameworks and pci.ids write differently."""


def accelerator_limit(name: str, precision: str, device: AcceleratorInfo | None = None) -> Figure:
    """Return the TFLOPS of a device in a precision."""
    entry = _entry(name)
    if entry is None:
        return Figure(reason=f"the table of limits has no {name or 'unnamed device'}")
    if precision not in entry:
        return Figure(reason=f"its vendor publishes no figure for {precision}")
    rate = float(entry[precision])
    if (part := entry.get("per")) is None:
        return Figure(value=rate, source=entry["source"])
    count = device.extra_info.get(part) if device is not None else None
    if not isinstance(count, int):
        return Figure(reason=f"the table has its figure for each of its {part}, whose number isn't reported")
    return Figure(value=round(rate * count, 2), source=entry["source"])


def accelerator_bandwidth(name: str, device: AcceleratorInfo | None) -> Figure:
    """Return the bandwidth of a device's own memory in 10^9 bytes a second: the table's figure, else the driver's."""
    entry = _entry(name)
    if entry is not None:
        return Figure(value=float(entry["bandwidth"]), source=entry["source"])
    if device is not None and device.bandwidth_gbps and not device.simulated:
        return Figure(value=device.bandwidth_gbps, source="memory clock and bus width from the driver")
    return Figure(reason=f"neither the table of limits nor the driver has one for {name or 'this device'}")


def estimated_limit(bandwidth: Figure) -> Figure:
    """Return a TFLOPS rate that an accelerator exceeds, by its bandwidth in 10^9 bytes a second if that is known."""
    facts = data_file(FILE)["estimate"]
    if bandwidth.value is not None:
        rate = bandwidth.value * facts["operations_per_byte"] / 1000
        why = f"{facts['operations_per_byte']} operations for each byte of {bandwidth.value:.0f} GB/s"
        return Figure(value=round(rate, 3), source=f"conservative estimate: {why}")
    return Figure(
        value=facts["accelerator_tflops"], source=f"conservative estimate: {facts['accelerator_tflops_why']}"
    )


def estimated_processor_limit(cpu: CPUInfo) -> Figure:
    """Return a TFLOPS rate that a processor exceeds."""
    facts = data_file(FILE)["estimate"]
    cores = min(one for one in (cpu.cores or 1, cpu.usable_threads) if one)
    rate = facts["processor_per_cycle"] * facts["processor_mhz"] * cores / 1e6
    return Figure(value=round(rate, 6), source=f"conservative estimate: {facts['processor_why']}, {cores} cores")


def _entry(name: str) -> dict[str, Any] | None:
    plain = _plain(name)
    return next(
        (one for one in data_file(FILE)["accelerator"] if any(_plain(known) == plain for known in one["names"])), None
    )


@functools.cache
def _plain(name: str) -> str:
    """Return a name without marks and makers, and only what is in the last bracket of pci.ids."""
    words = " ".join(_MARKS.sub(" ", name).lower().split())
    inside = re.search(r"\[([^\]]+)\]$", words)
    return inside[1] if inside else words


def processor_limit(cpu: CPUInfo, precision: str) -> Figure:
    """Return the TFLOPS of the processor: operations of a core in a cycle x cores x frequency."""
    if precision != "float32":
        return Figure(reason=f"the table of limits has no {precision} operations per cycle of a core")
    entry = next((one for one in data_file(FILE)["processor"] if _suits(one, cpu)), None)
    if entry is None:
        return Figure(reason="the table of limits has no entry for these instruction sets")
    cores = min(one for one in (cpu.cores, cpu.usable_threads) if one) if cpu.cores else None
    frequency = cpu.boost_frequency_mhz or cpu.current_frequency_mhz
    if cores is None or frequency is None:
        return Figure(reason="the system doesn't report the cores and frequency")
    which = "boost frequency" if cpu.boost_frequency_mhz else "current frequency, which may be exceeded"
    value = entry["float32_per_cycle"] * cores * frequency * 1e6 / 1e12
    source = (
        f"{entry['instructions']} ({entry['why']}) x {cores} cores x {frequency:.0f} MHz ({which}); {entry['source']}"
    )
    return Figure(value=round(value, 4), source=source)


def _suits(entry: Mapping[str, Any], cpu: CPUInfo) -> bool:
    has, without = entry["instructions"] in cpu.instruction_sets, entry.get("without")
    return cpu.vendor == entry["vendor"] and has and without not in cpu.instruction_sets


def memory_limit(memory: MemoryInfo) -> Figure:
    """Return the bandwidth of main memory in 10^9 bytes a second: channels x transfers x 8 bytes."""
    if memory.speed_mts is None or memory.channels is None:
        return Figure(
            reason="the firmware doesn't report the speed and channels of the memory (a virtual machine seldom does)"
        )
    value = memory.channels * memory.speed_mts * _BYTES_OF_CHANNEL / 1000
    return Figure(
        value=value, source=f"{memory.channels} channels x {memory.speed_mts} MT/s x {_BYTES_OF_CHANNEL} bytes"
    )
