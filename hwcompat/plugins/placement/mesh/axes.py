"""`Split` and `DeviceMesh`: the axes of a split, the device of each rank, and communication backends.

Ranks are numbered with `tensor` as the fastest axis and `pipeline` as the slowest, so that ranks with the most
traffic are neighbors. Backends are torch.distributed's (gloo, nccl, xccl); a ROCm build calls RCCL nccl.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hwcompat.hardware.backends.factory import backend_class, built_in_targets
from hwcompat.hardware.errors import UsageError, did_you_mean, echo
from hwcompat.plugins.placement.placement_device import Device

AXES = ("pipeline", "data", "tensor")
"""From the slowest to the fastest in the numbering of ranks."""
AUTO = "auto"
MOST_RANKS = 4096
"""A larger number counts as a typing error."""
_OF_TORCH = tuple(name for name in built_in_targets() if backend_class(name).DEVICE_TYPE)
COLLECTIVES = {name: used for name in _OF_TORCH if (used := backend_class(name).COLLECTIVES)}
"""Torch targets with collectives of their own -> torch's name of the backend. nccl on rocm is RCCL, xccl on xpu is
oneCCL."""
STAGES_ONLY = tuple(name for name in _OF_TORCH if name not in COLLECTIVES)
"""Torch targets without a backend of torch.distributed: such a device is a stage by itself."""
HOST = "gloo through the host"
"""How two stages of different kinds communicate: point to point, through host memory."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """The number of parts along each axis: `data` copies of the model share a batch, `tensor` ranks share each layer,
    `pipeline` stages share the layers."""

    pipeline: int = 1
    data: int = 1
    tensor: int = 1

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self.pipeline * self.data * self.tensor

    @property
    def shape(self) -> tuple[int, int, int]:
        """The sizes in the order of `AXES`."""
        return self.pipeline, self.data, self.tensor

    def __str__(self) -> str:
        parts = [f"{axis}={size}" for axis, size in zip(AXES, self.shape, strict=True) if size > 1]
        return ",".join(parts) or "one device"

    @classmethod
    def parse(cls, text: str) -> Split | None:
        """Return the split of a text such as `data=2,tensor=2`; None for `auto`. Raises `UsageError`."""
        if text.strip().lower() == AUTO:
            return None
        sizes: dict[str, int] = {}
        for part in text.split(","):
            name, _, size = (one.strip() for one in part.partition("="))
            if name not in AXES:
                raise UsageError(
                    f"{echo(name)} isn't an axis of a mesh",
                    fix=did_you_mean(name, AXES) or "For example: data=2,tensor=2, or auto.",
                )
            if name in sizes:
                raise UsageError(f"the axis {name} is given twice", fix="Give each axis once.")
            if not (size.isascii() and size.isdigit() and len(size) < 6 and int(size) > 0):
                raise UsageError(f"{echo(size)} isn't a size of {name}", fix=f"Give a whole number: {name}=2.")
            sizes[name] = int(size)
        split = cls(**sizes)
        if split.size > MOST_RANKS:
            raise UsageError(f"a mesh of {split.size} ranks is too large", why=f"the maximum is {MOST_RANKS}")
        return split


@dataclass(frozen=True, kw_only=True)
class DeviceMesh:
    """Devices by rank, and their split. A value: two meshes of the same devices and split are equal.

    Raises `UsageError` if the number of devices isn't that of the ranks, or one is listed twice.
    """

    devices: tuple[Device, ...]
    split: Split

    def __post_init__(self) -> None:
        if len(self.devices) != self.split.size:
            raise UsageError(
                f"{self.split} needs {self.split.size} device(s), not {len(self.devices)}",
                fix="Choose sizes whose product is the number of devices.",
            )
        names = [one.name for one in self.devices]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise UsageError(f"the mesh lists {echo(twice)} twice", fix="Name each device once.")

    def coordinates(self, rank: int) -> tuple[int, int, int]:
        """Return the coordinates of a rank on `AXES`."""
        stage, rest = divmod(rank, self.split.data * self.split.tensor)
        copy, part = divmod(rest, self.split.tensor)
        return stage, copy, part

    def groups(self, axis: str) -> tuple[tuple[int, ...], ...]:
        """Return the ranks that differ along one axis alone, by group; empty if the axis has a size of 1."""
        return groups_of(self.split.shape, axis)


def groups_of(shape: Sequence[int], axis: str) -> tuple[tuple[int, ...], ...]:
    """Return the ranks of a mesh of this shape (in the order of `AXES`) that differ along one axis alone."""
    place = AXES.index(axis)
    if shape[place] == 1:
        return ()
    ranks = np.moveaxis(np.arange(math.prod(shape)).reshape(shape), place, -1)
    return tuple(map(tuple, ranks.reshape(-1, shape[place]).tolist()))


@dataclass(frozen=True, kw_only=True)
class AxisGroup:
    """Ranks that communicate along an axis. `why` is the reason for this backend."""

    axis: str
    ranks: tuple[int, ...]
    backend: str
    why: str


def kind_of(device: Device) -> str:
    """Return the kind that all devices of a group of collectives share: the target, for accelerators with the vendor.
    Processors of any vendor are one kind, since gloo works in host memory."""
    target = device.target
    return target if target == "cpu" or not device.vendor else f"{device.vendor} {target}"


def why_not(device: Device) -> str:
    """Return why a device can't be in a mesh at all; empty if it can."""
    if device.target in COLLECTIVES or device.target in STAGES_ONLY:
        return ""
    if not device.target:
        return f"{device.name}: torch has no target for it"
    return f"{device.name}: {device.target} runs whole exported graphs, not parts of a torch model"


def group_of(axis: str, ranks: Sequence[int], devices: Sequence[Device]) -> AxisGroup:
    """Return the group of these ranks; `devices` are theirs, in that order."""
    kinds = list(dict.fromkeys(map(kind_of, devices)))
    target = devices[0].target
    if len(kinds) == 1 and target in COLLECTIVES:
        library = backend_class(target).COLLECTIVES_LIBRARY
        backend = f"{COLLECTIVES[target]} ({library})" if library else COLLECTIVES[target]
        return AxisGroup(axis=axis, ranks=tuple(ranks), backend=backend, why=f"all are {kinds[0]}")
    if len(kinds) == 1:
        why = f"no backend of torch.distributed supports {target}"
    else:
        why = f"{' and '.join(kinds)} have no collectives in common; stages only pass tensors"
    return AxisGroup(axis=axis, ranks=tuple(ranks), backend=HOST, why=why)
