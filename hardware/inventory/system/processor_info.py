"""Data classes for processor and memory, the same for all systems."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from ...machine import Machine, SourceReading
from ...values import data_file, from_json, table

_INSTRUCTION_SETS = Path(__file__).with_name("instruction_sets.toml")
_CHANNEL = r"(?i).*?channel[ _-]?[a-z0-9](?![a-z0-9])"

Totals = tuple[int | None, ...]
"""Total memory, available memory, total swap and free swap in bytes."""


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
class CoreCluster:
    """Cores of one kind in a processor with several (big.LITTLE, P and E cores). Frequency in MHz."""

    name: str
    threads: int
    max_frequency_mhz: float | None = None


@dataclass(frozen=True, kw_only=True)
class NumaNode:
    """Processors and the memory near them. A node without threads is memory alone (CXL, persistent)."""

    node: int
    threads: int
    memory_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class CPUInfo:
    """The host's processor; None or an empty text for unknown values. Frequencies are in MHz.

    `usable_threads` is the number on which this process may run (its affinity), at most `threads`; `cgroup_threads`
    is the limit of processor time of its control group, None without a limit. `clusters` is empty if all cores are
    alike.
    """

    vendor: str = ""
    model: str = ""
    architecture: str = ""
    sockets: int | None = None
    cores: int | None = None
    threads: int | None = None
    usable_threads: int | None = None
    cgroup_threads: float | None = None
    socket_details: tuple[SocketInfo, ...] = ()
    clusters: tuple[CoreCluster, ...] = ()
    numa_nodes: tuple[NumaNode, ...] = ()
    caches: tuple[CacheInfo, ...] = ()
    base_frequency_mhz: float | None = None
    boost_frequency_mhz: float | None = None
    current_frequency_mhz: float | None = None
    instruction_sets: tuple[str, ...] = ()
    source: str = ""


_printed: WeakKeyDictionary[Machine, dict[tuple[str, ...], SourceReading[dict[str, Any]]]] = WeakKeyDictionary()


def printed_tables(machine: Machine, *words: str) -> SourceReading[dict[str, Any]]:
    """Return the JSON output of a program, or the reason if there is none. It is run once per machine."""
    kept = _printed.setdefault(machine, {})
    if words not in kept:
        printed = machine.run(*words)
        found = table(from_json((printed.value or "").lstrip("\ufeff")))
        reason = printed.reason or ("" if found else f"{words[0]} didn't print JSON")
        kept[words] = SourceReading(value=found or None, reason=reason)
    return kept[words]


def as_caches(counts: Mapping[tuple[int, str, int], int]) -> tuple[CacheInfo, ...]:
    """Return caches from the number of each level, kind and size."""
    return tuple(
        CacheInfo(level=level, kind=kind, size_bytes=size, instances=count)
        for (level, kind, size), count in sorted(counts.items())
    )


def named(*lists: Iterable[str]) -> tuple[str, ...]:
    """Return all names in order, each once."""
    return tuple(dict.fromkeys(name for names in lists for name in names))


def instruction_sets(kind: str) -> dict[str, str]:
    """Return the names of instruction sets by flags of `x86` or `arm` (as in Linux), `macos` or `windows`."""
    found: dict[str, str] = data_file(_INSTRUCTION_SETS)[kind]
    return found


def of_flags(kind: str, flags: Iterable[str]) -> tuple[str, ...]:
    """Return the instruction sets whose flags are present."""
    present = set(flags)
    return named(name for flag, name in instruction_sets(kind).items() if flag in present)


def channels_of(places: list[list[str]]) -> int | None:
    """Return the number of channels in the names of slots (`P0 CHANNEL A`, `Controller1-ChannelA-DIMM0`)."""
    for names in places:
        found = {match[0].upper() for name in names if (match := re.match(_CHANNEL, name))}
        if found:
            return len(found)
    return None
