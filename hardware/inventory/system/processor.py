"""The processor: on Linux from `/proc/cpuinfo` and sysfs, on macOS from sysctl, on Windows from CIM."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from ...machine import LiveMachine, Machine
from ...values import data_file, decimal, numbers_of, pairs, whole
from .main_memory import group_folders, programs
from .processor_info import CacheInfo, CoreCluster, NumaNode, SocketInfo, as_caches, named, of_flags
from .processor_info import CPUInfo as CPUInfo

_ARM_PARTS = Path(__file__).with_name("arm_parts.toml")
_SYSFS = "/sys/devices/system/cpu"
_NODES = "/sys/devices/system/node"
_HYBRID = (("performance", "/sys/devices/cpu_core/cpus"), ("efficiency", "/sys/devices/cpu_atom/cpus"))
_MOST_POLICIES = 16
"""A machine with a frequency domain for each of many cores has no clusters."""


def read_cpu(machine: Machine | None = None) -> CPUInfo:
    """Return the processor of a machine, by default this one. Never raises."""
    machine = machine or LiveMachine()
    account = machine.text("/proc/cpuinfo")
    if account is not None:
        return _from_linux(account, machine)
    system = programs(machine)
    found: CPUInfo | None = system.processor(machine) if system else None
    return found or CPUInfo(architecture=machine.host().machine, source="platform only")


def usable_cores() -> int:
    """Return the number of processors on which this process may run."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _from_linux(account: str, machine: Machine) -> CPUInfo:
    blocks = _processors(account)
    facts = pairs(account.splitlines())  # ARM kernels write common facts after the last processor
    vendor, model = _identity(facts, blocks)
    numbers = numbers_of(machine.text(f"{_SYSFS}/online")) or tuple(range(len(blocks)))
    details = _sockets(machine, numbers)
    clusters = _clusters(machine, blocks)
    # The kernel's status lists the processors on which this process may run.
    allowed = re.search(r"(?m)^Cpus_allowed_list:\s*(\S+)", machine.text("/proc/self/status") or "")
    names = ("base_frequency", "cpuinfo_max_freq", "scaling_cur_freq")
    base, boost, current = (_megahertz(machine.text(f"{_SYSFS}/cpu0/cpufreq/{name}")) for name in names)
    kind, flags = ("x86", facts["flags"]) if "flags" in facts else ("arm", facts.get("Features", ""))
    fastest = max((one.max_frequency_mhz for one in clusters if one.max_frequency_mhz), default=None)
    return CPUInfo(
        vendor=vendor,
        model=model,
        architecture=machine.host().machine,
        sockets=len(details) or None,
        cores=sum(socket.cores for socket in details) or None,
        threads=len(numbers) or None,
        usable_threads=(len(numbers_of(allowed[1])) or None) if allowed else None,
        cgroup_threads=processor_limit(machine),
        socket_details=details,
        clusters=clusters,
        numa_nodes=_numa_nodes(machine),
        caches=_caches(machine, numbers),
        base_frequency_mhz=base,
        boost_frequency_mhz=fastest or boost,
        current_frequency_mhz=current or decimal(facts.get("cpu MHz"), least=1),
        instruction_sets=riscv(facts["isa"]) if "isa" in facts else of_flags(kind, flags.split()),
        source="/proc/cpuinfo and sysfs",
    )


def _processors(account: str) -> dict[int, dict[str, str]]:
    """Return the facts of each processor by its number."""
    found: dict[int, dict[str, str]] = {}
    for block in re.split(r"\n\s*\n", account):
        facts = pairs(block.splitlines())
        number = whole(facts.get("processor"), most=2**14)
        if number is not None:
            found[number] = facts
    return found


def _identity(facts: Mapping[str, str], blocks: Mapping[int, Mapping[str, str]]) -> tuple[str, str]:
    if "CPU implementer" in facts:
        parts = [block for block in (*blocks.values(), facts) if "CPU implementer" in block]
        vendors = dict.fromkeys(_arm_core(block)[0] for block in parts)
        return " + ".join(vendors), " + ".join(dict.fromkeys(_arm_core(block)[1] for block in parts))
    vendor = {"GenuineIntel": "Intel", "AuthenticAMD": "AMD"}.get(
        facts.get("vendor_id", ""), facts.get("vendor_id", "")
    )
    names = facts.get("model name") or facts.get("uarch") or facts.get("cpu model") or ""
    maker = facts.get("uarch", names)
    return vendor or maker.partition(",")[0] * ("," in maker), names


def _arm_core(block: Mapping[str, str]) -> tuple[str, str]:
    implementer, part = block.get("CPU implementer", "").lower(), block.get("CPU part", "").lower()
    known = data_file(_ARM_PARTS).get(implementer, {})
    return known.get("name", f"implementer {implementer}"), known.get(part, f"part {part}")


