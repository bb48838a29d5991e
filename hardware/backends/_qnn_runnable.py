"""A model as ONNX files that QNN's worker runs, one for each shape."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..evidence.record import Stage
from ..export.exported import ONNX
from ..export.onnx import export_onnx, with_positions
from ._in_worker import Shapes, shapes_of, write_arrays
from .base import Execution, ModelSubject, Runnable
from .qnn import PROVIDER

if TYPE_CHECKING:
    from .base import Array, Inputs
    from .qnn import QNNBackend

CALIBRATIONS = 16
"""Inputs whose ranges a quantised model is made for."""

UNSEEN = "what QNN does inside one graph, which it compiles as a whole"


class QNNRunnable(Runnable):
    """One ONNX file for each shape, run in the worker."""

    can = frozenset({"save"})

    def __init__(
        self, backend: QNNBackend, subject: ModelSubject, example: Inputs, precision: str, file: Path | None = None
    ) -> None:
        self.backend, self.subject, self.precision = backend, subject, precision
        self.example = dict(example)
        self._folder = Path(tempfile.mkdtemp(prefix="hwcompat-qnn-"))
        self._clean = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._files: dict[Shapes, Path] = {}
        self.conditions: Mapping[str, str] = {"optimisation": "O0", **backend.facts()}
        if file is not None:
            self._files[shapes_of(example)] = file
        self.actual_dtype = "int8" if precision == "int8" else backend.arithmetic()
        self._assigned: dict[Shapes, Mapping[str, Mapping[str, int]]] = {}
        """By shapes, the operators that each provider was given in the session that ran."""
        self._run(self.example)

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        return self._run(inputs)

    def execution(self) -> Execution:
        """Where ONNX Runtime put each node of the session that runs the example."""
        self._run(self.example)
        native = self._assigned[shapes_of(self.example)].get(PROVIDER, {})
        return Execution(
            native={f"onnx.{name}": count for name, count in native.items()},
            offloaded=self.left_to_host(self.example),
            dtype=self.actual_dtype,
            device=self.backend.device,
            unseen=UNSEEN,
            host_allowed=self.backend.HOST_ALLOWED,
        )

    def left_to_host(self, inputs: Inputs) -> Mapping[str, int]:
        """Every session that runs tells where it put each node."""
        if shapes_of(inputs) not in self._assigned:
            self._run(inputs)
        found: Counter[str] = Counter()
        for provider, counts in self._assigned[shapes_of(inputs)].items():
            if provider != PROVIDER:
                found.update({f"onnx.{name}": n for name, n in counts.items()})
        return found

    def save_and_reload(self, folder: Path) -> Runnable:
        """QNN's context binary, compiled ahead of time, in a session of its own."""
        context = folder / "context.onnx"
        file = self._file(self.example)
        self.backend.ask(
            "precompile", stage=Stage.COMPILE, model=str(file.absolute()), context=str(context.absolute())
        )
        return type(self)(self.backend, self.subject, self.example, self.precision, context)

    def close(self) -> None:
        self._clean()

    def _run(self, inputs: Inputs) -> dict[str, Array]:
        file = self._file(inputs)
        got, proof = self.backend.compute(file, with_positions(self.subject, inputs))
        self._assigned[shapes_of(inputs)] = proof["assigned"]
        return got

    def _file(self, inputs: Inputs) -> Path:
        shapes = shapes_of(inputs)
        if shapes not in self._files:
            exported = export_onnx(self.subject, inputs)
            self.conditions = {**self.conditions, **exported.conditions()}
            file = exported.folder / ONNX
            self._files[shapes] = self._quantised(file, inputs) if self.precision == "int8" else file
        return self._files[shapes]

    def _quantised(self, file: Path, inputs: Inputs) -> Path:
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        quantised = folder / ONNX
        files = [folder / f"{number}.npz" for number in range(CALIBRATIONS)]
        for number, arrays in enumerate(files):
            write_arrays(arrays, _drawn(with_positions(self.subject, inputs), number))
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
    """Inputs to calibrate with: the example first, then its numbers mixed, and up to a half larger.

    Whole numbers that are more than a mask are drawn anew: what they mean together is lost, their ranges aren't.
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
