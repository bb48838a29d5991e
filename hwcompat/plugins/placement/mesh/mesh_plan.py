"""Plan a mesh: the device and layers of each rank, whether they fit, and the reasons against an impossible split.

Pure functions from figures to a plan or a refusal. An unknown figure of a device is never guessed: the plan then says
that the fit is unknown.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from hwcompat.hardware.errors import UsageError
from hwcompat.hardware.plain_text import size_text
from hwcompat.plugins.placement.placement_device import Device

from .axes import AXES, COLLECTIVES, AxisGroup, DeviceMesh, Split, group_of, kind_of, why_not
from .model_figures import ModelFigures, cut

RESERVE = 0.1
"""The share of a device's memory reserved for activations, caches and the runtime, which aren't counted."""
_FIX = "Choose other sizes, or hwcompat mesh auto."


class MeshRefused(UsageError):
    """The requested mesh is impossible; `why` has every reason."""


class DoesntFit(MeshRefused):
    """The mesh is possible, but the memory of its devices is too small."""


@dataclass(frozen=True, kw_only=True)
class RankPlan:
    """One rank: its device, its coordinates on `AXES`, and its layers [first, stop). The first stage also holds the
    modules before the layers, the last those after them. `parameter_bytes` is the size of its parameters,
    `room_bytes` the memory of its device for parameters; None if unknown."""

    rank: int
    device: Device
    coordinates: tuple[int, int, int]
    layers: tuple[int, int]
    parameter_bytes: int
    room_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class MeshPlan:
    """A mesh for one model: ranks, groups, and the reasons.

    `left_out` has the devices without a rank and why; `rejected` the smaller splits that `auto` tried, and why it
    rejected them.
    """

    figures: ModelFigures
    mesh: DeviceMesh
    ranks: tuple[RankPlan, ...]
    groups: tuple[AxisGroup, ...]
    reasons: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()

    @property
    def stages(self) -> tuple[tuple[int, int], ...]:
        """Return layers [first, stop) of each stage."""
        return tuple(dict.fromkeys(one.layers for one in self.ranks))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, as `schemas/mesh.json` has them under `plan`."""
        ranks = [
            {
                "rank": one.rank,
                "device": one.device.name,
                "device_name": one.device.device_name,
                "target": one.device.selector,
                "vendor": one.device.vendor,
                **dict(zip(AXES, one.coordinates, strict=True)),
                "layers": list(one.layers),
                "holds_embeddings": one.layers[0] == 0,
                "holds_head": one.layers[1] == self.ranks[-1].layers[1],
                "parameter_bytes": one.parameter_bytes,
                "room_bytes": one.room_bytes,
            }
            for one in self.ranks
        ]
        return {
            "model": self.figures.name,
            "dtype": self.figures.dtype,
            "total_bytes": self.figures.total_bytes,
            "split": dict(zip(AXES, self.mesh.split.shape, strict=True)),
            "ranks": ranks,
            "groups": [asdict(one) | {"ranks": list(one.ranks)} for one in self.groups],
            "reasons": list(self.reasons),
            "left_out": list(self.left_out),
            "rejected": list(self.rejected),
        }


def plan_mesh(devices: Sequence[Device], figures: ModelFigures, wanted: Split | None) -> MeshPlan:
    """Return the mesh of `wanted` sizes on some of these devices; for None the smallest one that fits.

    Raises `MeshRefused` with every reason.
    """
    left_out = [why for why in map(why_not, devices) if why]
    usable = [one for one in devices if not why_not(one)]
    rejected: list[str] = []
    for split in [wanted] if wanted is not None else _candidates(len(usable)):
        try:
            plan = _planned(usable, figures, split)
        except MeshRefused as refusal:
            if wanted is not None:
                raise
            rejected.append(refusal.why if refusal.why.startswith(f"{split}:") else f"{split}: {refusal.why}")
            continue
        return replace(plan, left_out=(*left_out, *plan.left_out), rejected=tuple(_brief(rejected)))
    raise DoesntFit(
        f"{figures.name} fits no mesh of these {len(usable)} device(s)",
        why="; ".join([*_brief(rejected), *left_out]) or "there are no devices",
        fix="Plan with more devices, or in a smaller precision: --precision bfloat16.",
    )


