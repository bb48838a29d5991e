"""The processor: on Linux from `/proc/cpuinfo` and sysfs, elsewhere from py-cpuinfo2."""

from __future__ import annotations

import platform
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..machine import Library, LiveMachine, Machine, Reading

_HERE = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class CacheInfo:
    """One kind of cache: `instances` caches of `size_bytes` each."""

    level: int
    kind: str
    size_bytes: int
    instances: int


@dataclass(frozen=True, kw_only=True)
class SocketInfo:
    """One processor package. `threads` are logical processors."""

    socket: int
    cores: int
    threads: int


@dataclass(frozen=True, kw_only=True)
class CPUInfo:
    """The host's processor; `None` or an empty text where the system doesn't tell. Frequencies in MHz.

    `usable_threads` is what this process may run on (its affinity), at most `threads`.
    """

    vendor: str = ""
    model: str = ""
    architecture: str = ""
    sockets: int | None = None
    cores: int | None = None
    threads: int | None = None
    usable_threads: int | None = None
    socket_details: tuple[SocketInfo, ...] = ()
    caches: tuple[CacheInfo, ...] = ()
    base_frequency_mhz: float | None = None
    boost_frequency_mhz: float | None = None
    current_frequency_mhz: float | None = None
    instruction_sets: tuple[str, ...] = ()
    source: str = ""


_SYSFS = "/sys/devices/system/cpu"


def read_cpu(machine: Machine | None = None) -> CPUInfo:
    """The processor of a machine, of this one where none is given."""
    machine = machine or LiveMachine()
    text = machine.text("/proc/cpuinfo")
    return _from_library(machine) if text is None else _from_linux(text, machine)


def _from_linux(text: str, machine: Machine) -> CPUInfo:
    facts = _first_processor(text)
    vendor, model = _identity(facts)
    numbers = _online(machine) or tuple(range(len(re.findall(r"(?m)^processor\s*:", text))))
    details = _sockets(machine, numbers)
    return CPUInfo(
        vendor=vendor,
        model=model,
        architecture=machine.host().machine,
        sockets=len(details) or None,
        cores=sum(socket.cores for socket in details) or None,
        threads=len(numbers) or None,
        usable_threads=_usable(machine),
        socket_details=details,
        caches=_caches(machine, numbers),
        base_frequency_mhz=_megahertz(machine, "base_frequency"),
        boost_frequency_mhz=_megahertz(machine, "cpuinfo_max_freq"),
        current_frequency_mhz=_megahertz(machine, "scaling_cur_freq") or _number(facts.get("cpu MHz", "")),
        instruction_sets=_instruction_sets(facts),
        source="/proc/cpuinfo and sysfs",
    )


def _first_processor(text: str) -> dict[str, str]:
    """Facts of the first processor; ARM kernels put some common ones behind the last."""
    facts: dict[str, str] = {}
    for line in text.splitlines():
        key, separator, value = line.partition(":")
        if separator:
            facts.setdefault(key.strip(), value.strip())
    return facts


def _identity(facts: Mapping[str, str]) -> tuple[str, str]:
    if "CPU implementer" in facts:
        implementer, part = facts["CPU implementer"].lower(), facts.get("CPU part", "").lower()
        known = _table("arm_parts.toml").get(implementer, {})
        return known.get("name", f"implementer {implementer}"), known.get(part, f"part {part}")
    vendor = {"GenuineIntel": "Intel", "AuthenticAMD": "AMD"}.get(
        facts.get("vendor_id", ""), facts.get("vendor_id", "")
    )
    model = facts.get("model name") or facts.get("uarch") or facts.get("cpu model") or ""
    return vendor or model.partition(",")[0] * ("," in model), model


def _instruction_sets(facts: Mapping[str, str]) -> tuple[str, ...]:
    names = _table("instruction_sets.toml")
    if "isa" in facts:
        return _riscv(facts["isa"])
    kind, flags = ("x86", facts["flags"]) if "flags" in facts else ("arm", facts.get("Features", ""))
    present = set(flags.split())
    return tuple(dict.fromkeys(name for flag, name in names[kind].items() if flag in present))


def _riscv(isa: str) -> tuple[str, ...]:
    """`rv64imafdcv_zicbom` as the base with its letters, then the named extensions; V is the vector one."""
    base, *named = isa.lower().split("_")
    return (base, *(["V"] if "v" in base[4:] else []), *named)


def _online(machine: Machine) -> tuple[int, ...]:
    return _cpu_list(machine.text(f"{_SYSFS}/online") or "")


