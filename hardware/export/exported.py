"""Exports: a folder, how it was made, and the conditions that evidence states of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ..model.model_types import Generation, Inputs

FORWARD = "openvino_model.xml"
ENCODER = "openvino_prompt_encoder_model.xml"
PROMPT = "openvino_prompt_model.xml"
STEP = "openvino_step_model.xml"
ONNX = "model.onnx"
EXPORTER = "optimum-intel"
"""The way whose export is opened by a class of that library; every other is a bare graph."""

RESULT = "result."
"""Prefix of the names of output nodes of a traced graph."""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """A folder with `openvino_model.xml`, `model.onnx`, or several models of a way that splits, and how it was made.

    `method` is `optimum-intel`, `convert_model`, `torchscript` or `dynamo`; `onnx` or `torch.export` if a fix is
    tried. `why_not_exporter` says why the first wasn't used. `exporter_limit` is the newest version of transformers
    that the exporter allows, if the export is beyond it. With `static` the model is right only for the shapes of its
    example: tracing froze loops over the length. Inputs that are `held` (comma-separated names) are constants in it,
    so that it is right only for their values. `decodes` says whether the model decodes with a cache; `why_no_cache`
    why one that could doesn't, and `no_cache_error` the error type of that.
    """

    folder: Path
    method: str
    why_not_exporter: str = ""
    exporter_limit: str = ""
    static: bool = False
    held: str = ""
    decodes: bool = False
    why_no_cache: str = ""
    no_cache_error: str = ""

    def facts(self) -> dict[str, Any]:
        """Return all fields but the folder, as plain JSON values."""
        return {name: value for name, value in asdict(self).items() if name != "folder"}

    def conditions(self) -> dict[str, str]:
        """Return the conditions that evidence states of this export."""
        found = {"export": self.method}
        for name in ("why_not_exporter", "exporter_limit", "held", "why_no_cache"):
            if text := getattr(self, name):
                found[name] = text
        if self.static:
            found["shapes"] = "static"  # exported anew for each shape
        return found


class Opened(Protocol):
    """An export that can be run: a function from arrays to outputs, and greedy decoding if it decodes."""

    def __call__(self, inputs: Mapping[str, Any], /) -> dict[str, Any]: ...

    def generate(self, inputs: Inputs, *, steps: int) -> Generation: ...


Opener = Callable[[Exported], Opened]
"""Function that opens an export on the runtime's own CPU in float32."""
