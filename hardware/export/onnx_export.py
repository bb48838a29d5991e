"""Export a torch module to ONNX for the shapes of its example: one file of plain operators, verified on CPU.

Uses torch's TorchScript exporter (opset 17) first: the newer one leaves a GatherND in masks, which QNN doesn't run.
ONNX Runtime then folds what doesn't depend on the inputs, so that no shape is computed on a device.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

from ..applied_fix import current_changes
from ..command_names import as_runnable
from ..model.model_types import ModelInput, Unsupported
from ..model.outputs import floating_outputs, ruled_out
from ..model.positions import host_positions
from .convert_model import by_position, holding
from .exported import ONNX, RESULT, Exported
from .onnx_operators import exportable_operators
from .routes import Route, Way, export_once, opened
from .traceable import RULED_OUT, arithmetic_masks, traceable_parts
from .verify_export import Proof, held_inputs

if TYPE_CHECKING:
    import torch

    from ..model.model_types import Array, Inputs

OPSET = 17
"""The first opset with LayerNormalization; QNN's documentation lists operators up to it without exception."""
DYNAMO_OPSET = 18
"""The first opset that the exporter by torch.export writes."""

OPERATORS_REFUSED = {
    "Exporting the operator '": "torch's exporter has no rule for",
    "Unsupported: ONNX export of operator ": "torch's exporter has no rule for",
}
PACKAGES = ("onnx", "onnxruntime")
_FLOAT16_LARGEST = 65504.0


def missing_packages() -> str:
    """Return why nothing can be exported here, or an empty string."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    how = as_runnable("pip install 'hwcompat[onnx]'")
    return f"{' and '.join(missing)} not installed ({how})" if missing else ""


def export_onnx(model_input: ModelInput, example: Inputs, *, hold: bool = False) -> Exported:
    """Return the ONNX file of a torch module for the shapes of `example`, from the cache or made now.

    It agrees with torch on ONNX Runtime's CPU provider, for the example and for other values of the same shapes. With
    `hold`, sizes and integers that belong to no token are constants in it. Raises `Unsupported` with the reason
    otherwise, as `export_openvino` does: that of TorchScript's exporter if the one by torch.export fails too.
    """
    route = Route(
        ways=_HOLDING if hold else _WAYS,
        prove=_proven,
        runtime="ONNX Runtime's CPU provider",
        packages=("torch", *PACKAGES),
        refused=OPERATORS_REFUSED,
        best=_METHOD,
    )

    def open_on_cpu(exported: Exported) -> OnnxModel:
        return OnnxModel(exported.folder / ONNX, model_input)

    try:
        return export_once(model_input, example, open_on_cpu, route)
    except Unsupported as refused:
        if hold or find_spec("onnxscript") is None:
            raise
        other = replace(route, ways=_DYNAMO, packages=(*route.packages, "onnxscript"), best="")
        try:
            made = export_once(model_input, example, open_on_cpu, other)
            return replace(made, why_not_exporter=str(refused)[:600])
        except Unsupported:
            raise refused from None


def session_on_host(file: Path) -> Any:
    """Return a session of ONNX Runtime's CPU provider without graph optimizations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


class OnnxModel:
    """A model's file on ONNX Runtime's CPU provider."""

    def __init__(self, file: Path, model_input: ModelInput) -> None:
        self.session = session_on_host(file)
        self.model_input = model_input

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the floating-point outputs of one forward pass, by name, as float64."""
        given = with_positions(self.model_input, inputs)
        named = {one.name: np.ascontiguousarray(given[one.name]) for one in self.session.get_inputs()}
        names = [one.name for one in self.session.get_outputs()]
        found = zip(names, self.session.run(names, named), strict=True)
        return {output_name(name): ruled_out(np.asarray(value)).astype(np.float64) for name, value in found}

    def generate(self, inputs: Inputs, *, steps: int) -> Any:
        raise NotImplementedError  # there is no graph for a token


def output_name(name: str) -> str:
    """Return the model's name of an output of the file, which has a prefix if an input has the same name."""
    return name.removeprefix(RESULT)


