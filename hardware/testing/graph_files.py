"""The parts of a suite of a graph file: the file, found by its hash, and a `ModelTest` that evaluates it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from ..backends.base import FileInput, Runnable
from ..cell import Cell
from ..compare import Array
from ..errors import BrokenInput, ModelMissing, echo
from ..evidence.record import Stage
from ..output_masks import masks_of
from ..safe_read import is_folder
from .checkpoints import CHECKPOINTS_VARIABLE, places_of
from .graph_reference import GraphReference, OnnxReference
from .graph_weights import graph_hash
from .measurement import Outputs
from .model_test import ModelTest


def graph_file(cell: str, revision: str, *, suite: str = "", folder: str = "") -> Path:
    """Return the graph file with the hash `revision` in one of the folders `places_of`.

    Raises `ModelMissing` if there is none.
    """
    folders = places_of(suite, folder)
    for place in filter(is_folder, folders):
        for file in sorted([*place.glob("*.onnx"), *place.glob("*.xml")]):
            if _has_hash(file, revision):
                return file
    raise ModelMissing(
        f"the graph file of {echo(Cell.parse(cell).model)} wasn't found",
        why=f"no file in {len(folders)} folder(s) has the expected hash",
        fix=f"Set {CHECKPOINTS_VARIABLE} to its folder, or generate the suite again if the file changed.",
    )


def _has_hash(file: Path, revision: str) -> bool:
    try:
        return graph_hash(file) == revision
    except (BrokenInput, OSError):  # another file in the folder
        return False
    except Exception as error:  # protobuf has its own error class for invalid files
        if type(error).__name__ != "DecodeError":
            raise
        return False


def open_reference(file: Path) -> GraphReference:
    """Return the evaluator for a file.

    Raises `ModelError` if its package isn't installed or the file has an operator without an evaluator; `BrokenInput`
    if the file can't be read.
    """
    if file.suffix.lower() == ".xml":
        from .openvino_reference import OpenVINOReference

        return OpenVINOReference(file)
    return OnnxReference(file)


class GraphTest(ModelTest):
    """A `ModelTest` of a graph file with the same calls; `make_model` returns the file's path.

    The reference is an evaluator that shares no code with the runtime under test (`graph_reference.py`).
    """

    def parameter_count(self) -> int:
        """Return the number of values in the file's floating-point constants."""
        return self._evaluator.parameters

    @cached_property
    def _file(self) -> Path:
        file: Any = self.make_model()
        return Path(file)

    @cached_property
    def _evaluator(self) -> GraphReference:
        return open_reference(self._file)

    def _load(self) -> Runnable:
        with self._at(Stage.LOAD):
            return self.backend.load_file(FileInput(file=self._file), self.inputs, self.cell.precision)

    def reference(self, inputs: Mapping[str, Array]) -> Outputs:
        """Return the outputs of the evaluator."""
        return Outputs(arrays=self._evaluator(inputs), masks=masks_of(self.masked_by, inputs), inputs=inputs)

    def _conditions(self, loaded: Runnable | None) -> dict[str, str]:
        said = self._evaluator.said
        return super()._conditions(loaded) | ({"reference": said} if said else {})
