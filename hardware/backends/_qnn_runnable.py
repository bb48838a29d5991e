"""A model as ONNX files that QNN's worker runs, one for each shape."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..evidence.record import Stage
from ..export.exported import ONNX
from ..export.onnx import with_positions
from ._exported_runnable import CALIBRATIONS, ExportedRunnable, drawn
from ._in_worker import shapes_of, write_arrays
from .base import ModelSubject, Runnable
from .qnn import PROVIDER

if TYPE_CHECKING:
    from .base import Inputs
    from .qnn import QNNBackend


class QNNRunnable(ExportedRunnable):
    """One ONNX file for each shape, strictly on the HTP."""

    can = frozenset({"save"})
    unseen = "what QNN does inside one graph, which it compiles as a whole"

    def __init__(
        self, backend: QNNBackend, subject: ModelSubject, example: Inputs, precision: str, file: Path | None = None
    ) -> None:
        super().__init__(backend, subject, example, precision)
        if file is not None:
            self.files[shapes_of(example)] = file
        self.actual_dtype = "int8" if precision == "int8" else backend.arithmetic()
        self.pass_of(self.example)

    def placed(self, inputs: Inputs) -> tuple[Mapping[str, int], Mapping[str, int]]:
        assigned: Mapping[str, Mapping[str, int]] = self.proofs[shapes_of(inputs)]["assigned"]
        found = {True: Counter[str](), False: Counter[str]()}
        for provider, counts in assigned.items():
            found[provider == PROVIDER].update({f"onnx.{name}": n for name, n in counts.items()})
        return dict(found[True]), dict(found[False])

    def save_and_reload(self, folder: Path) -> Runnable:
        """QNN's context binary, compiled ahead of time, in a session of its own."""
        context = folder / "context.onnx"
        file = self.file_for(self.example)
        self.backend.ask(
            "precompile", stage=Stage.COMPILE, model=str(file.absolute()), context=str(context.absolute())
        )
        return type(self)(self.backend, self.subject, self.example, self.precision, context)

    def prepared(self, file: Path, inputs: Inputs) -> Path:
        """Quantised by ranges that are found here, for int8; QNN makes its own float16 of float32."""
        if self.precision != "int8":
            return file
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        quantised = folder / ONNX
        files = [folder / f"{number}.npz" for number in range(CALIBRATIONS)]
        for number, arrays in enumerate(files):
            write_arrays(arrays, drawn(with_positions(self.subject, inputs), number))
        names = [str(one) for one in files]
        self.backend.call(
            "quantise", stage=Stage.CONVERT, model=str(file.absolute()), inputs=names, quantised=str(quantised)
        )
        self.conditions = {
            **self.conditions,
            "quantised": "activations in 16 bits, weights in 8, by their ranges here",
        }
        return quantised
