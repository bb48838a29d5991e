"""Ways into OpenVINO that no plain run takes: a remedy tries them where the usual ones fail."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import onnx, tracing
from .exported import FORWARD, ONNX, RESULT, Exported
from .program import export_function

if TYPE_CHECKING:
    from ..model.types import Inputs, ModelSubject


def for_these_shapes(subject: ModelSubject, example: Inputs, folder: Path) -> Exported:
    """The usual trace with every size a constant: exported anew for each shape."""
    return tracing.with_convert_model(subject, example, folder, held=frozenset())


def over_onnx(subject: ModelSubject, example: Inputs, folder: Path) -> Exported:
    """torch's ONNX file of the forward pass, read by OpenVINO's converter, for the shapes of the example.

    Raises what either raises.
    """
    onnx.traced(subject, example, folder)
    import onnx as library

    file = folder / ONNX
    graph = library.load(str(file), load_external_data=False).graph
    _convert(str(file), [one.name for one in graph.input], [one.name for one in graph.output], folder)
    file.unlink()
    return Exported(folder=folder, method="onnx", static=True)


def over_program(subject: ModelSubject, example: Inputs, folder: Path) -> Exported:
    """The program of torch.export, read by OpenVINO's converter, for the shapes of the example.

    Raises what either raises.
    """
    import torch

    model = subject.model
    tensors, positions, compute = tracing.bare_forward(model, example)
    given = {**tensors, **positions}
    file = folder / "forward.pt2"
    with tracing.traceable_parts(model), torch.no_grad():
        outputs = list(compute(given))
        export_function(model, compute, given, file)
    _convert(torch.export.load(str(file)), list(given), outputs, folder)
    file.unlink()
    return Exported(folder=folder, method="torch.export", static=True)


def _convert(source: Any, inputs: list[str], outputs: list[str], folder: Path) -> None:
    """Save OpenVINO's model of `source` with these names, in the order in which the source has them."""
    import openvino

    converted = openvino.convert_model(source)
    for port, name in zip(converted.outputs, outputs, strict=True):
        port.get_tensor().set_names({name})
        port.get_node().set_friendly_name(RESULT + name)
    for port, name in zip(converted.inputs, inputs, strict=True):
        port.get_tensor().set_names({name})
        port.get_node().set_friendly_name(name)
    converted.validate_nodes_and_infer_types()
    openvino.save_model(converted, folder / FORWARD, compress_to_fp16=False)
