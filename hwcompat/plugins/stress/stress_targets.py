"""The devices of a stress command: which are available, and which run at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hwcompat.hardware.backends.factory import aliases, backend_class, declarations_of, known_targets
from hwcompat.hardware.backends.tpu import XLA_CPU
from hwcompat.hardware.errors import UsageError, did_you_mean, echo
from hwcompat.hardware.workers import environment_of

from .disk_reads import STORAGE, disk_of, folder_on, why_unreadable
from .stress_child import PJRT, RAM

if TYPE_CHECKING:
    from hwcompat.hardware.detection import HardwareInfo
    from hwcompat.hardware.expected_targets import TargetStatus

ALL = "all"
NO_LOAD = "no load"
"""How the reason begins if a vendor or a target has no load."""

XLA_ON_HOST = f"{PJRT}:{XLA_CPU}"
_HOST = ("cpu", RAM, XLA_ON_HOST)


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """One device to load, or the `reason` why it is skipped. `named`: the user named it. `folder` is where a disk is
    written; empty if it is only read."""

    target: str
    named: bool
    reason: str = ""
    folder: str = ""


def is_on_host(target: str) -> bool:
    """Whether a load runs on the host. Such loads run one after the other, accelerators all at once."""
    return target in _HOST or is_storage(target) or declarations_of(target).SIMULATED


def is_storage(target: str) -> bool:
    """Whether a target is a disk, or all of them."""
    return target.partition(":")[0] == STORAGE


def loadable_targets() -> tuple[str, ...]:
    """Return names of the targets that have a load: main memory, disks, and those of torch or JAX."""
    from hwcompat.hardware.backends._torch import TorchBackend

    of_torch = (name for name in known_targets() if issubclass(backend_class(name), TorchBackend))
    return (RAM, STORAGE, *sorted((*of_torch, PJRT)))


def chosen_devices(names: Sequence[str], inventory: HardwareInfo, *, writes: bool = False) -> tuple[Chosen, ...]:
    """Return the named devices, each once; a target without an index means all its devices.

    Disks are only read unless `writes`. A vendor or a target without a load is skipped with its reason. Raises
    `UsageError` for an unknown target.
    """
    from hwcompat.hardware.expected_targets import targets

    statuses = {status.target: status for status in targets(inventory)}
    known = loadable_targets()
    found: dict[str, Chosen] = {}
    for name in names:
        text = name.strip().lower()
        base, _, index = text.partition(":")
        base = aliases().get(base, base)
        if text == ALL:
            every = [
                one for one in dict.fromkeys(("cpu", *known)) if one != STORAGE and not declarations_of(one).SIMULATED
            ]
            chosen = [two for one in every for two in _devices(one, "", statuses, inventory, named=False)]
        elif base == STORAGE:
            chosen = _disks(name.strip().partition(":")[2], inventory, writes=writes)
        elif base not in known and (why := _without_load(base, inventory)):
            chosen = [Chosen(target=text, named=True, reason=why)]
        elif text == XLA_ON_HOST:
            chosen = [Chosen(target=text, named=True, reason=environment_of(PJRT).reason)]
        elif base not in known or (index and not index.isdecimal()) or (index and is_on_host(base)):
            hint = did_you_mean(base, [*known, *aliases(), ALL])
            fix = f"{hint} Known: {', '.join(known)}, {ALL}; accelerators take an index: cuda:0."
            raise UsageError(f"unknown target {echo(name)} for a stress test", fix=fix.strip())
        else:
            chosen = _devices(base, index, statuses, inventory, named=True)
        found |= {one.target: one for one in chosen if one.target not in found or one.named}
    return tuple(found.values())


def _disks(name: str, inventory: HardwareInfo, *, writes: bool) -> list[Chosen]:
    """Return the disk with a name (`nvme0n1`), or all disks of this machine. Raises `UsageError`."""
    local = [
        one.device_path.removeprefix("/dev/") for one in inventory.storage if one.device_path.startswith("/dev/")
    ]
    if name and name not in local:
        raise UsageError(
            f"{echo(name)} isn't a disk of this machine",
            fix=f"{did_you_mean(name, local)} Disks: {', '.join(local) or 'none'}.".strip(),
        )
    if not local:
        return [Chosen(target=STORAGE, named=True, reason="no disk was found")]
    found = []
    for one in inventory.storage:
        disk = one.device_path.removeprefix("/dev/")
        target = f"{STORAGE}:{disk}"
        if disk in local and name in ("", disk):
            folder = folder_on(one.mount_points) if writes else ""
            unwritable = "no folder on it is writable" if writes and not folder else ""
            reason = unwritable or ("" if folder else why_unreadable(disk_of(target)))
            found.append(Chosen(target=target, named=True, reason=reason, folder=folder))
    return found


def _without_load(name: str, inventory: HardwareInfo) -> str:
    """Return why a known target or vendor has no load; an empty string for an unknown name."""
    vendor = next((one for one in inventory.vendors if one.vendor.lower() == name), None)
    if vendor is None and name not in known_targets():
        return ""
    here = f"; {vendor.reason}" if vendor is not None and vendor.reason else ""
    return f"{NO_LOAD}: a stress test computes with torch or JAX, which know no device {name}{here}"


def _devices(
    base: str, index: str, statuses: dict[str, TargetStatus], inventory: HardwareInfo, *, named: bool
) -> list[Chosen]:
    reason = inventory.torch.reason if base == RAM else "" if statuses[base].expected else statuses[base].reason
    if index:
        base = f"{base}:{int(index)}"
    count = 1 if reason or index or is_on_host(base) else _count(base, inventory)
    targets = [base] if count == 1 else [f"{base}:{number}" for number in range(count)]
    return [Chosen(target=one, named=named, reason=reason) for one in targets]


def _count(base: str, inventory: HardwareInfo) -> int:
    """Return how many devices of a target a driver lists; 1 if unknown. If torch finds fewer, the loads of the others
    report it."""
    backend = backend_class(base)
    listed = [one for one in inventory.accelerators if one.vendor == backend.VENDOR]
    devices = [one for one in listed if one.device_type in backend.VENDOR_DEVICES]
    return max(1, sum(one.index is not None for one in devices))


def rounds(chosen: Sequence[Chosen]) -> list[list[Chosen]]:
    """Return the devices that run together: each load of the host by itself, then all accelerators."""
    here = [one for one in chosen if not one.reason]
    alone = [[one] for one in here if is_on_host(one.target)]
    together = [one for one in here if not is_on_host(one.target)]
    return [*alone, *([together] if together else [])]
