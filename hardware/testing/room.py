"""How much memory this process may still take, asked before something large is begun."""

from __future__ import annotations

import resource
from pathlib import Path

from ..system.memory import read_memory
from .measurement import NotApplicable

_GIB = 2**30


def room_left() -> int:
    """Bytes that are available on this machine, at most what the limit of this process leaves.

    Raises `NotApplicable` where nothing tells.
    """
    available = read_memory().available_bytes
    if available is None:
        raise NotApplicable("how much memory is free can't be read here")
    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return available if limit == resource.RLIM_INFINITY else max(0, min(available, limit - _data_bytes()))


def require_room(needed: int, purpose: str) -> None:
    """Raise `NotApplicable`, with both figures, where `purpose` needs more bytes than there are."""
    room = room_left()
    if needed > room:
        raise NotApplicable(f"{purpose} takes {needed / _GIB:.1f} GiB, and {room / _GIB:.1f} GiB are free")


def _data_bytes() -> int:
    """What counts towards the limit already; 0 where the system doesn't tell."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):  # not Linux: then there is no limit of the runner's either
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmData:")), 0)
