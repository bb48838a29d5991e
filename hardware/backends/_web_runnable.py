"""A model as ONNX files that a browser runs, one for each shape."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..evidence.record import Stage
from ..export.compressing import in_float16, with_int8_weights_in
from ..export.exported import ONNX
from ..export.onnx_decoding import axes_of, export_onnx_decoding, graph_files, with_sizes
from ._exported_runnable import ExportedRunnable
from ._graph_decoding import decode
from ._in_worker import shapes_of
from ._onnx import COMPUTE
from ._web import WHOLE
from .base import Generation, ModelSubject, Unsupported, coarsest

if TYPE_CHECKING:
    from ..export.exported import Exported
    from ._web import WebBackend
    from .base import Inputs

_OF_SHAPES = ("Shape", "Size")
"""What reads no number of what it is given."""

_COPIES = ("MemcpyToHost", "MemcpyFromHost")
"""What the runtime puts between providers: it computes nothing."""


class WebRunnable(ExportedRunnable):
    """One ONNX file for each shape, in a browser that meets no other model."""

    unseen = "what the browser does with a shader or a graph of WebNN, and what a kernel does inside itself"
    backend: WebBackend

    def __init__(self, backend: WebBackend, subject: ModelSubject, example: Inputs, precision: str) -> None:
        super().__init__(backend, subject, example, precision)
        if precision == "int8":
            self.conditions = {**self.conditions, "quantised": "weights in 8 bits"}
        self.pass_of(self.example)
        self.actual_dtype = backend.computed_in(_products(self.files[shapes_of(self.example)]) or precision)
        self.graphs = self._decoding() if subject.generates != "none" else {}
        self.can = frozenset({"generate"} if self.graphs else ())

    def _decoding(self) -> dict[str, Path]:
        """The graphs that decode; none, with the reason among the conditions, where there are none that are right."""
        try:
            files = graph_files(export_onnx_decoding(self.subject, self.example))
            return {name: self.prepared(file, {}) for name, file in files.items()}
        except Unsupported as error:
            self.conditions = {**self.conditions, "why_no_cache": str(error)}
            return {}

    def generate(self, inputs: Inputs, *, steps: int) -> Generation:
        """Greedily, a graph for the prompt and one for each token, inside the library's own loop over tokens.

        Raises `Unsupported` where a graph leaves more to the host than it may.
        """
        graphs = {name: functools.partial(self._graph, file) for name, file in self.graphs.items()}
        return decode(self.subject.model, graphs, inputs, steps=steps)

    def _graph(self, file: Path, arrays: Mapping[str, Any]) -> dict[str, Any]:
        axes = axes_of(file)
        given = {name: arrays[name] for name in axes}
        if self.backend.FIXED_SHAPES and any(any(named) for named in axes.values()):
            file = with_sizes(file, {name: array.shape for name, array in given.items()}, self.folder)
        got, proof = self.backend.run_file(file, given, subject=self.subject.identity)
        left = sorted(set(self._placed(file, proof)[1]) - self.backend.HOST_ALLOWED)
        if left:
            raise Unsupported(
                f"decoding leaves {', '.join(left)} to the host", error_type="silent_offload", stage=Stage.RUN
            )
        return got

    def compute(self, file: Path, arrays: Inputs) -> tuple[Any, Mapping[str, Any]]:
        got, proof = self.backend.compute(file, arrays, subject=self.subject.identity)
        if proof["said"]:
            self.conditions = {**self.conditions, "console": "; ".join(proof["said"])}
        return got, proof

    def conditions_of(self, exported: Exported) -> Mapping[str, str]:
        return {**exported.conditions(), **self.backend.coarse_in(exported.folder / ONNX)}

    def prepared(self, file: Path, inputs: Inputs) -> Path:
        """Weights in 8 bits for int8, all of it in float16 for that; inputs and outputs stay as they are."""
        if self.precision == "int8":
            return with_int8_weights_in(file, self.folder)
        return in_float16(file, self.folder) if self.precision == "float16" else file

    def placed(self, inputs: Inputs) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """The file's nodes, less those that the log puts elsewhere.

        Raises `Unsupported` where the log says nothing of the target's provider: then nothing is proven.
        """
        shapes = shapes_of(inputs)
        return self._placed(self.files[shapes], self.proofs[shapes])

    def _placed(self, file: Path, proof: Mapping[str, Any]) -> tuple[Mapping[str, int], Mapping[str, int]]:
        said: Mapping[str, list[list[str]]] = proof["nodes"]
        if not said:
            raise Unsupported(
                "the runtime's log doesn't tell where the nodes ran", error_type="unknown", stage=Stage.RUN
            )
        nodes = _nodes(file)
        native = Counter(nodes.values())
        host: Counter[str] = Counter()
        for provider, listed in said.items():
            if provider == self.backend.PROVIDER:
                continue
            if any(not name for _, name in listed):
                return {}, dict(native)  # all of them
            for operator, name in listed:
                if operator not in _COPIES:
                    host[nodes.get(name, f"onnx.{operator}")] += 1
        native.subtract(host)
        return {name: count for name, count in native.items() if count > 0}, dict(host)


def _products(file: Path) -> str:
    """What a file's products are computed in: the coarsest, empty where it has none."""
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


@functools.lru_cache(maxsize=16)
def _nodes(file: Path) -> Mapping[str, str]:
    """By node, its operator's name in evidence: with `WHOLE` where it reads no floating-point number.

    A node without a name has its place's.
    """
    import onnx

    graph = onnx.shape_inference.infer_shapes(onnx.load(str(file))).graph
    types = {one.name: one.type.tensor_type.elem_type for one in (*graph.input, *graph.output, *graph.value_info)}
    types |= {one.name: one.data_type for one in graph.initializer}
    floating = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)
    found = {}
    for place, node in enumerate(graph.node):
        kinds = [types.get(name, onnx.TensorProto.FLOAT) for name in node.input if name]
        whole = node.op_type in _OF_SHAPES or not any(kind in floating for kind in kinds)
        found[node.name or str(place)] = f"onnx.{node.op_type}{WHOLE if whole else ''}"
    return found
