"""The control groups of this process, of both versions; a container sees its own as their root."""

from __future__ import annotations

from collections.abc import Iterator

from ..machine import Machine
from ..values import decimal

_ROOT = "/sys/fs/cgroup"

_DEEPEST = 64


def group_folders(machine: Machine, controller: str) -> Iterator[tuple[str, int]]:
    """Folder and version of each group that limits this process, its own before its parents."""
    for line in (machine.text("/proc/self/cgroup") or "").splitlines():
        _, _, named = line.partition(":")
        controllers, _, group = named.partition(":")
        parts = [part for part in group.split("/") if part and part != ".."][:_DEEPEST]
        # Inside a container the group's own path is often not mounted; its root then stands for it.
        inside = ["/".join(["", *parts[:length]]) for length in range(len(parts), -1, -1)]
        if controllers == "":
            for base in (_ROOT, f"{_ROOT}/unified"):
                yield from ((base + path, 2) for path in inside)
        elif controller in controllers.split(","):
            yield from ((f"{_ROOT}/{controller}{path}", 1) for path in inside)


def processor_limit(machine: Machine) -> float | None:
    """How many processors' time the tightest group leaves to this process; `None` without a limit."""
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
