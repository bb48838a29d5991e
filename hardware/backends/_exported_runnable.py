"""A model as ONNX files that a worker runs, one for each shape, with the runtime's report of where each node ran."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..export.exported import ONNX
from ..export.onnx_export import export_onnx, with_positions
from ._worker_backend import Shapes, shapes_of
from .base import Execution, ModelInput, Runnable

if TYPE_CHECKING:
    from ..export.exported import Exported
    from .base import Array, Inputs


class ExportedRunnable(Runnable):
    """Base of such runnables. Every pass reports where its nodes ran."""

    unseen: str
    """Parts of a pass that the runtime doesn't report."""

    def __init__(self, backend: Any, model_input: ModelInput, example: Inputs, precision: str) -> None:
        self.backend, self.model_input, self.precision = backend, model_input, precision
        self.example = dict(example)
        self.folder = Path(tempfile.mkdtemp(prefix="hwcompat-onnx-"))
        self._clean = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.files: dict[Shapes, Path] = {}
        self.conditions: Mapping[str, str] = {"optimisation": "O0", **backend.facts()}
        self.proofs: dict[Shapes, Mapping[str, Any]] = {}
        """Report of the session that ran, by shapes."""

    @abstractmethod
    def prepared(self, file: Path, inputs: Inputs) -> Path:
        """Return the file to run in this precision, for the float32 export."""

    def conditions_of(self, exported: Exported) -> Mapping[str, str]:
        """Return the conditions that evidence states of an export on this target."""
        return exported.conditions()

    @abstractmethod
    def placed(self, inputs: Inputs) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """Return the operators of the last pass of these shapes, on the target and on the host."""

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        return self.pass_of(inputs)

    def execution(self) -> Execution:
        """Return where the nodes of the session that runs the example are."""
        self.pass_of(self.example)
        native, offloaded = self.placed(self.example)
        return Execution(
            native=native,
            offloaded=offloaded,
            dtype=self.actual_dtype,
            device=self.backend.device,
            unseen=self.unseen,
            host_allowed=self.backend.HOST_ALLOWED,
        )

    def prepare(self, inputs: Inputs) -> None:
        self.file_for(inputs)

    def watched(self, inputs: Inputs) -> tuple[dict[str, Array], Mapping[str, int]]:
        """Run a pass: every session reports where it put each node."""
        return self(**inputs), self.placed(inputs)[1]

    def close(self) -> None:
        self._clean()

    def pass_of(self, inputs: Inputs) -> dict[str, Array]:
        """Run, and keep the proof."""
        file = self.file_for(inputs)
        got, proof = self.compute(file, with_positions(self.model_input, inputs))
        self.proofs[shapes_of(inputs)] = proof
        return got

    def compute(self, file: Path, arrays: Inputs) -> tuple[dict[str, Array], Mapping[str, Any]]:
        """Run a pass in the worker."""
        found: tuple[dict[str, Array], Mapping[str, Any]] = self.backend.compute(file, arrays)
        return found

    def file_for(self, inputs: Inputs) -> Path:
        """Return the file for these shapes, exported on first use."""
        shapes = shapes_of(inputs)
        if shapes not in self.files:
            exported = export_onnx(self.model_input, inputs)
            self.conditions = {**self.conditions, **self.conditions_of(exported)}
            self.files[shapes] = self.prepared(exported.folder / ONNX, inputs)
        return self.files[shapes]
