"""What is mounted where: from the kernel's `/proc/self/mountinfo`, on macOS from `mount`."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ...machine import Machine
from .._macos import is_macos

_HERE = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Mount:
    """One mounted filesystem. `device` is `major:minor`, `root` which folder of the filesystem is mounted."""

    device: str
    root: str
    point: str
    filesystem: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Filesystem:
    """A filesystem that lies elsewhere: its kind (`network`, `parallel`, `object`) and the name of its software."""

    kind: str
    name: str


def read_mounts(machine: Machine) -> tuple[Mount, ...]:
    """The mounts that this process sees; none where nothing tells."""
    account = machine.text("/proc/self/mountinfo")
    if account is not None:
        return tuple(mount for line in account.splitlines() if (mount := _from_line(line)) is not None)
    if is_macos(machine):
        lines = (machine.run("mount").value or "").splitlines()
        return tuple(mount for line in lines if (mount := _from_macos(line)) is not None)
    return ()


def remote(mount: Mount) -> Filesystem | None:
    """What lies behind a mount whose data isn't on a disk of this machine; `None` where it is."""
    known = _filesystems()
    found = known["type"].get(mount.filesystem)
    if found is None and mount.filesystem in ("fuse", "macfuse", "osxfuse"):
        # These tell what they are by the source alone.
        found = known["source"].get(mount.source.partition(":")[0].partition("#")[0].lower())
    if found is None or mount.source.startswith("/dev/"):
        return None  # a server of Lustre mounts its own disks as `lustre`
    return Filesystem(kind=found["kind"], name=found["name"])


@functools.cache
def _filesystems() -> dict[str, dict[str, dict[str, str]]]:
    data: dict[str, dict[str, dict[str, str]]] = tomllib.loads(
        (_HERE / "filesystems.toml").read_text(encoding="utf-8")
    )
    return data


def _from_line(line: str) -> Mount | None:
    """The kernel's Documentation/filesystems/proc.rst, section 3.5: ten fields, optional ones before a dash."""
    before, dash, after = line.partition(" - ")
    left, right = before.split(" "), after.split(" ")
    if not dash or len(left) < 6 or len(right) < 2:
        return None
    return Mount(
        device=left[2],
        root=_unescaped(left[3]),
        point=_unescaped(left[4]),
        filesystem=right[0],
        source=_unescaped(right[1]),
    )


def _from_macos(line: str) -> Mount | None:
    """`/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)`."""
    match = re.match(r"(.+?) on (/.*) \((\w+)", line)
    return match and Mount(device="", root="/", point=match[2], filesystem=match[3], source=match[1])


def _unescaped(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8) & 0xFF), field)


def unique(values: Iterable[str]) -> tuple[str, ...]:
    """Each value once, in order."""
    return tuple(dict.fromkeys(values))
