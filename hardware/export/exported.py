"""What an export is: a folder, the way it was made, and what has to be said with it."""

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
"""The way whose export a class of that library opens; every other is a bare graph."""

RESULT = "result."
"""What the nodes of a traced graph's outputs are called, before the output's name."""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """A folder with `openvino_model.xml` or `model.onnx`, or the several models of a way that splits, and how it was
    made.

    `method` is `optimum-intel`, `convert_model` or `torchscript`; `onnx` or `torch.export` where a remedy is tried.
    `why_not_exporter` says why the first wasn't used.
    `exporter_limit` is the newest version of transformers that the exporter allows, where it had to be told to go
    beyond it. With `static` the model is right for the shapes of its example only: tracing froze loops over the
    length. Inputs that are `held` (names with commas between) are constants in it, so that it is right for their
    values only. `decodes` says whether the model decodes with a cache; `why_no_cache` why one that could doesn't, and
    `no_cache_error` the error type of that.
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
        """Everything but the folder, as plain JSON values."""
        return {name: value for name, value in asdict(self).items() if name != "folder"}

    def conditions(self) -> dict[str, str]:
        """What evidence has to say of this export."""
        said = {"export": self.method}
        for name in ("why_not_exporter", "exporter_limit", "held", "why_no_cache"):
            if text := getattr(self, name):
                said[name] = text
        if self.static:
            said["shapes"] = "static"  # exported anew for each shape
        return said


class Opened(Protocol):
    """An export that can be run: a function from arrays to outputs, and greedy decoding where it decodes."""

    def __call__(self, inputs: Mapping[str, Any], /) -> dict[str, Any]: ...

    def generate(self, inputs: Inputs, *, steps: int) -> Generation: ...


Opener = Callable[[Exported], Opened]
"""Opens an export on the runtime's own CPU in float32."""
