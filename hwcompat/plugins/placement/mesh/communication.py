"""Which devices can work in one group, and by what they talk: torch.distributed's backends by target.

Sources: torch.distributed's table of backends (gloo, nccl, xccl), RCCL being what a ROCm build of torch calls nccl.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hardware.backends.factory import backend_class, built_in_targets
from hwcompat.plugins.placement.device import Device

_OF_TORCH = tuple(name for name in built_in_targets() if backend_class(name).DEVICE_TYPE)
COLLECTIVES = {name: used for name in _OF_TORCH if (used := backend_class(name).COLLECTIVES)}
"""Targets of torch whose devices work in a group of their own -> torch's name of the backend. nccl on rocm is RCCL,
xccl on xpu is oneCCL."""
STAGES_ONLY = tuple(name for name in _OF_TORCH if name not in COLLECTIVES)
"""Targets of torch that no backend of torch.distributed speaks for: each can be a stage alone."""
HOST = "gloo through the host"
"""How two stages of different kinds talk: point to point, by memory of the host."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Ranks that talk along an axis. `why` says why by this backend."""

    axis: str
    ranks: tuple[int, ...]
    backend: str
    why: str


def kind_of(device: Device) -> str:
    """What a device has to share with another to be in a group of collectives: its target, and on accelerators the
    vendor. Processors of any vendor are one kind, since gloo works in memory of the host."""
    target = device.target
    return target if target == "cpu" or not device.vendor else f"{device.vendor} {target}"


def why_not(device: Device) -> str:
    """Why a device can't be in a mesh at all; empty where it can."""
    if device.target in COLLECTIVES or device.target in STAGES_ONLY:
        return ""
    if not device.target:
        return f"{device.name}: no target of torch computes on it"
    return f"{device.name}: {device.target} runs whole exported graphs, and no part of a torch model can be put on it"


def group_of(axis: str, ranks: Sequence[int], devices: Sequence[Device]) -> Group:
    """The group of these ranks; `devices` are theirs, in that order."""
    kinds = list(dict.fromkeys(map(kind_of, devices)))
    target = devices[0].target
    if len(kinds) == 1 and target in COLLECTIVES:
        library = backend_class(target).COLLECTIVES_LIBRARY
        backend = f"{COLLECTIVES[target]} ({library})" if library else COLLECTIVES[target]
        return Group(axis=axis, ranks=tuple(ranks), backend=backend, why=f"all are {kinds[0]}")
    if len(kinds) == 1:
        why = f"no backend of torch.distributed supports {target}"
    else:
        why = f"{' and '.join(kinds)} have no collectives in common; stages only pass tensors"
    return Group(axis=axis, ranks=tuple(ranks), backend=HOST, why=why)
