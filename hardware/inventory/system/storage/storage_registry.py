"""The registry of storage: the kinds in this folder and the entry points `hwcompat.storage`.

A kind that fails is left out, with its reason in `failures`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ....errors import UsageError, did_you_mean, echo
from ....machine import LiveMachine, Machine
from ....registry import Registry
from .measured_speeds import with_measured_speed
from .storage_device import StorageBackend, StorageDeviceInfo, read_mounts


def _check(found: type[StorageBackend]) -> None:
    if not isinstance(getattr(found, "NAME", None), str) or not found.NAME:
        raise TypeError(f"{found.__name__}.NAME must name the kind of storage")


KINDS: Registry[type[StorageBackend]] = Registry(
    group="hwcompat.storage",
    package=__package__,
    kind=StorageBackend,
    noun="kind of storage",
    first=("local", "network"),
    besides=frozenset({"storage_device", "storage_registry", "measured_speeds"}),
    check=_check,
)


@dataclass(frozen=True, kw_only=True)
class Storage:
    """The storage of a machine. `failures` names by kind why something can't be listed."""

    devices: tuple[StorageDeviceInfo, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)


def get_storage_backend(
    name: str = "local", machine: Machine | None = None, *, smart: bool = False
) -> StorageBackend:
    """Return the backend of one kind of storage; `parallel` and `object` belong to the kind `network`.

    Raises `UsageError` with the known kinds for another one.
    """
    known = KINDS.load_all().found
    wanted = name.strip().lower()
    found = known.get("network" if wanted in ("parallel", "object") else wanted)
    if found is None:
        raise UsageError(
            f"{echo(name)} is not a kind of storage",
            fix=" ".join(filter(None, [did_you_mean(name, known), f"Known: {', '.join(known)}."])),
        )
    return found(machine, smart=smart)


def read_storage(machine: Machine | None = None, *, smart: bool = False) -> Storage:
    """Return all storage of a machine, by default this one. Never raises.

    Without `smart` no program is started on Linux and no disk is read; sysfs and the mounts take a millisecond. With
    it smartctl reads each disk, which takes tenths of a second each and needs root.
    """
    machine = machine or LiveMachine()
    devices: list[StorageDeviceInfo] = []
    registered = KINDS.load_all()
    failures = dict(registered.failures)
    try:
        mounts = read_mounts(machine)
    except Exception as error:  # as below
        return Storage(failures={**failures, "storage": f"{type(error).__name__}: {error}"})
    for kind in registered.found.values():
        try:
            backend = kind(machine, mounts=mounts, smart=smart)
            found = backend.list_devices()
            reason = "" if found else backend.reason()
        except Exception as error:  # a kind that fails must not affect the others
            failures[kind.NAME] = f"{type(error).__name__}: {error}"
            continue
        devices.extend(map(with_measured_speed, found) if isinstance(machine, LiveMachine) else found)
        if reason:
            failures[kind.NAME] = reason
    return Storage(devices=tuple(devices), failures=failures)
