"""Main memory in bytes: what the host has, and what control groups leave of it to this process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import BackendUnavailable

_NO_LIMIT = 2**60
"""Control groups of version 1 write a number near 2^63 for "no limit"."""


@dataclass(frozen=True, kw_only=True)
class MemoryInfo:
    """Bytes throughout; `None` where the system doesn't tell.

    `kind` (DDR5), `speed_mts` (million transfers a second) and `channels` come from the firmware's table,
    which few virtual machines have. `persistent_bytes` is byte-addressable non-volatile memory.
    """

    total_bytes: int
    available_bytes: int
    swap_total_bytes: int
    swap_free_bytes: int
    cgroup_limit_bytes: int | None = None
    cgroup_used_bytes: int | None = None
    persistent_bytes: int | None = None
    kind: str | None = None
    speed_mts: int | None = None
    channels: int | None = None

    @property
    def usable_bytes(self) -> int:
        """The most that this process can get: the host's memory, or the control group's limit if smaller."""
        return self.total_bytes if self.cgroup_limit_bytes is None else min(self.total_bytes, self.cgroup_limit_bytes)


def free_bytes() -> int:
    """Main memory that this process can still get: what the host has free, or what its control group leaves."""
    memory = read_memory()
    if memory.cgroup_limit_bytes is None:
        return memory.available_bytes
    return min(memory.available_bytes, memory.cgroup_limit_bytes - (memory.cgroup_used_bytes or 0))


def read_memory(
    *,
    proc_root: Path = Path("/proc"),
    sys_root: Path = Path("/sys"),
    udev_root: Path = Path("/run/udev/data"),
) -> MemoryInfo:
    """Memory of this host; totals come from the running system whatever the folders are.

    Raises `BackendUnavailable` where neither psutil nor Linux's own account is there to tell.
    """
    total, available, swap_total, swap_free = _totals()
    limit, used = cgroup_memory(proc_root=proc_root, sys_root=sys_root)
    kind, speed, channels = _modules(udev_root / "+dmi:id")
    return MemoryInfo(
        total_bytes=total,
        available_bytes=available,
        swap_total_bytes=swap_total,
        swap_free_bytes=swap_free,
        cgroup_limit_bytes=limit,
        cgroup_used_bytes=used,
        persistent_bytes=_persistent(sys_root / "bus" / "nd" / "devices"),
        kind=kind,
        speed_mts=speed,
        channels=channels,
    )


def _totals(meminfo: Path = Path("/proc/meminfo")) -> tuple[int, int, int, int]:
    """Memory in all, available, swap in all, free swap, in bytes. psutil is missing where a bundle is carried to."""
    try:
        import psutil
    except ImportError as error:
        try:
            lines = meminfo.read_text(encoding="ascii").splitlines()
            found = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
            return found["MemTotal"], found["MemAvailable"], found["SwapTotal"], found["SwapFree"]
        except (OSError, ValueError, KeyError, IndexError):
            raise BackendUnavailable(
                "this machine's memory cannot be read", why="psutil isn't installed", fix="pip install psutil"
            ) from error
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    return memory.total, memory.available, swap.total, swap.free


def cgroup_memory(*, proc_root: Path = Path("/proc"), sys_root: Path = Path("/sys")) -> tuple[int | None, int | None]:
    """Smallest limit over this process's control group and its parents, and that group's use."""
    smallest: tuple[int | None, int | None] = (None, None)
    for folder, limit_file, used_file in _groups(proc_root / "self" / "cgroup", sys_root / "fs" / "cgroup"):
        limit = _integer(folder / limit_file)
        if limit is not None and limit < _NO_LIMIT and (smallest[0] is None or limit < smallest[0]):
            smallest = (limit, _integer(folder / used_file))
    return smallest


def _groups(membership: Path, root: Path) -> Iterator[tuple[Path, str, str]]:
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:
        return  # no control groups: not Linux, or a kernel without them
    for line in lines:
        _, controllers, group = line.split(":", 2)
        parts = [part for part in group.split("/") if part and part != ".."]
        # Inside a container the group's own path is often not mounted; its root then stands for it.
        inside = [Path(*parts[:length]) for length in range(len(parts), -1, -1)]
        if controllers == "":
            for base in (root, root / "unified"):
                yield from ((base / path, "memory.max", "memory.current") for path in inside)
        elif "memory" in controllers.split(","):
            yield from ((root / "memory" / path, "memory.limit_in_bytes", "memory.usage_in_bytes") for path in inside)


def _integer(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        # Absent, or the word "max": no limit here.
        return None


def _persistent(folder: Path) -> int | None:
    """Sum over the regions of the kernel's libnvdimm that are of the type pmem."""
    if not folder.is_dir():
        return None
    sizes = [
        _integer(region / "size")
        for region in folder.glob("region*")
        if (region / "devtype").is_file() and (region / "devtype").read_text().strip() == "nd_pmem"
    ]
    return sum(size for size in sizes if size is not None)


def _modules(record: Path) -> tuple[str | None, int | None, int | None]:
    """Kind, speed and channels of the modules, from systemd's `dmi_memory_id`; needs no root."""
    try:
        text = record.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None, None, None
    fields = dict(re.findall(r"(?m)^E:MEMORY_DEVICE_(\d+_\w+)=(.*)$", text))
    present = [key.partition("_")[0] for key, size in fields.items() if key.endswith("_SIZE") and int(size or 0)]
    kinds = {fields[f"{number}_TYPE"] for number in present if f"{number}_TYPE" in fields}
    speeds = [
        int(speed)
        for number in present
        if (speed := fields.get(f"{number}_CONFIGURED_SPEED_MTS") or fields.get(f"{number}_SPEED_MTS"))
    ]
    places = " ".join(
        fields.get(f"{number}_{name}", "") + "\n" for number in present for name in ("LOCATOR", "BANK_LOCATOR")
    )
    channels = {match.upper() for match in re.findall(r"(?i)channel[ _-]?([a-z0-9])\b", places)}
    return " + ".join(sorted(kinds)) or None, min(speeds, default=None), len(channels) or None
