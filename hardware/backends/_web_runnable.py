"""A model as ONNX files that a browser runs, one for each shape."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..evidence.record import Stage
from ._exported_runnable import ExportedRunnable
from ._in_worker import shapes_of
from ._web import WHOLE
from .base import ModelSubject, Unsupported

if TYPE_CHECKING:
    from ._web import WebBackend
    from .base import Inputs

_COPIES = ("MemcpyToHost", "MemcpyFromHost")
"""What the runtime puts between providers: it computes nothing."""


class WebRunnable(ExportedRunnable):
    """One ONNX file for each shape, in a browser that meets no other model."""

    can = frozenset()
    unseen = "what the browser does with a shader or a graph of WebNN, and what a kernel does inside itself"
    backend: WebBackend

    def __init__(self, backend: WebBackend, subject: ModelSubject, example: Inputs, precision: str) -> None:
        super().__init__(backend, subject, example, precision)
        self.actual_dtype = precision
        self.pass_of(self.example)

    def compute(self, file: Path, arrays: Inputs) -> tuple[Any, Mapping[str, Any]]:
        got, proof = self.backend.compute(file, arrays, subject=self.subject.identity)
        if proof["said"]:
            self.conditions = {**self.conditions, "console": "; ".join(proof["said"])}
        return got, proof

    def prepared(self, file: Path, inputs: Inputs) -> Path:
        return file

    def placed(self, inputs: Inputs) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """The file's nodes, less those that the log puts elsewhere.

        Raises `Unsupported` where the log says nothing of the target's provider: then nothing is proven.
        """
        said: Mapping[str, list[list[str]]] = self.proofs[shapes_of(inputs)]["nodes"]
        if not said:
            raise Unsupported(
                "the runtime's log doesn't tell where the nodes ran", error_type="unknown", stage=Stage.RUN
            )
        nodes = _nodes(self.files[shapes_of(inputs)])
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


@functools.lru_cache(maxsize=16)
def _nodes(file: Path) -> Mapping[str, str]:
    """By node, its operator's name in evidence: with `WHOLE` where nothing that it gives is a floating-point number.

    A node without a name has its place's.
    """
    import onnx

    graph = onnx.shape_inference.infer_shapes(onnx.load(str(file))).graph
    types = {one.name: one.type.tensor_type.elem_type for one in (*graph.input, *graph.output, *graph.value_info)}
    floating = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)
    found = {}
    for place, node in enumerate(graph.node):
        kinds = [types.get(name, onnx.TensorProto.FLOAT) for name in node.output if name]
        whole = not any(kind in floating for kind in kinds)
        found[node.name or str(place)] = f"onnx.{node.op_type}{WHOLE if whole else ''}"
    return found
