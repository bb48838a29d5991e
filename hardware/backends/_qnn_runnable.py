"""A model as ONNX files that QNN's worker runs, one for each shape."""

from __future__ import annotations

import logging
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..compare import compare
from ..evidence.record import Stage
from ..export.exported import ONNX
from ..export.graph_rewrites import rewrite
from ..export.onnx_export import OnnxModel, export_onnx, with_positions
from ..export.verify_export import held_inputs
from ._exported_runnable import ExportedRunnable
from ._worker_backend import shapes_of, write_arrays
from .base import FileInput, ModelInput, Runnable, Unsupported

if TYPE_CHECKING:
    from ..export.exported import Exported
    from .base import Array, Inputs

log = logging.getLogger(__name__)

CALIBRATIONS = 16
"""Number of inputs whose ranges calibrate a quantized model."""

REWRITTEN = "rewritten"
"""The condition that states which operators were replaced by others."""

_OF_THE_ROUTE = ("unsupported_operator", "export_failed", "conversion_wrong")
"""Error types that another route may not have."""

_OF_ROUTES = (REWRITTEN, "held", "export", "why_not_exporter")

_SAME = 1e-5
"""How far the CPU's numbers of a rewritten graph may be off: sums of a product may be in another order."""


class QNNRunnable(ExportedRunnable):
    """One ONNX file for each shape, strictly on the HTP."""

    can = frozenset({"save"})
    unseen = "computation inside a graph, which QNN compiles as a whole"

    def __init__(
        self,
        backend: Any,
        model_input: ModelInput | FileInput,
        example: Inputs,
        precision: str,
        file: Path | None = None,
    ) -> None:
        super().__init__(backend, model_input, example, precision)
        self._rewrites = self._holds = False
        self._tries_others = file is None and not isinstance(model_input, FileInput)
        if file is not None:
            self.files[shapes_of(example)] = file
        self.actual_dtype = "int8" if precision == "int8" else backend.arithmetic()
        self.pass_of(self.example)

    def pass_of(self, inputs: Inputs) -> dict[str, Array]:
        """Run, and keep the proof. If QNN refuses operators of an exported graph, run it without those that can be
        replaced by others (`graph_rewrites.py`), then with numbers such as sizes of images as constants."""
        try:
            return super().pass_of(inputs)
        except Unsupported as error:
            refused = error
        for rewrites, holds in self._other_routes(inputs, refused):
            before = self._rewrites, self._holds, self.files, self.conditions, self.of_numbers
            self._rewrites, self._holds, self.files = rewrites, holds, {}
            self.conditions = {name: text for name, text in self.conditions.items() if name not in _OF_ROUTES}
            try:
                self.file_for(inputs)
                if holds or REWRITTEN in self.conditions:
                    return super().pass_of(inputs)
            except Unsupported as error:
                refused = error if error.stage is Stage.COMPILE else refused
            self._rewrites, self._holds, self.files, self.conditions, self.of_numbers = before
        raise refused

    def _other_routes(self, inputs: Inputs, refused: Unsupported) -> list[tuple[bool, bool]]:
        """Return the routes that are left: whether the graph is rewritten, and whether numbers are held."""
        if not self._tries_others or refused.error_type not in _OF_THE_ROUTE:
            return []
        rewritten = [(True, False)] if not self._rewrites and refused.stage is Stage.COMPILE else []
        return [*rewritten, *([(True, True)] if not self._holds and held_inputs(inputs) else [])]

    def exported(self, model_input: ModelInput, inputs: Inputs) -> Exported:
        return export_onnx(model_input, inputs, hold=self._holds)

    def _rewritten(self, model_input: ModelInput, file: Path, inputs: Inputs) -> Path:
        """Return a file's graph without the operators that can be replaced by others; the file itself if it has none,
        or if the CPU's numbers of the rewritten graph differ."""
        made = Path(tempfile.mkdtemp(dir=self.folder)) / ONNX
        try:
            replaced = rewrite(file, made)
            if not replaced:
                return file
            plain, other = (OnnxModel(one, model_input)(inputs) for one in (file, made))
            difference = compare(other, plain)
        except Exception as error:  # of onnx and of ONNX Runtime, for graphs that the rewriting doesn't understand
            log.warning("the graph can't be rewritten: %s", error)
            return file
        if not difference.max_rel_error <= _SAME:
            log.warning("the rewritten graph gives other numbers on the CPU: %s", difference)
            return file
        counts = ", ".join(f"{name} ({number})" for name, number in sorted(replaced.items()))
        self.conditions = {**self.conditions, REWRITTEN: counts}
        return made

    def placed(self, inputs: Inputs) -> tuple[Mapping[str, int], Mapping[str, int]]:
        assigned: Mapping[str, Mapping[str, int]] = self.proofs[shapes_of(inputs)]["assigned"]
        found = {True: Counter[str](), False: Counter[str]()}
        for provider, counts in assigned.items():
            found[provider == self.backend.PROVIDER].update({f"onnx.{name}": n for name, n in counts.items()})
        return dict(found[True]), dict(found[False])

    def save_and_reload(self, folder: Path) -> Runnable:
        """Save QNN's context binary, compiled ahead of time, and load it in a separate session."""
        context = folder / "context.onnx"
        file = self.file_for(self.example)
        self.backend.ask(
            "precompile", stage=Stage.COMPILE, model=str(file.absolute()), context=str(context.absolute())
        )
        return type(self)(self.backend, self.model_input, self.example, self.precision, context)

    def prepared(self, file: Path, inputs: Inputs) -> Path:
        """Return the file, quantized for int8 by measured ranges; QNN converts float32 to float16 itself."""
        if self._rewrites and isinstance(self.model_input, ModelInput):
            file = self._rewritten(self.model_input, file, inputs)
        if self.precision != "int8" or isinstance(self.model_input, FileInput):
            return file
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        quantised = folder / ONNX
        files = [folder / f"{number}.npz" for number in range(CALIBRATIONS)]
        for number, arrays in enumerate(files):
            write_arrays(arrays, _drawn(with_positions(self.model_input, inputs), number))
        names = [str(one) for one in files]
        self.backend.call(
            "quantise", stage=Stage.CONVERT, model=str(file.absolute()), inputs=names, quantised=str(quantised)
        )
        self.conditions = {
            **self.conditions,
            "quantised": "activations in 16 bits, weights in 8, by their ranges here",
        }
        return quantised


def _drawn(arrays: Inputs, number: int) -> dict[str, Array]:
    """Return inputs for calibration: first the example, then its numbers shuffled and up to half larger.

    Integers that are more than a mask are drawn anew: their joint meaning is lost, their ranges aren't.
    """
    if not number:
        return dict(arrays)
    random = np.random.default_rng(number)
    found: dict[str, Array] = {}
    for name, array in arrays.items():
        if array.dtype.kind == "f":
            mixed = random.permutation(array.ravel()).reshape(array.shape)
            found[name] = (mixed * random.uniform(1, 1.5)).astype(array.dtype)
        elif array.dtype.kind in "iu" and array.max(initial=0) > 2:
            found[name] = random.integers(array.min(), array.max() + 1, array.shape).astype(array.dtype)
        else:
            found[name] = array
    return found
