"""Checks splits of models for real: one start of the ranks does all cases, and each is held against one device."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hardware.plain_text import one_line
from hardware.whole_file import write_whole

from .case import JOB_FILE, SEED_FILE, MeshCase, MeshJob, MeshModel
from .judging import judge
from .launch import DEADLINE_S, RANK, MeshBroken, run_processes
from .result import CaseResult, MeshResult

Inputs = Mapping[str, npt.NDArray[Any]]


def check_mesh(
    models: Sequence[tuple[MeshModel, Inputs]],
    cases: Sequence[MeshCase],
    *,
    deadline_s: float = DEADLINE_S,
    program: Sequence[str] = RANK,
) -> MeshResult:
    """Run all cases on ranks of this machine, one process each, and judge them.

    Each model comes with its inputs (arrays whose first axis is the batch). A rank that dies or stands still is in
    the result, with its reason, beside the cases that were done before. `program` starts a rank; see `launch.py`.
    """
    job = MeshJob(models=tuple(one for one, _ in models), cases=tuple(cases), seconds=deadline_s)
    with tempfile.TemporaryDirectory(prefix="hwcompat-mesh-") as name:
        folder = Path(name)
        for number, (_, inputs) in enumerate(models):
            np.savez(folder / SEED_FILE.format(number), **inputs)  # type: ignore[arg-type] # names of inputs
        write_whole(folder / JOB_FILE, json.dumps(job.to_dict()))
        try:
            run_processes(folder, job.ranks, deadline_s=deadline_s, program=program)
            found = tuple(judge(job, number, folder) for number in range(len(cases)))
        except MeshBroken as error:
            broken = f"{error.what}: {error.why}"
            return MeshResult(cases=_ended(job, folder), broken=broken, rank=error.rank, step=error.step)
        except OSError as error:
            return MeshResult(broken=f"a rank left no result: {one_line(str(error))}")
    return MeshResult(cases=found)


def _ended(job: MeshJob, folder: Path) -> tuple[CaseResult, ...]:
    """The cases that all of their ranks came to the end of, where others didn't."""
    found = []
    for number in range(len(job.cases)):
        with contextlib.suppress(OSError):
            found.append(judge(job, number, folder))
    return tuple(found)
