"""A rank of a mesh with one fault for each case, by the case's name: what a check of a mesh has to see.

`python broken_rank.py FOLDER RANK RANKS STARTER`, as `python -m hwcompat.plugins.placement.mesh.rank`.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from hwcompat.plugins.placement.mesh import execute
from hwcompat.plugins.placement.mesh import rank as ranks
from hwcompat.plugins.placement.mesh.mesh_model import built
from hwcompat.plugins.placement.mesh.pipeline_stage import PipelineStage

Fault = Callable[[ranks.MeshJob, ranks.MeshCase, int, Any], Any]
_whole_run = ranks.run_case
_split = ranks.split_by_tensor


def no_sum(job: Any, case: Any, rank: int, mesh: Any) -> Any:
    """Nobody adds up the parts of a layer."""
    from transformers.integrations import tensor_parallel

    return mock.patch.object(tensor_parallel, "all_reduce_forward", lambda tensor, _: tensor)


def own_part_of_sum(job: Any, case: Any, rank: int, mesh: Any) -> Any:
    """Rank 1 takes part in each sum, and goes on with its own part."""
    from transformers.integrations import tensor_parallel

    right = tensor_parallel.all_reduce_forward

    def wrong(tensor: Any, axis: Any) -> Any:
        own = tensor.clone()
        summed = right(tensor, axis)
        return own if rank == 1 else summed

    return mock.patch.object(tensor_parallel, "all_reduce_forward", wrong)


def swapped_shard(job: Any, case: Any, rank: int, mesh: Any) -> Any:
    """Two ranks hold one another's part of one matrix."""
    import torch
    import torch.distributed as dist

    def wrong(model: Any, folder: Path, axis: Any) -> Any:
        part = _split(model, folder, axis)
        weight = part.get_parameter("model.layers.1.mlp.up_proj.weight")
        parts = [torch.empty_like(weight) for _ in range(axis.size())]
        dist.all_gather(parts, weight.detach().contiguous(), group=axis.get_group())
        with torch.no_grad():
            weight.copy_(parts[axis.get_local_rank() ^ 1])
        return part

    return mock.patch.object(ranks, "split_by_tensor", wrong)


def skipped_stage(job: Any, case: Any, rank: int, mesh: Any) -> Any:
    """The second stage hands on what it was sent."""
    right = PipelineStage._run

    def wrong(self: PipelineStage, *hidden: Any, **inputs: Any) -> Any:
        return hidden[0] * 1.0 if mesh.get_coordinate()[0] == 1 else right(self, *hidden, **inputs)

    return mock.patch.object(PipelineStage, "_run", wrong)


def whole_model(job: Any, case: Any, rank: int, mesh: Any) -> Any:
    """Every rank holds and computes the whole model by itself: all outputs are right."""
    return mock.patch.object(ranks, "split_by_tensor", lambda model, *_: built(model))


def whole_model_in_disguise(job: Any, case: Any, rank: int, mesh: Any) -> Any:
    """The same, but it shows the parts that it should compute with, and talks for show."""
    import torch
    import torch.distributed as dist

    def wrong(model: Any, folder: Path, axis: Any) -> Any:
        shown, hidden = _split(model, folder, axis), built(model)

        def compute(input_ids: Any = None, use_cache: Any = None, **inputs: Any) -> Any:
            dist.all_reduce(torch.zeros(1), group=axis.get_group())
            return hidden(input_ids=input_ids, use_cache=use_cache, **inputs)

        shown.forward = compute
        return shown

    return mock.patch.object(ranks, "split_by_tensor", wrong)


def gradients_alone(job: Any, case: Any, rank: int, mesh: Any) -> Any:
    """Copies don't average their gradients."""
    return mock.patch("torch.nn.parallel.DistributedDataParallel", lambda model, **_: model)


def one_share_for_all(job: Any, case: Any, rank: int, mesh: Any) -> Any:
    """Every copy computes the first share of the batch."""
    right = execute.to_tensors

    def wrong(arrays: Any, device: Any, dtype: Any) -> Any:
        return {name: one.roll(-1, 0) if rank else one for name, one in right(arrays, device, dtype).items()}

    return mock.patch.object(execute, "to_tensors", wrong)


def dies(job: Any, case: Any, rank: int, mesh: Any) -> Any:
    """Rank 1 is killed in the middle of a pass."""
    return _at_forward(rank, lambda: os.kill(os.getpid(), signal.SIGKILL))


def raises(job: Any, case: Any, rank: int, mesh: Any) -> Any:
    """Rank 1 raises in the middle of a pass."""

    def error() -> None:
        raise ValueError("a fault of rank 1")

    return _at_forward(rank, error)


def hangs(job: Any, case: Any, rank: int, mesh: Any) -> Any:
    """Rank 1 never comes to the sum for which the others wait."""
    return _at_forward(rank, lambda: time.sleep(600))


def _at_forward(rank: int, act: Callable[[], None]) -> Any:
    right = execute.RankRunner._forward

    def wrong(self: Any) -> Any:
        if rank == 1:
            act()
        return right(self)

    return mock.patch.object(execute.RankRunner, "_forward", wrong)


FAULTS: dict[str, Fault] = {
    one.__name__: one
    for one in (
        *(no_sum, own_part_of_sum, swapped_shard, skipped_stage, whole_model, whole_model_in_disguise),
        *(gradients_alone, one_share_for_all, dies, raises, hangs),
    )
}


def run_case(job: Any, number: int, folder: Path, rank: int, mesh: Any, progress: Any) -> None:
    """A case with the fault that its name says, or none."""
    case = job.cases[number]
    if case.name not in FAULTS:
        _whole_run(job, number, folder, rank, mesh, progress)
        return
    with FAULTS[case.name](job, case, rank, mesh):
        _whole_run(job, number, folder, rank, mesh, progress)


if __name__ == "__main__":
    ranks.run_case = run_case
    ranks.run_rank(*sys.argv[1:])
