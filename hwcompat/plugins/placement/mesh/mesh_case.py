"""Cases for ranks and their results, as plain values. Results have the shape of `schemas/mesh.json`."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hwcompat.hardware.files import write_whole

from .axes import Split

JOB_FILE = "job"
RESULT_FILE = "rank{}-case{}"
WHOLE_FILE = "whole-{}"
STATUS_FILE = "rank{}.status"
CHECKPOINT = "checkpoint-{}"
TORCH_AXES = ("pp", "dp", "tp")
"""Names of the axes of `AXES` in torch's own mesh: transformers looks for `tp`."""

OUTPUTS, SAME, GRADIENTS, HELD, EFFECT, TRAFFIC = (
    "matches_reference",
    "matches_one_device",
    "gradients_match",
    "holds_its_part",
    "every_rank_is_heard",
    "talks",
)
CHECKS = {
    OUTPUTS: "outputs of each last rank, float64",
    SAME: "the same, one device in float32",
    GRADIENTS: "all gradients, float64",
    HELD: "each rank holds its parameters only",
    EFFECT: "damage to a rank changes its share",
    TRAFFIC: "ranks communicate on each axis",
}

Inputs = Mapping[str, npt.NDArray[Any]]
_ARRAY = "array"
"""The key of an array in JSON: its index in the file."""


def keep(path: Path, value: Any) -> None:
    """Write JSON values and arrays for another process, atomically; `kept` reads them."""
    arrays: list[npt.NDArray[Any]] = []

    def place_of(array: npt.NDArray[Any]) -> dict[str, int]:
        arrays.append(array)
        return {_ARRAY: len(arrays) - 1}

    text, file = json.dumps(value, default=place_of), io.BytesIO()
    np.savez(file, *arrays, text=np.array(text))
    write_whole(path, file.getvalue())


def kept(path: Path) -> Any:
    """Read the values that a process wrote with `keep`. Raises `OSError` if it wrote none."""
    with np.load(io.BytesIO(path.read_bytes())) as file:
        return json.loads(
            str(file["text"]), object_hook=lambda one: file[f"arr_{one[_ARRAY]}"] if one.keys() == {_ARRAY} else one
        )


@dataclass(frozen=True, kw_only=True)
class MeshModel:
    """A model of transformers: names of its classes, constructor arguments, the gain of its seeded test weights,
    names of norms that add 1 to their weights, and for outputs with a row for each token the input that masks
    rows."""

    name: str
    config_class: str
    model_class: str
    config: Mapping[str, Any]
    gain: float | None
    zero_centered: Sequence[str] = ()
    masked_by: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class MeshCase:
    """One check: a model (its index in the job's list) split over ranks 0 and on.

    `stages` are layers [first, stop) of each stage, `devices` the targets of the ranks (`cpu`, `cuda:1`).
    `microbatches` is the number of parts of each copy's batch in the pipeline.
    """

    name: str
    model: int
    split: Split
    stages: tuple[tuple[int, int], ...]
    devices: tuple[str, ...]
    microbatches: int = 1
    gradients: bool = True

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the targets without an index, each once."""
        return tuple(dict.fromkeys(one.partition(":")[0] for one in self.devices))


@dataclass(frozen=True, kw_only=True)
class MeshJob:
    """All cases of one start of the ranks. `inputs` are those of each model, with the batch as their first axis;
    `seconds` is the time limit of a collective."""

    models: tuple[MeshModel, ...]
    inputs: tuple[Inputs, ...]
    cases: tuple[MeshCase, ...]
    seconds: float

    @property
    def ranks(self) -> int:
        """The number of processes."""
        return max((one.split.size for one in self.cases), default=1)


@dataclass(frozen=True, kw_only=True)
class MeshCheck:
    """One check of one case. `error` is relative to the scale of the expected value, if there is one."""

    name: str
    passed: bool
    error: float | None = None
    tolerance: float | None = None
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class RankFacts:
    """Facts of one rank: its device, the number of parameters (whole ones and parts), bytes, and communication
    (`all_reduce on tensor`: 8) in a forward and a backward pass, with its bytes."""

    rank: int
    device: str
    coordinates: tuple[int, int, int]
    parameters: int
    parts: int
    bytes: int
    forward: Mapping[str, int]
    backward: Mapping[str, int]
    forward_bytes: Mapping[str, int]
    seconds: float
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CaseResult:
    """All checks of one case, and the facts of its ranks."""

    case: MeshCase
    checks: tuple[MeshCheck, ...]
    ranks: tuple[RankFacts, ...] = ()
    whole_bytes: int = 0

    @property
    def passed(self) -> bool:
        """Whether every check passed; a case without checks didn't."""
        return bool(self.checks) and all(one.passed for one in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        values = asdict(self)
        values["passed"] = self.passed
        for check in values["checks"]:
            if check["error"] is not None and not check["error"] < float("inf"):
                check["error"] = None
        return values


@dataclass(frozen=True, kw_only=True)
class MeshResult:
    """The result of one start of the ranks. `broken` says why it didn't finish, `rank` which rank failed and `step`
    in which step; `cases` are then those that were finished."""

    cases: tuple[CaseResult, ...] = ()
    broken: str = ""
    rank: int | None = None
    step: str = ""

    @property
    def passed(self) -> bool:
        """Whether all cases passed, and there were any."""
        return not self.broken and bool(self.cases) and all(one.passed for one in self.cases)
