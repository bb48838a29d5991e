"""What a rank is asked to do, as plain JSON: which model, split how, on which devices, with which inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .axes import Split

SEED_FILE = "inputs-{}.npz"
OUTPUT_FILE = "rank{}-case{}.npz"
FACTS_FILE = "rank{}-case{}.json"
WHOLE_FILE = "whole-{}.npz"
WHOLE_FACTS = "whole-{}.json"
PROGRESS_FILE = "rank{}.progress"
FAILURE_FILE = "rank{}.failure"
JOB_FILE = "job.json"
CHECKPOINT = "checkpoint-{}"
TORCH_AXES = ("pp", "dp", "tp")
"""What the axes of `AXES` are called in torch's own mesh: transformers looks for `tp`."""


@dataclass(frozen=True, kw_only=True)
class MeshModel:
    """A model of transformers as its classes take it: names of classes, constructor arguments, the gain of its seeded
    test weights with the names of those of norms that it adds 1 to, and for outputs with a row for each token the
    input that says which rows mean something."""

    name: str
    config_class: str
    model_class: str
    config: Mapping[str, Any]
    gain: float | None
    zero_centered: Sequence[str] = ()
    masked_by: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class MeshCase:
    """One check: a model (its place in the job's list) split over ranks 0 and on.

    `stages` are layers [first, stop) of each stage, `devices` the targets of the ranks (`cpu`, `cuda:1`).
    `microbatches` is into how many parts each copy's batch goes through the pipeline.
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
        """The targets without an index, each once."""
        return tuple(dict.fromkeys(one.partition(":")[0] for one in self.devices))


@dataclass(frozen=True, kw_only=True)
class MeshJob:
    """All that one start of the ranks does. `seconds` is how long a collective waits for the others."""

    models: tuple[MeshModel, ...]
    cases: tuple[MeshCase, ...]
    seconds: float

    @property
    def ranks(self) -> int:
        """How many processes that takes."""
        return max((one.split.size for one in self.cases), default=1)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> MeshJob:
        """What `to_dict` gave, also after JSON."""
        cases = [
            MeshCase(
                **{
                    **one,
                    "split": Split(**one["split"]),
                    "stages": tuple((first, stop) for first, stop in one["stages"]),
                    "devices": tuple(one["devices"]),
                }
            )
            for one in values["cases"]
        ]
        models = tuple(MeshModel(**one) for one in values["models"])
        return cls(models=models, cases=tuple(cases), seconds=values["seconds"])
