"""macOS programs: `sysctl` for the processor, `system_profiler` for memory modules, disks and GPUs."""

from __future__ import annotations

from typing import Any

from ...machine import Machine, SourceReading
from ...values import decimal, first_number, inside, pairs, tables, text, whole
from .processor_info import CoreCluster, CPUInfo, as_caches, named, of_flags, printed_tables

SYSCTL = ("sysctl", "hw", "machdep.cpu")
PROFILER = (
    *("system_profiler", "-json", "SPMemoryDataType", "SPNVMeDataType", "SPSerialATADataType"),
    *("SPDisplaysDataType", "SPHardwareDataType"),
)


def sysctl(machine: Machine) -> SourceReading[dict[str, str]]:
    """Return the kernel's hardware variables by name."""
    ran = machine.run(*SYSCTL)
    return SourceReading(value=None if ran.value is None else pairs(ran.value.splitlines()), reason=ran.reason)


def profiler(machine: Machine) -> SourceReading[dict[str, Any]]:
    """Return the output of `system_profiler` by the names of its types, or the reason if there is none."""
    return printed_tables(machine, *PROFILER)


def processor(machine: Machine) -> CPUInfo | None:
    """Return the processor, or None if sysctl fails.

    Names of variables: Apple, "Determining instruction set characteristics" and xnu's `bsd/kern/kern_mib.c`.
    """
    values = sysctl(machine).value
    if not values:
        return None
    levels = [f"hw.perflevel{number}" for number in range(whole(values.get("hw.nperflevels"), most=8) or 0)]
    clusters = []
    caches: dict[tuple[int, str, int], int] = {}
    for level in levels:
        cores = whole(values.get(f"{level}.physicalcpu"), least=1, most=2**14)
        if cores is None:
            continue
        clusters.append(CoreCluster(name=values.get(f"{level}.name", ""), threads=cores))
        shared = whole(values.get(f"{level}.cpusperl2"), least=1)
        for key, instances in (
            ((1, "data", f"{level}.l1dcachesize"), cores),
            ((1, "instruction", f"{level}.l1icachesize"), cores),
            ((2, "unified", f"{level}.l2cachesize"), -(-cores // shared) if shared else 0),
        ):
            size = whole(values.get(key[2]), least=1)
            if size and instances:
                caches[key[0], key[1], size] = caches.get((key[0], key[1], size), 0) + instances
    model = values.get("machdep.cpu.brand_string", "")
    sockets = whole(values.get("hw.packages"), least=1, most=64)
    cores, threads = (whole(values.get(f"hw.{name}"), least=1, most=2**14) for name in ("physicalcpu", "logicalcpu"))
    hertz = decimal(values.get("hw.cpufrequency"), least=1)  # only Intel Macs have it
    flags = [name for key in ("features", "leaf7_features") for name in values.get(f"machdep.cpu.{key}", "").split()]
    return CPUInfo(
        vendor={"GenuineIntel": "Intel"}.get(values.get("machdep.cpu.vendor", ""), model.partition(" ")[0]),
        model=model,
        architecture=machine.host().machine,
        sockets=sockets,
        cores=cores,
        threads=threads,
        clusters=tuple(clusters) if len(clusters) > 1 else (),
        caches=as_caches(caches),
        base_frequency_mhz=None if hertz is None else hertz / 1e6,
        instruction_sets=named(
            of_flags("macos", [key.removeprefix("hw.optional.") for key, value in values.items() if value == "1"]),
            of_flags("x86", [flag.lower().replace(".", "_") for flag in flags]),
        ),
        source="sysctl",
    )


def modules(machine: Machine) -> tuple[str | None, int | None, int | None]:
    """Return the kind, speed and channels of the memory modules."""
    modules = tables(inside(profiler(machine).value, "SPMemoryDataType"))
    modules = [inner for one in modules for inner in (tables(one.get("_items")) or [one])]
    kinds = sorted({kind for one in modules if (kind := text(one.get("dimm_type")))})
    speeds = [int(speed) for one in modules if (speed := first_number(text(one.get("dimm_speed")))) is not None]
    return " + ".join(kinds) or None, min(filter(None, speeds), default=None), None
