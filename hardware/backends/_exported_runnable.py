"""A model, or a user's file, as ONNX files that a worker runs, one for each shape, with the runtime's report of where
each node ran."""

from __future__ import annotations

import logging
import shutil
import tempfile
import weakref
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..export.exported import ONNX
from ..export.onnx_decoding_graphs import is_dynamic, with_sizes
from ..export.onnx_export import can_load, export_onnx, with_positions
from ..export.verify_export import made_for
from ..model.outputs import numbers_of
from ._worker_backend import Shapes, shapes_of
from .base import Execution, FileInput, ModelInput, Runnable

if TYPE_CHECKING:
    from ..export.exported import Exported
    from .base import Array, Inputs


log = logging.getLogger(__name__)


class ExportedRunnable(Runnable):
    """Base of such runnables. Every pass reports where its nodes ran."""

    unseen: str
    """Parts of a pass that the runtime doesn't report."""

    def __init__(self, backend: Any, model_input: ModelInput | FileInput, example: Inputs, precision: str) -> None:
        self.backend, self.model_input, self.precision = backend, model_input, precision
        self.example = dict(example)
        self.folder = Path(tempfile.mkdtemp(prefix="hwcompat-onnx-"))
        self._clean = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.files: dict[object, Path] = {}
        self.of_numbers = False
        self.conditions: Mapping[str, str] = {"optimisation": "O0", **backend.facts()}
        self.proofs: dict[Shapes, Mapping[str, Any]] = {}
        """Report of the session that ran, by shapes."""

    @abstractmethod
    def prepared(self, file: Path, inputs: Inputs) -> Path:
        """Return the file to run in this precision, for the float32 export."""

    def exported(self, model_input: ModelInput, inputs: Inputs) -> Exported:
        """Return the export of a model for these inputs."""
        return export_onnx(model_input, inputs)

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
        source = self.model_input
        got, proof = self.compute(file, inputs if isinstance(source, FileInput) else with_positions(source, inputs))
        self.proofs[shapes_of(inputs)] = proof
        return got

    def compute(self, file: Path, arrays: Inputs) -> tuple[dict[str, Array], Mapping[str, Any]]:
        """Run a pass in the worker. A model's whole numbers are left out, a file's aren't."""
        if isinstance(self.model_input, FileInput):
            got, proof = self.backend.run_file(file, arrays, **self.options())
            return numbers_of(got), proof
        found: tuple[dict[str, Array], Mapping[str, Any]] = self.backend.compute(file, arrays, **self.options())
        return found

    def options(self) -> dict[str, str]:
        """Return further arguments of a pass for the worker."""
        return {}

    def file_for(self, inputs: Inputs) -> Path:
        """Return the file for these shapes, and for numbers that an export says are constants in it, made on first
        use: exported, or the user's with these sizes."""
        source = self.model_input
        key = made_for(inputs) if self.of_numbers else shapes_of(inputs)
        if key not in self.files:
            if isinstance(source, FileInput):
                made = of_sizes(source.file, dict(shapes_of(inputs)), self.folder)
                fixed = {"shapes": "static"} if made != source.file and is_dynamic(source.file) else {}
                conditions: Mapping[str, str] = {**self.backend.coarse_in(source.file), **fixed}
            else:
                exported = self.exported(source, inputs)
                made, conditions = exported.folder / ONNX, self.conditions_of(exported)
                if exported.held and not self.of_numbers:
                    self.of_numbers, key = True, made_for(inputs)
            self.conditions = {**self.conditions, **conditions}
            self.files[key] = self.prepared(made, inputs)
        return self.files[key]


def of_sizes(file: Path, shapes: Mapping[str, tuple[int, ...]], folder: Path) -> Path:
    """Return a user's file for these shapes only, or as it is if its graph isn't valid with them: a branch that isn't
    taken may be for others."""
    try:
        fixed = with_sizes(file, shapes, folder)
        can_load(fixed)
        return fixed
    except Exception as error:  # onnxruntime has an error class for each of its statuses
        log.debug("%s with fixed sizes: %s", file.name, error)
        return file
