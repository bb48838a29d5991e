"""The captured failure of a check: the failed step, the comparison, and the exception; plain data, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

MASK = "mask:"
"""The prefix of the names of masks, beside the outputs that they belong to."""

ANSWER = "captured.json"
INPUTS, EXPECTED, WEIGHTS = "inputs.npz", "expected.npz", "weights.safetensors"


class Way(StrEnum):
    """How a script runs a model."""

    TORCH = "torch"
    OPENVINO_CONVERT = "openvino-convert"
    OPENVINO_GRAPH = "openvino-graph"
    ONNX_EXPORT = "onnx-export"
    QNN_GRAPH = "qnn-graph"

    @property
    def has_graph(self) -> bool:
        """Whether the model is an exported file, instead of a class with weights."""
        return self in (Way.OPENVINO_GRAPH, Way.QNN_GRAPH)


class Does(StrEnum):
    """What the model computes."""

    BUILD = "build"
    FORWARD = "forward"
    GRADIENTS = "gradients"
    GENERATE = "generate"
    RELOAD = "reload"


class Shape(StrEnum):
    """The visible kind of a failure."""

    RAISED = "raised"
    NUMBERS = "numbers"
    CRASHED = "crashed"
    TIMEOUT = "timeout"


@dataclass(frozen=True, kw_only=True)
class FailedStep:
    """The last step that was tried: `does` by `way`, on `device` of the runtime, with its `options`.

    `graph` is the name of the file that ran, `facts` are details of the way: the arguments of a generation, a
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
    """A failure as it was recorded in a child. `exception` and `message` are the innermost cause's.

    `error` is the largest difference relative to the scale of the output `worst`, compared with `tolerance`; None
    without a comparison. `refused` says why no script can show it. `seconds` is the duration of a check, or its time
    limit. `signal` ended the child, or 0. `left` are operators that a provider leaves to the host, if reported.
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
        """Write it into a folder, as JSON of Python's, which has infinity."""
        (folder / ANSWER).write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> CapturedFailure:
        """Read what `write` wrote."""
        values = json.loads((folder / ANSWER).read_text(encoding="utf-8"))
        if step := values["step"]:
            values["step"] = FailedStep(**{**step, "way": Way(step["way"]), "does": Does(step["does"])})
        return cls(**{**values, "shape": Shape(values["shape"])})
