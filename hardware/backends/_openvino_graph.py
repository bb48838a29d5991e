"""Runs `.onnx` and `.xml` files on an OpenVINO device as they are, without an export."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..evidence.record import Stage
from ._openvino_calls import OPENVINO_OPTIONS
from ._openvino_runnable import OpenVINORunnable
from .base import FileSubject, Runnable, Unsupported

if TYPE_CHECKING:
    from .base import Array, Inputs


class _OpenedGraph:
    """A graph file compiled on a device."""

    generates = False

    def __init__(self, file: Path, device: str, options: Mapping[str, str]) -> None:
        import openvino

        core = openvino.Core()
        try:
            self.model: Any = core.read_model(str(file))
            self.compiled = [core.compile_model(self.model, device, dict(options))]
        except RuntimeError as error:
            raise Unsupported(
                f"OpenVINO doesn't compile {file.name} for {device}: {str(error)[:2000]}",
                error_type="unknown",
                stage=Stage.COMPILE,
            ) from error

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        result = self.compiled[0]({name: np.ascontiguousarray(value) for name, value in inputs.items()})
        found = {
            port.get_any_name() if port.get_names() else f"output_{number}": np.asarray(value)
            for number, (port, value) in enumerate(result.items())
        }
        return {name: value.astype(np.float64) for name, value in found.items() if value.dtype.kind == "f"}

    def save(self, folder: Path) -> None:
        import openvino

        openvino.save_model(self.model, folder / "openvino_model.xml", compress_to_fp16=False)


def _of_file(precision: str, device: str) -> str:
    """The precision to ask a device for: float32 for a float16 file where it has no float16, since the CPU plug-in
    would compute in bfloat16, which holds fewer digits than the file."""
    import openvino

    if precision != "float16" or "FP16" in openvino.Core().get_property(device, "OPTIMIZATION_CAPABILITIES"):
        return precision
    return "float32"


class OpenVINOGraph(OpenVINORunnable):
    """A graph file on OpenVINO; where it ran is read off the compiled graph as for any model."""

    can = frozenset({"save"})

    def __init__(self, backend: Any, subject: FileSubject, example: Inputs, precision: str) -> None:
        self.backend = backend
        self.file = subject.file
        self.example = dict(example)
        self.precision = precision
        self.opened: Any = _OpenedGraph(
            self.file, backend.device, OPENVINO_OPTIONS[_of_file(precision, backend.device)]
        )
        self._by_shape = {}
        self.conditions = {"runtime": "openvino", "optimisation": "O0"}
        self.actual_dtype = self.execution().dtype

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        return dict(self.opened(inputs))

    def save_and_reload(self, folder: Path) -> Runnable:
        self.opened.save(folder)
        again = FileSubject(file=folder / "openvino_model.xml")
        return type(self)(self.backend, again, self.example, self.precision)