def _brief(items: Sequence[str], most: int = 6, what: str = "splits") -> list[str]:
    more = len(items) - most
    return [*items[:most], *([f"and {more} more {what}"] if more > 0 else [])]


def _candidates(count: int) -> list[Split]:
    """Return all splits without copies, fewest devices first, then larger `tensor`: its ranks compute in parallel."""
    pairs = [(p, t) for p in range(1, count + 1) for t in range(1, count // p + 1)]
    return [Split(pipeline=p, tensor=t) for p, t in sorted(pairs, key=lambda one: (one[0] * one[1], one[0]))]


def _planned(devices: Sequence[Device], figures: ModelFigures, split: Split) -> MeshPlan:
    problems = _of_model(figures, split)
    if len(devices) < split.size:
        problems.append(f"it needs {split.size} device(s), and there are {len(devices)}")
    blocks = [] if problems else _blocks(devices, split)
    if not problems and len(blocks) < split.pipeline:
        problems.append(_different_kinds(devices, split))
    if problems:
        raise MeshRefused(f"{figures.name} can't be split by {split}", why="; ".join(problems), fix=_FIX)
    mesh = DeviceMesh(devices=tuple(_in_order(blocks, split)), split=split)
    totals = [one.memory_total.value for one in mesh.devices]
    rooms = [None if total is None else int(total * (1 - RESERVE)) for total in totals]
    size = split.data * split.tensor
    known = [room for room in rooms if room is not None]
    is_known = len(known) == len(rooms)
    weights = [float(min(known[at : at + size])) if is_known else 1.0 for at in range(0, len(rooms), size)]
    stages = cut(figures, split.tensor, weights)
    ranks = []
    for rank, (device, room) in enumerate(zip(mesh.devices, rooms, strict=True)):
        where = mesh.coordinates(rank)
        first, stop = stages[where[0]]
        ranks.append(
            RankPlan(
                rank=rank,
                device=device,
                coordinates=where,
                layers=(first, stop),
                parameter_bytes=figures.part_bytes(first, stop, split.tensor),
                room_bytes=room,
            )
        )
    if tight := [
        _too_tight(one) for one in ranks if one.room_bytes is not None and one.parameter_bytes > one.room_bytes
    ]:
        raise DoesntFit(
            f"{figures.name} doesn't fit when split by {split}", why="; ".join(_brief(tight, 2, "ranks")), fix=_FIX
        )
    idle = [one.name for one in devices if one not in mesh.devices]
    return MeshPlan(
        figures=figures,
        mesh=mesh,
        ranks=tuple(ranks),
        groups=_groups(mesh),
        reasons=tuple(_reasons(figures, mesh, stages)),
        left_out=(f"{', '.join(idle)}: not needed by {split}",) if idle else (),
    )


def _of_model(figures: ModelFigures, split: Split) -> list[str]:
    """Return why the model doesn't allow a split."""
    problems = []
    if split.tensor > 1 and not figures.tensor_plan:
        problems.append(f"tensor={split.tensor}: {figures.no_tensor or 'the model has no tensor plan'}")
    elif split.tensor > 1:
        uneven = [f"{size} {name}" for name, size in figures.divided.items() if size % split.tensor]
        if uneven:
            shown = ", ".join(_brief(uneven, 2, "sizes"))
            problems.append(f"tensor={split.tensor}: {split.tensor} doesn't divide {shown}")
    if split.pipeline > 1 and figures.no_pipeline:
        problems.append(f"pipeline={split.pipeline}: {figures.no_pipeline}")
    elif split.pipeline > len(figures.layers):
        problems.append(f"pipeline={split.pipeline}: the model has {len(figures.layers)} layer(s), fewer than stages")
    if figures.batch is not None and figures.batch % split.data:
        problems.append(f"data={split.data}: a batch of {figures.batch} can't be divided by {split.data}")
    return problems


def _by_kind(devices: Sequence[Device]) -> dict[str, list[Device]]:
    """Return the devices of each kind, the one with the most memory first."""
    kinds: dict[str, list[Device]] = {}
    for one in sorted(devices, key=lambda device: -(device.memory_total.value or 0)):
        kinds.setdefault(kind_of(one), []).append(one)
    return kinds


def _blocks(devices: Sequence[Device], split: Split) -> list[list[Device]]:
    """Return all sets of devices of one kind that can run a stage of this split."""
    size = split.data * split.tensor
    blocks: list[list[Device]] = []
    for _, members in sorted(_by_kind(devices).items(), key=lambda one: (-len(one[1]), one[0])):
        if size == 1 or members[0].target in COLLECTIVES:
            blocks += [members[at : at + size] for at in range(0, len(members) - size + 1, size)]
    return blocks


def _in_order(blocks: Sequence[list[Device]], split: Split) -> list[Device]:
    """Return the devices of the blocks with the most memory, one block for each stage, equal kinds side by side."""
    order = {kind: place for place, kind in enumerate(dict.fromkeys(kind_of(block[0]) for block in blocks))}
    roomiest = sorted(blocks, key=lambda block: -min(one.memory_total.value or 0 for one in block))
    chosen = sorted(roomiest[: split.pipeline], key=lambda block: order[kind_of(block[0])])
    return [one for block in chosen for one in block]


def _different_kinds(devices: Sequence[Device], split: Split) -> str:
    counts = ", ".join(f"{len(members)} of {kind}" for kind, members in _by_kind(devices).items())
    size = split.data * split.tensor
    return (
        f"{split} needs {split.pipeline} stage(s) of {size} device(s) of one kind, and there are {counts}: devices "
        "of different vendors share no collectives (NCCL, RCCL and oneCCL are incompatible), so they can only be "
        "stages of a pipeline"
    )


def _too_tight(rank: RankPlan) -> str:
    held, room = size_text(rank.parameter_bytes), size_text(rank.room_bytes)
    return f"rank {rank.rank} needs {held} on {rank.device.name}, which has {room} for parameters"


def _groups(mesh: DeviceMesh) -> tuple[AxisGroup, ...]:
    found = []
    for axis in ("tensor", "data"):
        found += [group_of(axis, ranks, [mesh.devices[one] for one in ranks]) for ranks in mesh.groups(axis)]
    for ranks in mesh.groups("pipeline"):
        for pair in itertools.pairwise(ranks):
            found.append(group_of("pipeline", pair, [mesh.devices[one] for one in pair]))
    return tuple(found)


def _reasons(figures: ModelFigures, mesh: DeviceMesh, stages: Sequence[tuple[int, int]]) -> list[str]:
    split, reasons = mesh.split, []
    unknown = [one for one in mesh.devices if one.memory_total.value is None]
    if split.tensor > 1:
        whole = figures.total_bytes - figures.part_bytes(0, len(figures.layers), split.tensor)
        divided = size_text(-(-whole * split.tensor // (split.tensor - 1)))
        reasons.append(f"tensor: {figures.tensor_plan} splits {divided}; every rank of a group holds the rest")
    if split.data > 1:
        reasons.append(f"data: {split.data} copies of the model, each with its share of the batch")
    if split.pipeline > 1:
        sizes = Counter(stop - first for first, stop in stages)
        if len(sizes) > 1:
            reasons.append("pipeline: stages are uneven to minimize the largest used share of a device's memory")
        else:
            reasons.append("pipeline: all stages have the same number of layers")
        kinds = list(dict.fromkeys(kind_of(one) for one in mesh.devices))
        if len(kinds) > 1:
            reasons.append(f"pipeline: {' and '.join(kinds)} are stages connected through host memory")
    machines = sorted({one.name.rpartition("/")[0] for one in mesh.devices if one.target != "cpu"})
    if len(machines) > 1:
        reasons.append(
            f"machines: {' and '.join(filter(None, machines))}; the speed of the links between them is unknown"
        )
    for one in unknown:
        why = one.memory_total.reason or "not reported"
        reasons.append(f"memory of {one.name} unknown ({why}): its part may not fit")
    if not unknown:
        reasons.append(
            f"memory: {RESERVE:.0%} of each device is reserved for activations and caches, which aren't counted"
        )
    return reasons
