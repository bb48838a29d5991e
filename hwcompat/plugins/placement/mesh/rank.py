"""The process of one rank: join the others, build its part of each case's model, compute, and write results. `python
-m hwcompat.plugins.placement.mesh.rank FOLDER RANK RANKS STARTER`.

A rank ends with its launcher, whose process id is the last argument.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

from hwcompat.hardware.backends.factory import backend_class, get_backend
from hwcompat.hardware.model.calls import to_tensors
from hwcompat.hardware.plain_values import from_values
from hwcompat.hardware.process import die_with_parent
from hwcompat.hardware.target import Target

from .axes import COLLECTIVES
from .execute import RankRunner
from .mesh_case import CHECKPOINT, JOB_FILE, RESULT_FILE, STATUS_FILE, TORCH_AXES, MeshCase, MeshJob, keep, kept
from .mesh_model import built, split_by_tensor
from .pipeline_stage import PipelineStage, outline_of

_LONGEST = 600
"""The most characters of a step or a failure."""
_ROOM = 4096
"""The smallest size in bytes of every status but the last, so that a status overwrites the one before completely."""


class RankProgress:
    """The progress of this rank, in a file that the launcher reads: the number of communications, the step, and a
    failure with its time. It is overwritten in place at each communication."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        self._told: dict[str, Any] = {"calls": 0, "step": ""}

    def step(self, name: str) -> None:
        """Record the current step."""
        self._write_status(step=name[:_LONGEST])

    def communicated(self) -> None:
        """Record a communication that is about to start."""
        self._write_status(calls=self._told["calls"] + 1)

    def failed(self, error: BaseException) -> None:
        """Record the failure that ends the rank."""
        self._write_status(at=time.time(), failure=f"{type(error).__name__}: {error}"[:_LONGEST])

    def _write_status(self, **changes: Any) -> None:
        self._told |= changes
        os.pwrite(self._handle, f"{json.dumps(self._told):<{_ROOM}}".encode(), 0)


def main(folder: Path, rank: int, ranks: int, progress: RankProgress) -> None:
    """Run all cases of the job in `folder`. Raises whatever a case raises."""
    job = from_values(MeshJob, kept(folder / JOB_FILE))
    progress.step("importing torch")
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    progress.step("joining the others")
    dist.init_process_group(
        _backend(job),
        init_method=f"file://{folder / 'store'}",
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=job.seconds),
    )
    # torch starts its threads for gradients once: all devices must be known by then.
    for case in job.cases:
        if rank < case.split.size:
            device_of(case, rank)
    meeting = dist.new_group(backend="gloo")  # for barriers, without any device
    progress.step("writing checkpoints")
    if rank == 0:
        for model in sorted({case.model for case in job.cases if case.split.tensor > 1}):
            built(job.models[model]).save_pretrained(folder / CHECKPOINT.format(model))
    dist.barrier(group=meeting)
    for number, case in enumerate(job.cases):
        progress.step(f"{case.name}: joining")
        mesh = _device_mesh(case, rank, ranks)
        if rank < case.split.size:
            run_case(job, number, folder, rank, mesh, progress)
        dist.barrier(group=meeting)
    progress.step("done")
    dist.destroy_process_group()


def _backend(job: MeshJob) -> str:
    """Return torch's name of the backend of all ranks: gloo, and beside it that of accelerators of one kind."""
    kinds = {kind for case in job.cases if len(case.kinds) == 1 for kind in case.kinds}
    others = sorted(kinds & COLLECTIVES.keys() - {"cpu"})
    return ",".join(["cpu:gloo", *(f"{backend_class(one).DEVICE_TYPE}:{COLLECTIVES[one]}" for one in others)])


def _device_mesh(case: MeshCase, rank: int, ranks: int) -> Any:
    """Return torch's own mesh of the case's ranks. All ranks create it together, also those that aren't in it."""
    import torch
    from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

    kind = case.kinds[0] if len(case.kinds) == 1 and case.kinds[0] in COLLECTIVES else "cpu"
    device_type = backend_class(kind).DEVICE_TYPE
    if device_type != "cpu" and rank < case.split.size:
        getattr(torch, device_type).set_device(device_of(case, rank))
    if case.split.size == ranks:
        return init_device_mesh(device_type, case.split.shape, mesh_dim_names=TORCH_AXES)
    places = torch.arange(case.split.size).reshape(case.split.shape)
    return DeviceMesh(device_type, places, mesh_dim_names=TORCH_AXES)


def device_of(case: MeshCase, rank: int) -> Any:
    """Return the torch device of a rank's target."""
    target: Any = get_backend(Target.parse(case.devices[rank]))
    return target.torch_device()


def run_case(job: MeshJob, number: int, folder: Path, rank: int, mesh: Any, progress: RankProgress) -> None:
    """Run one case on this rank: build, compute, and write the arrays and the facts."""
    import torch

    case = job.cases[number]
    model = job.models[case.model]
    started = time.monotonic()
    arrays = job.inputs[case.model]
    stage, copy, part_of_layer = mesh.get_coordinate()
    share = min(one.shape[0] for one in arrays.values()) // case.split.data
    own = {name: one[copy * share : (copy + 1) * share] for name, one in arrays.items()}
    outline = None
    if case.split.pipeline > 1:
        progress.step(f"{case.name}: finding the layers")
        outline = outline_of(built(model, seeded=False), to_tensors(own, "cpu", torch.float32))
    progress.step(f"{case.name}: building")
    if case.split.tensor > 1:
        part = split_by_tensor(model, folder / CHECKPOINT.format(case.model), mesh["tp"])
    else:
        part = built(model)
    device = device_of(case, rank)
    by_host = mesh.device_type == "cpu"
    made = None if outline is None else PipelineStage(part, outline, case.stages[stage], device, by_host=by_host)
    runner = RankRunner(case, model, part if made else part.to(device), made, mesh, own, arrays, progress)
    found = runner.run() | {"rank": rank, "device": str(device), "coordinates": (stage, copy, part_of_layer)}
    keep(folder / RESULT_FILE.format(rank, number), found | {"seconds": round(time.monotonic() - started, 3)})


def run_rank(folder: str, rank: str, ranks: str, starter: str) -> NoReturn:
    """Run, write the reason of a failure into the status, and exit at once: otherwise threads of gloo would wait for
    ranks that wait in a collective."""
    die_with_parent(int(starter))
    progress, code = RankProgress(Path(folder) / STATUS_FILE.format(rank)), 0
    try:
        main(Path(folder), int(rank), int(ranks), progress)
    except BaseException as error:  # anything may end a rank
        progress.failed(error)
        code = 2 if isinstance(error, KeyboardInterrupt) else 1
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    run_rank(*sys.argv[1:])
