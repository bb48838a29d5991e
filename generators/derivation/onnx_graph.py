"""What a model's ONNX export is: asked on the host, before any target that takes ONNX is. Imports torch and onnx."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hardware.backends.base import ModelSubject
from hardware.compare import Array
from hardware.export.exported import ONNX
from hardware.export.onnx import export_onnx, missing_packages

_MANY_AXES = 5
"""From here on runtimes differ in what they take."""


def onnx_operators(subject: ModelSubject, inputs: Mapping[str, Array]) -> tuple[str, ...]:
    """The operators of a model's verified export for these inputs, in alphabetical order.

    `onnx.Reshape` says that there is one; `onnx.Reshape[6]` that it has a tensor of six axes (from five on),
    `onnx.Add(int64)` that it gives something else than floating-point numbers, `onnx.Einsum(ij,jk->ik)` what it sums.
    Raises `Unsupported` where no export is right, and `ImportError` without the packages of `requirements-onnx.txt`.
    """
    if missing := missing_packages():
        raise ImportError(missing)
    return operators_in(export_onnx(subject, inputs).folder / ONNX)


def operators_in(file: Path) -> tuple[str, ...]:
    """The same of a file."""
    import onnx

    graph = onnx.shape_inference.infer_shapes(onnx.load(str(file))).graph
    types = {one.name: one.type.tensor_type for one in (*graph.input, *graph.output, *graph.value_info)}
    return tuple(sorted({said for node in _nodes(graph) for said in _told(node, types)}))


def _nodes(graph: Any) -> Iterator[Any]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g)


def _told(node: Any, types: Mapping[str, Any]) -> Iterator[str]:
    from onnx import TensorProto

    name = f"onnx.{node.op_type}"
    yield name
    axes = max((len(types[one].shape.dim) for one in (*node.input, *node.output) if one in types), default=0)
    if axes >= _MANY_AXES:
        yield f"{name}[{axes}]"
    kind = types[node.output[0]].elem_type if node.output and node.output[0] in types else 0
    if kind not in (0, TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE):
        yield f"{name}({TensorProto.DataType.Name(kind).lower()})"
    for attribute in node.attribute:
        if attribute.name == "equation":
            yield f"{name}({attribute.s.decode().replace(' ', '')})"
