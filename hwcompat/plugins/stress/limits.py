"""Limits of the hardware, from `limits.toml` or the inventory; an unknown limit has a reason."""

from __future__ import annotations

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


def accelerator_limit(name: str, precision: str) -> Figure:
    """Return the TFLOPS of a device in a precision."""
    entry = _entry(name)
    if entry is None:
        return Figure(reason=f"the table of limits has no {name or 'unnamed device'}")
    if precision not in entry:
        return Figure(reason=f"its vendor publishes no figure for {precision}")
    return Figure(value=float(entry[precision]), source=entry["source"])


def accelerator_bandwidth(name: str, device: AcceleratorInfo | None) -> Figure:
    """Return the bandwidth of a device's own memory in 10^9 bytes a second: the table's figure, else the driver's."""
    entry = _entry(name)
    if entry is not None:
        return Figure(value=float(entry["bandwidth"]), source=entry["source"])
    if device is not None and device.bandwidth_gbps and not device.simulated:
        return Figure(value=device.bandwidth_gbps, source="memory clock and bus width from the driver")
    return Figure(reason=f"neither the table of limits nor the driver has one for {name or 'this device'}")


def _entry(name: str) -> dict[str, Any] | None:
    return next((entry for entry in data_file(FILE)["accelerator"] if name in entry["names"]), None)


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
