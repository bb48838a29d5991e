"""The captured failure of a check: the failed step, the comparison, and the exception; plain data, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from hwcompat.hardware.plain_values import from_values

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
    ONNX_FILE = "onnx-file"
    WEB_FILE = "web-file"

    @property
    def has_graph(self) -> bool:
        """Whether the model is an exported file, instead of a class with weights."""
        return self in (Way.OPENVINO_GRAPH, Way.QNN_GRAPH, Way.ONNX_FILE, Way.WEB_FILE)


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

    `graph` is the name of the file that ran, and `weights` those of its weights; `facts` are details of the way: the
    arguments of a generation, a session's settings, whether the forward pass takes `use_cache`.
    """

    way: Way
    does: Does
    device: str = ""
    precision: str = "float32"
    graph: str = ""
    weights: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CapturedFailure:
    """A failure as it was recorded in a child. `exception` and `message` are the innermost cause's.

    `error` is the largest difference relative to the scale of the output `worst`, compared with `tolerance`; None
    without a comparison. `scales` are the outputs' scales where they aren't those of the expected numbers, and
    `parts` are slices with a scale of their own: output, axis, first and last index. `refused` says why
    no script can show it. `seconds` is the duration of a check, or its time limit. `signal` ended the child, or 0.
    `left` are operators that a provider leaves to the host, if reported.
    """

    check: str
    shape: Shape
    stage: str = ""
    step: FailedStep | None = None
    exception: str = ""
    message: str = ""
    error: float | None = None
    scales: Mapping[str, float] = field(default_factory=dict)
    parts: Mapping[str, Sequence[Any]] = field(default_factory=dict)
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
        return from_values(cls, json.loads((folder / ANSWER).read_text(encoding="utf-8")))
