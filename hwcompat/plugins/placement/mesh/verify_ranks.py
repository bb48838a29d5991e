"""Compare the results of the ranks with one device: outputs, gradients, parameters, damage, communication."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hwcompat.hardware.compare import Array, Comparison, ReferenceNotFinite, compare, compare_gradients
from hwcompat.hardware.output_masks import masks_of
from hwcompat.hardware.target import Target
from hwcompat.hardware.testing.tolerances import tolerance_for

from .axes import groups_of
from .mesh_case import (
    EFFECT,
    GRADIENTS,
    HELD,
    OUTPUTS,
    RESULT_FILE,
    SAME,
    TRAFFIC,
    WHOLE_FILE,
    CaseResult,
    MeshCase,
    MeshCheck,
    MeshJob,
    RankFacts,
    kept,
)
from .mesh_model import side_of

LEAST_EFFECT = 50
"""The smallest change of the outputs by damage to a rank, as a multiple of the tolerance."""

Arrays = Mapping[str, Array]
Facts = Mapping[str, Any]


def judge(job: MeshJob, number: int, folder: Path) -> CaseResult:
    """Return all checks of one case from the results of its ranks. Raises `OSError` if a rank wrote none."""
    case = job.cases[number]
    ranks: list[Facts] = [kept(folder / RESULT_FILE.format(one, number)) for one in range(case.split.size)]
    whole: Facts = kept(folder / WHOLE_FILE.format(case.model))
    masks = masks_of(job.models[case.model].masked_by, job.inputs[case.model])
    limit = max(tolerance_for(Target.parse(kind), "float32").limit for kind in case.kinds)
    checks = [
        _outputs(OUTPUTS, case, ranks, whole["exact_out"], masks, limit),
        _outputs(SAME, case, ranks, whole["out"], masks, limit),
        _check_parameters(case, ranks, whole),
        _check_damage(case, ranks, masks, limit),
        _check_traffic(case, ranks),
    ]
    if case.gradients:
        checks.insert(2, _gradients(case, ranks, whole["exact_grad"], whole["tied"], limit))
    size = sum(4 * math.prod(shape) for shape in whole["shapes"].values())
    facts = tuple(_rank_facts(one, whole) for one in ranks)
    return CaseResult(case=case, checks=tuple(checks), ranks=facts, whole_bytes=size)


def _last_stage(case: MeshCase) -> list[int]:
    size = case.split.data * case.split.tensor
    return list(range((case.split.pipeline - 1) * size, case.split.size))


def _check_outputs_within(name: str, found: Sequence[tuple[int, Comparison]], limit: float) -> MeshCheck:
    rank, worst = max(found, key=lambda one: one[1].max_rel_error)
    passed = worst.max_rel_error <= limit
    detail = "" if passed else f"rank {rank}: {worst}"
    return MeshCheck(name=name, passed=passed, error=worst.max_rel_error, tolerance=limit, detail=detail)


def _outputs(
    name: str, case: MeshCase, ranks: Sequence[Facts], want: Arrays, masks: Arrays, limit: float
) -> MeshCheck:
    """Check every rank of the last stage, since each has the outputs of all copies."""
    try:
        each = [
            (rank, compare(ranks[rank]["out"], want, masks=masks, required=tuple(want))) for rank in _last_stage(case)
        ]
    except ReferenceNotFinite as error:
        return MeshCheck(name=name, passed=False, detail=str(error))
    return _check_outputs_within(name, each, limit)


def _gradients(
    case: MeshCase, ranks: Sequence[Facts], want: Arrays, tied: Mapping[str, str], limit: float
) -> MeshCheck:
    """Check the gradients of all stages together, for every coordinate beside the pipeline; shared ones are added."""
    size = case.split.data * case.split.tensor
    found = []
    try:
        for place in range(size):
            got: dict[str, Array] = {}
            for stage in range(case.split.pipeline):
                for name, one in ranks[stage * size + place]["grad"].items():
                    own = tied.get(name, name)
                    got[own] = got[own] + one if own in got else one
            zero = [name for name in got if name not in want and not got[name].any()]
            got = {name: one for name, one in got.items() if name not in zero}
            shapes, own_shapes = ({name: one.shape for name, one in each.items()} for each in (want, got))
            others = sorted(name for name in {**got, **want} if own_shapes.get(name) != shapes.get(name))
            if others:
                detail = f"rank {place}: {_shape(own_shapes.get(others[0]))} is the gradient of {others[0]}"
                more = f", and {len(others) - 1} more are wrong" if len(others) > 1 else ""
                return MeshCheck(name=GRADIENTS, passed=False, tolerance=limit, detail=detail + more)
            found.append((place, replace(compare_gradients(got, want), worst=_largest_error(got, want))))
    except ReferenceNotFinite as error:
        return MeshCheck(name=GRADIENTS, passed=False, detail=str(error))
    return _check_outputs_within(GRADIENTS, found, limit)


def _largest_error(got: Arrays, want: Arrays) -> str:
    """Return the parameter whose gradient has the largest error."""
    return f"the gradient of {max(want, key=lambda name: float(np.abs(got[name] - want[name]).max(initial=0.0)))}"


# Parameters of a rank


def expected_parts(case: MeshCase, rank: int, whole: Facts) -> dict[str, tuple[int, ...]]:
    """Return the shape of each parameter that a rank must hold, by name, from facts of the whole model alone."""
    size = case.split.data * case.split.tensor
    stage = rank // size
    names = {**{name: name for name in whole["shapes"]}, **whole["tied"]}
    found = {}
    for name, own in names.items():
        if not _is_of_stage(name, case, stage, whole):
            continue
        shape = list(whole["shapes"][own])
        dim = whole["dims"].get(own)
        if case.split.tensor > 1 and dim is not None:
            shape[dim] //= case.split.tensor
        found[own] = tuple(shape)
    return found


def _is_of_stage(name: str, case: MeshCase, stage: int, whole: Facts) -> bool:
    if case.split.pipeline == 1:
        return True
    first, stop = case.stages[stage]
    side = side_of(name, whole)
    if isinstance(side, int):
        return first <= side < stop
    return first == 0 if side == "before" else bool(stop == whole["count"])


def _check_parameters(case: MeshCase, ranks: Sequence[Facts], whole: Facts) -> MeshCheck:
    if case.split.tensor > 1 and not whole["dims"]:
        return MeshCheck(name=HELD, passed=False, detail="no parameter is divided by a tensor split")
    wrong = []
    for rank, one in enumerate(ranks):
        got = {whole["tied"].get(name, name): tuple(shape) for name, shape in one["held"].items()}
        want = expected_parts(case, rank, whole)
        differing = [name for name in {**got, **want} if got.get(name) != want.get(name)]
        if differing:
            name = differing[0]
            detail = f"rank {rank} holds {_shape(got.get(name))} of {name}, expected {_shape(want.get(name))}"
            wrong.append(f"{detail}; {len(differing)} differ" if len(differing) > 1 else detail)
    return MeshCheck(name=HELD, passed=not wrong, detail="; ".join(wrong[:4]))


def _shape(shape: Sequence[int] | None) -> str:
    return "nothing" if shape is None else "x".join(map(str, shape)) or "a number"


# Effect of damage


def _check_damage(case: MeshCase, ranks: Sequence[Facts], masks: Arrays, limit: float) -> MeshCheck:
    """Check that damage to one rank changes the outputs of its copy's share of the batch on every rank that has
    outputs, and leaves those of other copies unchanged."""
    wrong: list[str] = []
    least = math.inf
    copies = case.split.data
    for reader in _last_stage(case):
        before = ranks[reader]["out"]
        for rank, after in enumerate(ranks[reader]["damaged"]):
            copy = rank // case.split.tensor % copies
            for share in range(copies):
                moved = _output_change(before, after, masks, share, copies)
                if share == copy:
                    # A rank with outputs of another part of a layer depends on this one only through the sums.
                    least = min(least, moved)
                    if not moved > LEAST_EFFECT * limit:
                        wrong.append(
                            f"damage to rank {rank} changes the outputs of rank {reader} by {moved:.1e} only"
                        )
                elif moved > limit:
                    wrong.append(f"damage to rank {rank} changes the share of copy {share}, which isn't its own")
    detail = "; ".join(list(dict.fromkeys(wrong))[:4])
    shown = None if math.isinf(least) else least
    return MeshCheck(name=EFFECT, passed=not wrong, error=shown, tolerance=LEAST_EFFECT * limit, detail=detail)


def _output_change(before: Arrays, after: Arrays, masks: Arrays, share: int, copies: int) -> float:
    """Return the relative change of the outputs of one share of the batch; infinite if they are missing."""

    def part(one: Array) -> Array:
        size = one.shape[0] // copies
        return one[share * size : (share + 1) * size]

    names = [name for name in before if before[name].ndim and before[name].dtype.kind == "f"]
    own = {name: part(masks[name]) for name in names if name in masks}
    try:
        return max(
            compare({n: part(after[n])}, {n: part(before[n])}, masks=own, required=(n,)).max_rel_error for n in names
        )
    except (KeyError, ValueError):
        return 0.0


# Communication


def _check_traffic(case: MeshCase, ranks: Sequence[Facts]) -> MeshCheck:
    """Check the traffic: collectives along `tensor` and sends along `pipeline`, copies in the backward pass."""
    needed = {"tensor": "forward", "pipeline": "forward"} | ({"data": "backward"} if case.gradients else {})
    missing = [
        f"rank {rank} doesn't communicate on {axis} in its {pass_} pass"
        for axis, pass_ in needed.items()
        for rank in sorted(itertools.chain(*groups_of(case.split.shape, axis)))
        if not any(name.endswith(f"on {axis}") for name in ranks[rank][pass_])
    ]
    return MeshCheck(name=TRAFFIC, passed=not missing, detail="; ".join(missing[:4]))


def _rank_facts(one: Facts, whole: Facts) -> RankFacts:
    shapes = {name: whole["shapes"].get(whole["tied"].get(name, name), shape) for name, shape in one["held"].items()}
    parts = [
        f"{name} {_shape(shape)} of {_shape(shapes[name])}"
        for name, shape in one["held"].items()
        if shapes[name] != shape
    ]
    stage, copy, part = one["coordinates"]
    return RankFacts(
        rank=one["rank"],
        device=one["device"],
        coordinates=(stage, copy, part),
        parameters=len(one["held"]),
        parts=len(parts),
        bytes=one["bytes"],
        forward=dict(sorted(one["forward"].items())),
        backward=dict(sorted(one["backward"].items())),
        forward_bytes=dict(sorted(one["forward_bytes"].items())),
        seconds=one["seconds"],
        examples=tuple(parts[:3]),
    )
