"""What Windows's CIM classes say of processor, memory and disks, asked in one start of PowerShell for a machine.

Starting PowerShell takes some tenths of a second; that is why nothing is asked one by one.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from ..machine import Library, Machine, Reading
from ..values import from_json, table

SCRIPT = "; ".join(
    [
        "$ErrorActionPreference = 'SilentlyContinue'",
        "[Console]::OutputEncoding = [Text.Encoding]::UTF8",
        "$storage = 'root/Microsoft/Windows/Storage'",
        "ConvertTo-Json -Compress -Depth 3 @{"
        "processors = @(Get-CimInstance Win32_Processor | Select-Object Name, Manufacturer, NumberOfCores, "
        "NumberOfLogicalProcessors, MaxClockSpeed, CurrentClockSpeed, L2CacheSize, L3CacheSize, SocketDesignation)",
        "modules = @(Get-CimInstance Win32_PhysicalMemory | Select-Object Capacity, SMBIOSMemoryType, Speed, "
        "ConfiguredClockSpeed, DeviceLocator, BankLabel)",
        "system = Get-CimInstance Win32_OperatingSystem | Select-Object TotalVisibleMemorySize, FreePhysicalMemory",
        "page_files = @(Get-CimInstance Win32_PageFileUsage | Select-Object AllocatedBaseSize, CurrentUsage)",
        "disks = @(Get-PhysicalDisk | Select-Object DeviceId, FriendlyName, SerialNumber, FirmwareVersion, "
        "MediaType, BusType, Size, HealthStatus)",
        "partitions = @(Get-CimInstance -Namespace $storage MSFT_Partition | Select-Object DiskNumber, DriveLetter)",
        "volumes = @(Get-CimInstance Win32_LogicalDisk | "
        "Select-Object DeviceID, DriveType, FileSystem, ProviderName)}",
    ]
)
QUERY = ("powershell", "-NoProfile", "-NonInteractive", "-Command", SCRIPT)

RELIABILITY = (
    "powershell",
    "-NoProfile",
    "-NonInteractive",
    "-Command",
    "Get-PhysicalDisk | Get-StorageReliabilityCounter | "
    "Select-Object DeviceId, Temperature, Wear, PowerOnHours, ReadErrorsUncorrected | ConvertTo-Json -Compress",
)
"""Needs an administrator: without one it prints nothing."""

_said: WeakKeyDictionary[Machine, Reading[dict[str, Any]]] = WeakKeyDictionary()


def is_windows(machine: Machine) -> bool:
    """Whether it runs Windows."""
    return machine.host().system == "Windows"


def cim(machine: Machine) -> Reading[dict[str, Any]]:
    """The classes by the names in `SCRIPT`, or why there are none."""
    kept = _said.get(machine)
    if kept is None:
        told = machine.run(*QUERY)
        found = table(from_json((told.value or "").lstrip("\ufeff")))
        kept = Reading(value=found or None, reason=told.reason or ("" if found else "PowerShell printed no JSON"))
        _said[machine] = kept
    return kept


class ProcessorFeatures(Library):
    """kernel32's `IsProcessorFeaturePresent`, by the numbers of winnt.h."""

    NAME = "kernel32"

    def ask(self, function: str, *arguments: Any) -> Reading[Any]:
        """`features` of a list of numbers: those that are present."""
        try:
            import ctypes

            kernel = ctypes.windll.kernel32  # type: ignore[attr-defined, unused-ignore]
            return Reading(value=[one for one in arguments[0] if kernel.IsProcessorFeaturePresent(one)])
        except (AttributeError, OSError) as error:
            return Reading(value=None, reason=f"kernel32: {type(error).__name__}: {error}")
