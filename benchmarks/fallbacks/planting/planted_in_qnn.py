"""Fallbacks of ONNX Runtime with QNN: another backend than HTP, or nodes on the host."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from planting_tools import after_import, change_export, took_effect, wrap

_QNN = "hwcompat.hardware.backends.qnn"


def _with_options(options: Mapping[str, str] | None) -> None:
    """Open sessions that aren't strict, with these options."""

    @after_import(_QNN)
    def patch(module: ModuleType) -> None:
        @wrap(module.QNNBackend, "settings_of")
        def settings_of(original: Any, self: Any, config: Any) -> Any:
            made = original(self, {name: one for name, one in config.items() if name not in module.STRICT})
            took_effect()
            return made if options is None else {**made, "options": dict(options)}


def qnn_backend_cpu() -> None:
    _with_options({"backend_type": "cpu"})


def qnn_no_backend() -> None:
    _with_options({})


def qnn_saver() -> None:
    _with_options({"backend_type": "saver"})


def qnn_some_nodes() -> None:
    _with_options(None)

    change_export(_as_einsum)


def _as_einsum(file: Path) -> None:
    """Replace one product of a file by an operator that QNN doesn't support."""
    import onnx

    model = onnx.load(str(file))
    inferred = onnx.shape_inference.infer_shapes(model).graph.value_info
    shapes = {one.name: len(one.type.tensor_type.shape.dim) for one in inferred}
    weights = {one.name: len(one.dims) for one in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "MatMul" and weights.get(node.input[1]) == 2 and shapes.get(node.input[0]) == 3:
            node.op_type = "Einsum"
            node.attribute.append(onnx.helper.make_attribute("equation", "bij,jk->bik"))
            break
    onnx.save(model, str(file))