def _clusters(machine: Machine, blocks: Mapping[int, Mapping[str, str]]) -> tuple[CoreCluster, ...]:
    """Return cores grouped by part and maximum frequency; empty if all are of one kind."""
    kinds = {number: name for name, path in _HYBRID for number in numbers_of(machine.text(path))}
    if not kinds:
        kinds = {
            number: _arm_core(block)[1] if "CPU part" in block else block.get("uarch", "")
            for number, block in blocks.items()
        }
    folder = f"{_SYSFS}/cpufreq"
    policies = [name for name in machine.names(folder) or () if name.startswith("policy")]
    speeds: dict[int, float | None] = {}
    for policy in policies if len(policies) <= _MOST_POLICIES else ():
        speed = _megahertz(machine.text(f"{folder}/{policy}/cpuinfo_max_freq"))
        related = (machine.text(f"{folder}/{policy}/related_cpus") or "").replace(" ", ",")
        speeds |= dict.fromkeys(numbers_of(related), speed)
    arm = any("CPU part" in block for block in blocks.values())
    found: dict[tuple[str, float | None], int] = {}
    for number, kind in kinds.items():
        # Cores of an x86 server differ in their maximum boost frequency though they are of one kind.
        key = (kind, speeds.get(number) if arm else None)
        found[key] = found.get(key, 0) + 1
    if len(found) < 2:
        return ()
    first = {kind: number for number, kind in reversed(kinds.items())}
    return tuple(
        CoreCluster(name=kind, threads=count, max_frequency_mhz=speed or speeds.get(first[kind]))
        for (kind, speed), count in found.items()
    )


def _numa_nodes(machine: Machine) -> tuple[NumaNode, ...]:
    names = [name for name in machine.names(_NODES) or () if re.fullmatch(r"node\d{1,4}", name)]
    nodes = []
    for name in sorted(names, key=lambda one: int(one[4:])):
        size = re.search(r"MemTotal:\s+(\d+) kB", machine.text(f"{_NODES}/{name}/meminfo") or "")
        kibibytes = whole(size[1], most=2**50) if size else None
        threads = len(numbers_of(machine.text(f"{_NODES}/{name}/cpulist")))
        memory = None if kibibytes is None else kibibytes * 1024
        nodes.append(NumaNode(node=int(name[4:]), threads=threads, memory_bytes=memory))
    return tuple(nodes)


def _sockets(machine: Machine, numbers: Iterable[int]) -> tuple[SocketInfo, ...]:
    threads: dict[int, int] = {}
    cores: dict[int, set[str]] = {}
    for number in numbers:
        topology = f"{_SYSFS}/cpu{number}/topology"
        package = whole(machine.text(f"{topology}/physical_package_id"), least=-1)
        if package is None:
            return ()
        socket = max(package, 0)  # -1 on boards without packages: one
        threads[socket] = threads.get(socket, 0) + 1
        cores.setdefault(socket, set()).add(machine.text(f"{topology}/thread_siblings_list") or str(number))
    return tuple(
        SocketInfo(socket=socket, cores=len(cores[socket]), threads=threads[socket]) for socket in sorted(threads)
    )


def _caches(machine: Machine, numbers: Iterable[int]) -> tuple[CacheInfo, ...]:
    """Return the caches; each instance is read once, at the first processor that shares it."""
    counts: dict[tuple[int, str, int], int] = {}
    seen: dict[int, set[int]] = {}
    for number in numbers:
        for index in range(8):
            cache = f"{_SYSFS}/cpu{number}/cache/index{index}"
            shared = seen.setdefault(index, set())
            if number in shared:
                continue
            level, size = whole(machine.text(f"{cache}/level"), most=9), _bytes(machine.text(f"{cache}/size"))
            if level is None:
                break
            shared |= {number, *numbers_of(machine.text(f"{cache}/shared_cpu_list"))}
            if size is not None:
                key = (level, (machine.text(f"{cache}/type") or "").lower(), size)
                counts[key] = counts.get(key, 0) + 1
    return as_caches(counts)


def _bytes(written: str | None) -> int | None:
    """Return the bytes of a size in sysfs, `48K` or rarely `2M`."""
    if not written:
        return None
    unit = {"K": 2**10, "M": 2**20, "G": 2**30}.get(written[-1])
    size = whole(written[:-1] if unit else written, most=2**33)
    return None if size is None else size * (unit or 1)


def _megahertz(written: str | None) -> float | None:
    """Return a frequency in MHz; sysfs has kHz."""
    value = decimal(written, least=1)
    return None if value is None else value / 1000


def processor_limit(machine: Machine) -> float | None:
    """Return the limit of processor time of the tightest group, in processors; None without a limit."""
    found: list[float] = []
    for folder, version in group_folders(machine, "cpu"):
        if version == 2:
            words = (machine.text(f"{folder}/cpu.max") or "").split()
            quota, period = [*words, "", ""][:2]
        else:
            quota = machine.text(f"{folder}/cpu.cfs_quota_us") or ""  # -1: no limit
            period = machine.text(f"{folder}/cpu.cfs_period_us") or ""
        used, of = decimal(quota, least=1), decimal(period, least=1)
        if used is not None and of is not None:
            found.append(max(round(used / of, 3), 0.001))
    return min(found, default=None)


def riscv(isa: str) -> tuple[str, ...]:
    """Return the base and the extensions of a text such as `rv64imafdcv_zicbom`; V is the vector extension."""
    base, *extensions = isa.lower().split("_")
    return named([base], ["V"] if "v" in base[4:] else [], filter(None, extensions))
