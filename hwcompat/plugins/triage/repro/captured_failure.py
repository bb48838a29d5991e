"""What a repro is made of: the step that failed, what was compared, and what was raised; plain data, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

MASK = "mask:"
"""How the names of masks begin, beside the outputs that they belong to."""

ANSWER = "captured.json"
INPUTS, EXPECTED, WEIGHTS = "inputs.npz", "expected.npz", "weights.safetensors"


class Way(StrEnum):
    """How a script gets a model to run."""

    TORCH = "torch"
    OPENVINO_CONVERT = "openvino-convert"
    OPENVINO_GRAPH = "openvino-graph"
    ONNX_EXPORT = "onnx-export"
    QNN_GRAPH = "qnn-graph"

    @property
    def has_graph(self) -> bool:
        """Whether the model is a file that was exported, instead of a class with weights."""
        return self in (Way.OPENVINO_GRAPH, Way.QNN_GRAPH)


class Does(StrEnum):
    """What is asked of the model."""

    BUILD = "build"
    FORWARD = "forward"
    GRADIENTS = "gradients"
    GENERATE = "generate"
    RELOAD = "reload"


class Shape(StrEnum):
    """What a failure looks like from outside."""

    RAISED = "raised"
    NUMBERS = "numbers"
    CRASHED = "crashed"
    TIMEOUT = "timeout"


@dataclass(frozen=True, kw_only=True)
class FailedStep:
    """The last thing that was tried: `does` by `way`, on `device` of the runtime, with its `options`.

    `graph` is the name of the file that was run, `facts` are details of the way: the arguments of a generation, a
    session's settings, whether the forward pass takes `use_cache`.
    """

    way: Way
    does: Does
    device: str = ""
    precision: str = "float32"
    graph: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CapturedFailure:
    """A failure as it was seen in a child. `exception` and `message` are the innermost cause's.

    `error` is the largest difference relative to the scale of the output `worst`, held against `tolerance`; None
    where nothing was compared. `refused` says why no script can show it. `seconds` is how long a check took, or was
    given. `signal` ended the child, or 0. `left` are the operators that a provider leaves to the host, where it told.
    """

    check: str
    shape: Shape
    stage: str = ""
    step: FailedStep | None = None
    exception: str = ""
    message: str = ""
    error: float | None = None
    tolerance: float | None = None
    worst: str = ""
    refused: str = ""
    signal: int = 0
    seconds: float = 0.0
    computed_in: str = ""
    left: str = ""

    def write(self, folder: Path) -> None:
        """Leave it in a folder, as JSON of Python's, which knows infinity."""
        (folder / ANSWER).write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> CapturedFailure:
        """What `write` left there."""
        values = json.loads((folder / ANSWER).read_text(encoding="utf-8"))
        if step := values["step"]:
            values["step"] = FailedStep(**{**step, "way": Way(step["way"]), "does": Does(step["does"])})
        return cls(**{**values, "shape": Shape(values["shape"])})