def _sockets(machine: Machine, numbers: Iterable[int]) -> tuple[SocketInfo, ...]:
    threads: dict[int, int] = {}
    cores: dict[int, set[str]] = {}
    for number in numbers:
        topology = f"{_SYSFS}/cpu{number}/topology"
        package = machine.text(f"{topology}/physical_package_id")
        if not package:
            return ()
        # Boards without packages say -1; they have one.
        socket = max(int(package), 0)
        threads[socket] = threads.get(socket, 0) + 1
        cores.setdefault(socket, set()).add(machine.text(f"{topology}/thread_siblings_list") or str(number))
    return tuple(
        SocketInfo(socket=socket, cores=len(cores[socket]), threads=threads[socket]) for socket in sorted(threads)
    )


def _caches(machine: Machine, numbers: Iterable[int]) -> tuple[CacheInfo, ...]:
    """Each instance is read once, at the first processor that shares it."""
    counts: dict[tuple[int, str, int], int] = {}
    seen: dict[int, set[int]] = {}
    for number in numbers:
        for index in range(8):
            cache = f"{_SYSFS}/cpu{number}/cache/index{index}"
            shared = seen.setdefault(index, set())
            if number in shared:
                continue
            level, kind, size = (machine.text(f"{cache}/{name}") or "" for name in ("level", "type", "size"))
            if not level:
                break
            shared |= {number, *_cpu_list(machine.text(f"{cache}/shared_cpu_list") or "")}
            if size:
                key = (int(level), kind.lower(), _bytes(size))
                counts[key] = counts.get(key, 0) + 1
    return tuple(
        CacheInfo(level=level, kind=kind, size_bytes=size, instances=count)
        for (level, kind, size), count in sorted(counts.items())
    )


def _usable(machine: Machine) -> int | None:
    """How many processors this process may run on, as the kernel says in its status."""
    status = machine.text("/proc/self/status") or ""
    allowed = re.search(r"(?m)^Cpus_allowed_list:\s*(\S+)", status)
    return len(_cpu_list(allowed[1])) if allowed else None


def _bytes(text: str) -> int:
    """sysfs writes `48K`, seldom `2M`."""
    unit = {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1])
    return int(text[:-1]) * unit if unit else int(text)


def _cpu_list(text: str) -> tuple[int, ...]:
    """`0-3,8` as numbers."""
    numbers: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return tuple(numbers)


def _megahertz(machine: Machine, name: str) -> float | None:
    """sysfs counts in kHz."""
    kilohertz = _number(machine.text(f"{_SYSFS}/cpu0/cpufreq/{name}") or "")
    return None if kilohertz is None else kilohertz / 1000


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value > 0 else None


def _table(name: str) -> dict[str, dict[str, str]]:
    return tomllib.loads((_HERE / name).read_text(encoding="utf-8"))


def _from_library(machine: Machine) -> CPUInfo:
    told = machine.library(CpuInfoLibrary).ask("get_cpu_info")
    if told.value is None:
        return CPUInfo(architecture=machine.host().machine, source=f"platform only: {told.reason}")
    found = told.value
    flags = set(found.get("flags", []))
    names = _table("instruction_sets.toml")
    hertz = (found.get("hz_advertised") or (0,))[0]
    return CPUInfo(
        vendor=found.get("vendor_id_raw", ""),
        model=found.get("brand_raw", ""),
        architecture=machine.host().machine,
        cores=found.get("cores"),
        threads=found.get("threads"),
        base_frequency_mhz=hertz / 1e6 if hertz else None,
        instruction_sets=tuple(
            dict.fromkeys(name for table in names.values() for flag, name in table.items() if flag in flags)
        ),
        source="py-cpuinfo2",
    )


class CpuInfoLibrary(Library):
    """py-cpuinfo2 and psutil, for systems that aren't Linux."""

    NAME = "cpuinfo"

    def ask(self, function: str, *arguments: Any) -> Reading[Any]:
        """`get_cpu_info`: what py-cpuinfo2 calls the processor, with psutil's `cores` and `threads`."""
        try:
            import cpuinfo
            import psutil

            found = dict(cpuinfo.get_cpu_info())
            found.setdefault("brand_raw", platform.processor())
            return Reading(
                value=found | {"cores": psutil.cpu_count(logical=False), "threads": psutil.cpu_count()},
            )
        except Exception as error:  # py-cpuinfo2 runs other programs and may raise anything
            return Reading(value=None, reason=f"{type(error).__name__}: {error}")