def with_positions(model_input: ModelInput, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return a graph's inputs: floating-point ones in float32, and positions that Python computes."""
    import torch

    from ..model.calls import to_tensors

    tensors = to_tensors(inputs, "cpu", torch.float32)
    found = {**tensors, **host_positions(model_input.model, tensors)}
    return {name: tensor.numpy() for name, tensor in found.items()}


def _proven(made: Exported, proof: Proof, open_on_cpu: Any) -> tuple[Exported, float]:
    model = opened(open_on_cpu, made)
    error = proof.of_forward(model, made)
    proof.of_other_values(model, made)
    return made, error


def _within_float16(model_input: ModelInput, example: Inputs, folder: Path) -> Exported:
    """Trace with constants within float16, which masks of a model's own code often exceed."""
    made = traced(model_input, example, folder)
    _clip_constants(folder / ONNX)
    return made


def _holding_numbers(model_input: ModelInput, example: Inputs, folder: Path) -> Exported:
    """Trace with sizes of images as constants, from which models make positions and masks inside the graph."""
    made = traced(model_input, example, folder, held=held_inputs(example))
    _clip_constants(folder / ONNX)
    return made


def _by_torch_export(model_input: ModelInput, example: Inputs, folder: Path) -> Exported:
    """Export by torch.export, whose rules are for newer operators; QNN refuses more of what it writes."""
    made = traced(model_input, example, folder, dynamo=True)
    _clip_constants(folder / ONNX)
    return replace(made, method="dynamo")


def _own_operators(model_input: ModelInput, example: Inputs, folder: Path) -> Exported:
    """Trace with torch's own operators, for models that the replacements don't suit."""
    made = traced(model_input, example, folder, operators=_repeated_heads)
    _clip_constants(folder / ONNX)
    return made


def _repeated_heads() -> AbstractContextManager[Any]:
    """Repeat shared keys and values of heads: the exporter has no attention that shares them."""
    from transformers.integrations import sdpa_attention

    def never(*_: Any, **__: Any) -> bool:
        return False

    return mock.patch.object(sdpa_attention, "use_gqa_in_sdpa", never)


@contextlib.contextmanager
def _exportable() -> Iterator[None]:
    with _repeated_heads(), exportable_operators():
        yield


def traced(
    model_input: ModelInput,
    example: Inputs,
    folder: Path,
    *,
    operators: Callable[[], AbstractContextManager[None]] = _exportable,
    held: frozenset[str] | None = None,
    dynamo: bool = False,
) -> Exported:
    """Trace the bare forward pass, without a cache; `held` as for `holding`. Raises the exporter's errors."""
    import torch

    from ..model.calls import without_cache
    from ..model.outputs import nested

    model = model_input.model
    options = without_cache(model)
    arrays = with_positions(model_input, example)

    def run(values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return floating_outputs(model(**nested(values), **options))

    given, compute = holding(run, {name: torch.as_tensor(array) for name, array in arrays.items()}, held)
    names = list(given)
    file = folder / "traced.onnx"
    with arithmetic_masks(), traceable_parts(model), operators(), torch.no_grad():
        outputs = [f"{RESULT}{name}" if name in names else name for name in compute(given)]  # names are unique
        torch.onnx.export(
            by_position(model, compute, names),
            tuple(given.values()),
            str(file),
            dynamo=dynamo,
            opset_version=int(current_changes().opset or (DYNAMO_OPSET if dynamo else OPSET)),
            **({"external_data": False, "verbose": False} if dynamo else {}),
            input_names=names,
            output_names=outputs,
        )
    fold(file, folder / ONNX)
    file.unlink()
    drop_empty(folder / ONNX)
    _expand_added_constants(folder / ONNX)
    constants = held_inputs(example) - _inputs_of(folder / ONNX)  # also those of which the trace froze each use
    return Exported(folder=folder, method=_METHOD, held=", ".join(sorted(constants)), static=True)


def _inputs_of(file: Path) -> set[str]:
    import onnx

    return {one.name for one in onnx.load(str(file), load_external_data=False).graph.input}


def fold(file: Path, folded: Path) -> None:
    """Compute what doesn't depend on the inputs."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(folded)
    # Its fused matrix product with bias between two reshapes gets names that a second session can't reuse.
    fusions = {"disabled_optimizers": ["MatMulAddFusion"]}
    onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"], **fusions)


def can_load(file: Path) -> None:
    """Raise the error of ONNX Runtime if it can't load a file: not all that it folds is valid."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def drop_empty(file: Path) -> None:
    """Remove empty tensors from concatenations: a rotary embedding over a whole head leaves one.

    QNN has no empty tensors.
    """
    import onnx

    model = onnx.shape_inference.infer_shapes(onnx.load(str(file)))
    empty = {
        one.name
        for one in model.graph.value_info
        if any(axis.HasField("dim_value") and axis.dim_value == 0 for axis in one.type.tensor_type.shape.dim)
    }
    for node in model.graph.node:
        kept = [name for name in node.input if name not in empty]
        if node.op_type == "Concat" and 0 < len(kept) < len(node.input):
            node.input[:] = kept
    used = {one.name for one in model.graph.output}
    for node in reversed(list(model.graph.node)):  # consumers come after producers
        if set(node.output) <= empty and not set(node.output) & used:
            model.graph.node.remove(node)
        else:
            used |= set(node.input)
    onnx.save(model, str(file))


def _expand_added_constants(file: Path) -> None:
    """Expand added constants, such as positions, to the shape of their sum.

    HTP fuses sums and a following LayerNormalization into one operator, and there uses a constant (1, length, width)
    for the first row of the batch only: other rows were wrong (onnxruntime-qnn 2.7.0, emulator). A constant of full
    shape is right.
    """
    import onnx

    model = onnx.shape_inference.infer_shapes(onnx.load(str(file)))
    graph = model.graph
    constants = {one.name: one for one in graph.initializer}
    shapes = {
        one.name: [axis.dim_value for axis in one.type.tensor_type.shape.dim]
        for one in (*graph.value_info, *graph.output)
    }
    for node in graph.node:
        if node.op_type != "Add":
            continue
        full = shapes.get(node.output[0], [0])
        for number, name in enumerate(node.input):
            if name in constants and all(full) and _differs(list(constants[name].dims), full):
                written = np.broadcast_to(onnx.numpy_helper.to_array(constants[name]), full)
                own = f"{name}_{node.output[0]}_full"
                graph.initializer.append(onnx.numpy_helper.from_array(np.ascontiguousarray(written), own))
                node.input[number] = own
    onnx.save(model, str(file))


def _clip_constants(file: Path) -> None:
    """Replace constants beyond float16, such as the smallest number of float32 in a mask, by ones that mask as well.

    HTP has no infinity: it read some other number, so that masked scores counted.
    """
    import onnx

    model = onnx.load(str(file))
    inner = [one.t for node in model.graph.node for one in node.attribute if one.type == onnx.AttributeProto.TENSOR]
    for tensor in (*model.graph.initializer, *inner):
        if tensor.data_type != onnx.TensorProto.FLOAT:
            continue
        values = onnx.numpy_helper.to_array(tensor)
        beyond = np.abs(values) > _FLOAT16_LARGEST
        if beyond.any():
            bounded = np.where(beyond, np.sign(values) * abs(RULED_OUT), values).astype(values.dtype)
            tensor.CopyFrom(onnx.numpy_helper.from_array(bounded, tensor.name))
    onnx.save(model, str(file))


def _differs(dims: list[int], full: list[int]) -> bool:
    """Return whether a constant is more than one row of numbers, and not of full shape."""
    return dims != full and int(np.prod(dims)) > full[-1]


_METHOD = "torchscript"
_WAYS: tuple[tuple[str, Way], ...] = (
    ("within float16", _within_float16),
    ("plain trace", traced),
    ("by its own operators", _own_operators),
)
_DYNAMO: tuple[tuple[str, Way], ...] = (("by torch.export", _by_torch_export),)
_HOLDING: tuple[tuple[str, Way], ...] = (("holding numbers", _holding_numbers),)
