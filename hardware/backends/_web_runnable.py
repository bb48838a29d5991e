"""A model as ONNX files that a browser runs, one for each shape."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..evidence.record import Stage
from ..export.decoding_graphs import decode
from ..export.exported import ONNX
from ..export.onnx_decoding_graphs import axes_of, export_onnx_decoding, graph_files, with_sizes
from ..export.weight_compression import in_float16, with_int8_weights_in
from ..software import other_adapter
from ._exported_runnable import ExportedRunnable
from ._onnx import COMPUTE
from ._torch import listed, what_raises
from ._web_placement import Incomplete, NodePlacement, operators_of, placement
from ._worker_backend import shapes_of
from .base import STEPS, Execution, FileInput, Generation, ModelInput, Unsupported, coarsest

if TYPE_CHECKING:
    from ..export.exported import Exported
    from .base import Inputs


class WebRunnable(ExportedRunnable):
    """One ONNX file for each shape, in a browser that runs no other model."""

    def __init__(self, backend: Any, model_input: ModelInput | FileInput, example: Inputs, precision: str) -> None:
        super().__init__(backend, model_input, example, precision)
        self.unseen = backend.UNSEEN
        if precision == "int8" and not isinstance(model_input, FileInput):
            self.conditions = {**self.conditions, "quantised": "weights in 8 bits"}
        self.pass_of(self.example)
        self.actual_dtype = backend.computed_in(_products(self.file_for(self.example)) or precision)
        self.decoded: dict[str, dict[Path, NodePlacement]] = {}
        """Placement of the nodes of each file, by decoding graph."""

        self.graphs: dict[str, Path] = {}
        if isinstance(model_input, ModelInput) and model_input.generates != "none":
            self.graphs = self._decoding(model_input)
        self.can = frozenset({"generate"} if self.graphs else ())

    def _decoding(self, model_input: ModelInput) -> dict[str, Path]:
        """Return the graphs that decode, or none, with the reason among the conditions."""
        try:
            files = graph_files(export_onnx_decoding(model_input, self.example))
            return {name: self.prepared(file, {}) for name, file in files.items()}
        except Unsupported as error:
            self.conditions = {**self.conditions, "why_no_cache": str(error)}
            self.failed = {"generate": error}
            return {}

    def generate(self, inputs: Inputs, *, steps: int) -> Generation:
        """Decode greedily, with a graph for the prompt and one for each token, called by the library's decoding loop.

        Raises `Unsupported` if a graph leaves more to the host than is allowed.
        """
        graphs = {name: functools.partial(self._graph, name) for name in self.graphs}
        source: Any = self.model_input  # a file doesn't decode
        return decode(source.model, graphs, inputs, steps=steps)

    def _graph(self, name: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
        file = self.graphs[name]
        axes = axes_of(file)
        given = {name: arrays[name] for name in axes}
        if self.backend.FIXED_SHAPES and any(any(named) for named in axes.values()):
            file = with_sizes(file, {name: array.shape for name, array in given.items()}, self.folder)
        got: dict[str, Any]
        got, proof = self.backend.run_file(file, given, **self.options())
        placed = self._placed(file, proof)
        self.decoded.setdefault(name, {})[file] = placed
        if left := sorted(set(placed.host) - self.backend.HOST_ALLOWED):
            raise Unsupported(
                f"decoding leaves {', '.join(left)} to the host", error_type="silent_offload", stage=Stage.RUN
            )
        return got

    def execution(self) -> Execution:
        """Return where the nodes of the forward pass are, and those of the decoding graphs: each graph as it last
        ran, with all that any of its files left to the host. Decodes if nothing was decoded yet."""
        said = ""
        if self.graphs and not self.decoded:
            said = what_raises("decoding", lambda: self.generate(self.example, steps=STEPS))
        found = super().execution()
        native, host = Counter(found.native), Counter(found.offloaded)
        files = [self.file_for(self.example)]
        for by_file in self.decoded.values():
            files += by_file
            native += Counter(list(by_file.values())[-1].native)
            left: Counter[str] = Counter()
            for one in by_file.values():
                left |= Counter(one.host)
            host += left
        return replace(
            found,
            native=dict(native),
            offloaded=dict(host),
            dtype=self.backend.computed_in(coarsest(filter(None, map(_products, files))) or found.dtype),
            unseen=listed(found.unseen, said),
        )

    def compute(self, file: Path, arrays: Inputs) -> tuple[Any, Mapping[str, Any]]:
        got, proof = super().compute(file, arrays)
        if proof["said"]:
            self.conditions = {**self.conditions, "console": "; ".join(proof["said"])}
        return got, proof

    def options(self) -> dict[str, str]:
        return {"weights": self.model_input.identity if self.backend.separates_models else ""}

    def conditions_of(self, exported: Exported) -> Mapping[str, str]:
        return {**exported.conditions(), **self.backend.coarse_in(exported.folder / ONNX)}

    def prepared(self, file: Path, inputs: Inputs) -> Path:
        """Return the file with weights in 8 bits (int8) or all in float16; inputs and outputs don't change."""
        if isinstance(self.model_input, FileInput):
            return file
        if self.precision == "int8":
            return with_int8_weights_in(file, self.folder)
        return in_float16(file, self.folder) if self.precision == "float16" else file

    def placed(self, inputs: Inputs) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """Return the placement that the runtime reports. Raises `Unsupported` if nodes are missing."""
        found = self._placed(self.file_for(inputs), self.proofs[shapes_of(inputs)])
        return found.native, found.host

    def _placed(self, file: Path, proof: Mapping[str, Any]) -> NodePlacement:
        if why := other_adapter(self.backend.described.get("adapter"), proof.get("adapter")):
            raise Unsupported(why, error_type="unknown", stage=Stage.RUN)
        try:
            return placement(proof["placed"], operators_of(file), self.backend.PROVIDER)
        except Incomplete as error:
            raise Unsupported(str(error), error_type="unknown", stage=Stage.RUN) from error


@functools.lru_cache(maxsize=16)
def _products(file: Path) -> str:
    """Return the coarsest dtype of a file's products; empty if it has none."""
    import onnx

    graph = onnx.shape_inference.infer_shapes(onnx.load(str(file))).graph
    types = {one.name: one.type.tensor_type.elem_type for one in (*graph.output, *graph.value_info)}
    given = [types.get(node.output[0]) for node in graph.node if node.op_type in COMPUTE]
    names = {
        onnx.TensorProto.FLOAT: "float32",
        onnx.TensorProto.FLOAT16: "float16",
        onnx.TensorProto.DOUBLE: "float64",
    }
    return coarsest(names[kind] for kind in given if kind in names)
