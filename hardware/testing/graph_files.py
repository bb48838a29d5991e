"""The parts of a suite of a graph file: the file, found by its hash, and a `ModelTest` that evaluates it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ..backends.base import FileInput, Runnable
from ..backends.factory import refuse_unread
from ..cell import Cell
from ..compare import Array
from ..errors import BrokenInput, ModelMissing, echo
from ..evidence.record import Stage
from ..file_formats import format_name, graph_suffixes
from ..model.model_types import Unsupported
from ..output_masks import masks_of
from ..safe_read import is_folder
from .checkpoints import CHECKPOINTS_VARIABLE, places_of
from .given_test import GivenTest
from .graph_reference import GraphReference, OnnxReference
from .graph_weights import graph_hash
from .measurement import Ambiguous, Outputs


def graph_file(cell: str, revision: str, *, suite: str = "", folder: str = "") -> Path:
    """Return the graph file with the hash `revision` in one of the folders `places_of`.

    Raises `ModelMissing` if there is none.
    """
    folders = places_of(suite, folder)
    for place in filter(is_folder, folders):
        for file in sorted(one for one in place.glob("*.*") if one.name.lower().endswith(graph_suffixes())):
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
    name = format_name(file)
    if name in ("ir", "tflite"):
        from .openvino_reference import LiteReference, OpenVINOReference

        return (LiteReference if name == "tflite" else OpenVINOReference)(file)
    if name in ("torchscript", "exported"):
        from .program_reference import ProgramReference

        return ProgramReference(file)
    return OnnxReference(file)


_STEPS = 4
_INVALID = "INVALID_GRAPH"
"""ONNX Runtime's word for a graph that isn't valid."""


class GraphTest(GivenTest):
    """A `GivenTest` of a graph file; `make_model` returns the file's path.

    The reference is the most exact of several implementations that agree (`graph_ladder.py`).
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
        found = open_reference(self._file)
        found.scales, found.parts = self._scales, self.parts
        return found

    def _load(self) -> Runnable:
        with self._at(Stage.LOAD):
            refuse_unread(self.backend, self._file)
            return self.backend.load_file(FileInput(file=self._file), self.inputs, self.cell.precision)

    def reference(self, inputs: Mapping[str, Array]) -> Outputs:
        """Return the outputs of the evaluator."""
        masks = masks_of(self.masked_by, inputs)
        return Outputs(arrays=self._evaluator(inputs), masks=masks, inputs=inputs, scales=self._judged_scales)

    def save_and_reload(self, folder: Path, inputs: Mapping[str, Array]) -> Outputs:
        """Return the outputs after the runtime wrote the graph and loaded it again.

        If what it writes breaks ONNX's rules, which the file itself doesn't, the file is loaded anew instead, and a
        condition says so.
        """
        try:
            return super().save_and_reload(folder, inputs)
        except Unsupported as error:
            if _INVALID not in str(error):
                raise
            self._stated["not_saved"] = _INVALID
        again = self._load()
        try:
            return self._run(again, inputs)
        finally:
            again.close()

    def error(self, got: Outputs, want: Outputs) -> float:
        """Return the error as for any given model. Raises `Ambiguous` also if rounding moves all outputs as far as
        faults do and the reference is one implementation alone, which may be the target's own."""
        found = super().error(got, want)
        if self._are_all_sensitive and self._evaluator.is_alone:
            cost = max(self._costs.values())
            raise Ambiguous(
                f"{self.measured.comparison}: too sensitive to judge on these inputs, because float32 alone changes "
                f"the outputs by {cost:.1e} of their spread and no other implementation confirms the reference"
            )
        return found

    def fed_back_error(self, make_inputs: Callable[..., Mapping[str, Array]], states: Mapping[str, str]) -> float:
        """Return the largest error over several steps in which inputs get outputs of the step before: those of the
        target itself, and in the reference its own. `states` names the output by the input. Errors add up, so that of
        each step is divided by the number of steps. Steps end at inputs of another shape than the state's."""
        errors: list[float] = []
        of_target: dict[str, Array] = {}
        of_reference: dict[str, Array] = {}
        for step in range(_STEPS):
            inputs = make_inputs(seed=step)
            if any(inputs[name].shape != one.shape for name, one in of_target.items()):
                break
            got, want = self.run({**inputs, **of_target}), self.reference({**inputs, **of_reference})
            errors.append(self._shared_error(got, want, steps=step + 1))
            kinds = {name: inputs[name].dtype for name in states}
            of_target = {name: got.arrays[output].astype(kinds[name]) for name, output in states.items()}
            of_reference = {name: want.arrays[output].astype(kinds[name]) for name, output in states.items()}
        return max(errors)

    def _shared_error(self, got: Outputs, want: Outputs, *, steps: int) -> float:
        """Return the error divided by the steps that it has added up over, and keep it; the whole if it is too large
        even so."""
        found = got.furthest(lambda arrays: self._compare(arrays, want))[0]
        if not found.max_rel_error <= steps * self.tolerance:
            return self.error(got, want)
        share = replace(found, max_rel_error=found.max_rel_error / steps, max_abs_error=found.max_abs_error / steps)
        return self.measured.keep(share)

    def _conditions(self, loaded: Runnable | None) -> dict[str, str]:
        said, method = self._evaluator.said, self._evaluator.method
        found = {"reference": said} if said else {"reference_method": method} if method else {}
        return {**super()._conditions(loaded), **found}
