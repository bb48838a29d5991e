"""Windows CIM classes for the processor, memory modules, disks and accelerators.

PowerShell takes some tenths of a second to start, so it is started once per machine for all classes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...machine import Library, Machine, SourceReading
from ...values import data_file, decimal, inside, listed, tables, text, whole
from .processor_info import CPUInfo, SocketInfo, as_caches, channels_of, instruction_sets, of_flags, printed_tables

_DATA = Path(__file__).with_name("windows.toml")


def _powershell(name: str) -> tuple[str, ...]:
    """Return the command that runs a script of `windows.toml`."""
    return ("powershell", "-NoProfile", "-NonInteractive", "-Command", "; ".join(data_file(_DATA)[name]))


QUERY, RELIABILITY = _powershell("script"), _powershell("reliability")


def cim(machine: Machine) -> SourceReading[dict[str, Any]]:
    """Return the classes by their names in the script, or the reason if there are none."""
    return printed_tables(machine, *QUERY)


class ProcessorFeatures(Library):
    """`IsProcessorFeaturePresent` of kernel32, by the numbers of winnt.h."""

    NAME = "kernel32"

    def ask(self, function: str, *arguments: Any) -> SourceReading[Any]:
        """Return for `features` and a list of numbers those that are present."""
        try:
            import ctypes

            kernel = ctypes.windll.kernel32  # type: ignore[attr-defined, unused-ignore]
            return SourceReading(value=[one for one in arguments[0] if kernel.IsProcessorFeaturePresent(one)])
        except (AttributeError, OSError) as error:
            return SourceReading(value=None, reason=f"kernel32: {type(error).__name__}: {error}")


def processor(machine: Machine) -> CPUInfo | None:
    """Return the processor, or None if PowerShell fails.

    `Win32_Processor` has one entry per socket and no instruction sets; kernel32 reports some of them.
    """
    processors = tables(inside(cim(machine).value, "processors"))
    if not processors:
        return None
    first = processors[0]
    details = tuple(
        SocketInfo(socket=number, cores=cores, threads=threads)
        for number, one in enumerate(processors)
        if (cores := whole(one.get("NumberOfCores"), least=1, most=2**14))
        and (threads := whole(one.get("NumberOfLogicalProcessors"), least=1, most=2**14))
    )
    caches: dict[tuple[int, str, int], int] = {}
    for one in processors:
        for level in (2, 3):  # KiB of all caches of a level; their number is unknown
            size = whole(one.get(f"L{level}CacheSize"), least=1, most=2**33)
            if size:
                key = (level, "total", size * 1024)
                caches[key] = caches.get(key, 0) + 1
    maker = text(first.get("Manufacturer")) or ""
    features = machine.library(ProcessorFeatures).ask("features", sorted(map(int, instruction_sets("windows"))))
    return CPUInfo(
        vendor={"GenuineIntel": "Intel", "AuthenticAMD": "AMD", "Qualcomm Technologies Inc": "Qualcomm"}.get(
            maker, maker
        ),
        model=" ".join((text(first.get("Name")) or "").split()),
        architecture=machine.host().machine,
        sockets=len(details) or None,
        cores=sum(one.cores for one in details) or None,
        threads=sum(one.threads for one in details) or None,
        socket_details=details,
        caches=as_caches(caches),
        base_frequency_mhz=decimal(first.get("MaxClockSpeed"), least=1),
        current_frequency_mhz=decimal(first.get("CurrentClockSpeed"), least=1),
        instruction_sets=of_flags("windows", map(str, listed(features.value))),
        source="Win32_Processor",
    )


def modules(machine: Machine) -> tuple[str | None, int | None, int | None]:
    """Return the kind, speed and channels of the memory modules."""
    modules = tables(inside(cim(machine).value, "modules"))
    known = data_file(_DATA)["memory_kinds"]
    kinds = sorted(filter(None, {known.get(str(whole(one.get("SMBIOSMemoryType")))) for one in modules}))
    speeds = [whole(one.get("ConfiguredClockSpeed"), least=1) or whole(one.get("Speed"), least=1) or 0
              for one in modules]  # fmt: skip
    places = [[str(one.get(name) or "") for one in modules] for name in ("BankLabel", "DeviceLocator")]
    return " + ".join(kinds) or None, min(filter(None, speeds), default=None), channels_of(places)
