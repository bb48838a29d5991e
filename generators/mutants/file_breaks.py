"""Breaks of a graph file: copies of an `.onnx` with one fault each, which only the target gets."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hwcompat.hardware.backends.base import FileInput
from hwcompat.hardware.compare import ReferenceNotFinite, compare
from hwcompat.hardware.testing.graph_weights import parts_of

from .mutation_operators import SIDE, Mutant
from .orders import Made, Order

if TYPE_CHECKING:
    from hwcompat.hardware.compare import Array
    from hwcompat.hardware.testing.graph_files import GraphTest

Outputs = Mapping[str, "Array"]
Break = Callable[[Any, random.Random, Outputs], str]
"""Changes a model in place and returns the place, or raises `ValueError`. Gets the unbroken file's outputs."""

_ACTIVATIONS = (
    *("Relu", "LeakyRelu", "PRelu", "Clip", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh", "Erf", "Gelu", "Softmax"),
    *("LogSoftmax", "Softplus", "Elu", "Exp", "Sqrt", "Log", "Abs", "Neg"),
)


def scale_weights(model: Any, draw: random.Random, outputs: Outputs) -> str:
    """Multiply a tensor of weights, or a scale of quantized ones, by 1.1."""
    return _change_weights(model, draw, lambda values: values * values.dtype.type(1.1), "multiplied by 1.1")


def roll_weights(model: Any, draw: random.Random, outputs: Outputs) -> str:
    """Move a tensor's rows by one."""
    return _change_weights(model, draw, lambda values: np.roll(values, 1, axis=0), "rows rolled by one", rows=2)


def drop_activation(model: Any, draw: random.Random, outputs: Outputs) -> str:
    """Replace an activation by its input."""
    nodes = [node for node in _nodes(model) if node.op_type in _ACTIVATIONS and not node.domain]
    if not nodes:
        raise ValueError("it has no activation")
    node = draw.choice(nodes)
    said = f"{node.op_type} {node.name or node.output[0]}"
    del node.attribute[:], node.input[1:]
    node.op_type = "Identity"
    return said


def round_output(model: Any, draw: random.Random, outputs: Outputs) -> str:
    """Round an output to the seven bits of bfloat16."""
    from onnx import TensorProto

    def rounded(helper: Any, name: str, before: str, kind: int) -> list[Any]:
        low = f"{name}_low"
        made = helper.make_node("Cast", [before], [low], to=TensorProto.BFLOAT16)
        return [made, helper.make_node("Cast", [low], [name], to=kind)]

    return _change_output(model, draw, outputs, rounded)


def put_nan(model: Any, draw: random.Random, outputs: Outputs) -> str:
    """Make an output NaN."""

    def spoiled(helper: Any, name: str, before: str, kind: int) -> list[Any]:
        nan = helper.make_tensor(f"{name}_nan", kind, [], [float("nan")])
        constant = helper.make_node("Constant", [], [f"{name}_nan"], value=nan)
        return [constant, helper.make_node("Mul", [before, f"{name}_nan"], [name])]

    return _change_output(model, draw, outputs, spoiled)


def freeze_output(model: Any, draw: random.Random, outputs: Outputs) -> str:
    """Return the first numbers of an output again and again."""
    from onnx import numpy_helper

    def frozen(helper: Any, name: str, before: str, kind: int) -> list[Any]:
        values = outputs[name].astype(helper.tensor_dtype_to_np_dtype(kind))
        return [helper.make_node("Constant", [], [name], value=numpy_helper.from_array(values))]

    return _change_output(model, draw, outputs, frozen)


FILE_OPERATORS: Mapping[str, tuple[str, Break]] = {
    "scaled_weights": ("weights multiplied by 1.1", scale_weights),
    "rolled_weights": ("rows of weights moved by one", roll_weights),
    "dropped_activation": ("an activation left out", drop_activation),
    "rounded_output": ("an output rounded to bfloat16 and back", round_output),
    "nan_output": ("an output replaced by NaN", put_nan),
    "frozen_output": ("an output's first numbers returned again", freeze_output),
}
"""The breaks by name, with a description."""


def break_file(case: GraphTest, file: Path, order: Order, folder: Path) -> tuple[Path, Made]:
    """Return a broken copy of a file in `folder`, and what was made; the file itself if no break moves its outputs by
    more than the order's `least`."""
    import onnx

    first = _computed(case, file)
    refused: dict[str, str] = {}
    quiet = Made()
    for text in order.mutants:
        operator, _, seed = text.partition("@")
        describe, apply = FILE_OPERATORS[operator]
        model, broken = onnx.load(str(file)), folder / f"{operator}.onnx"
        try:
            site = apply(model, random.Random(text), first)
            onnx.save(model, str(broken))
            size = _change(case, _computed(case, broken), first)
        except Exception as error:  # each of onnx, protobuf and the runtime has errors of its own
            refused[text] = f"{type(error).__name__}: {error}"[:200]
            continue
        mutant = Mutant(operator=operator, seed=int(seed), site=site, side=SIDE, describe=describe)
        if size > order.least:
            return broken, Made(mutant=mutant, change=size, refused=refused)
        refused[text] = f"it changes the outputs by {size:.1e} of their scale; more than {order.least:.0e} is needed"
        quiet = Made(mutant=mutant, change=size)
    return file, Made(mutant=quiet.mutant, change=quiet.change, refused=refused)


def _computed(case: GraphTest, file: Path) -> dict[str, Array]:
    opened = case.backend.load_file(FileInput(file=file), case.inputs, case.cell.precision)
    try:
        found = {seed: opened(**inputs) for seed, inputs in enumerate(_two(case.inputs))}
    finally:
        opened.close()
    return {**found[0], **{f"{name} of other inputs": one for name, one in found[1].items()}}


def _two(inputs: Mapping[str, Array]) -> list[Mapping[str, Array]]:
    """Return the inputs, and others with which a frozen output is wrong: its floating-point numbers halved, or its
    entries along the last axis rolled."""
    other = {
        name: one * one.dtype.type(0.5) for name, one in inputs.items() if one.dtype.kind == "f" and one.size > 1
    }
    other = other or {name: np.roll(one, 1, -1) for name, one in inputs.items() if one.ndim}
    return [inputs, {**inputs, **other}]


def _change(case: GraphTest, got: Outputs, first: Outputs) -> float:
    """Return how far outputs moved, relative to the scales that the suite judges by."""
    scales = case.reference(case.inputs).scales
    named = {**scales, **{f"{name} of other inputs": one for name, one in scales.items()}}
    try:
        return compare(got, first, required=tuple(first), scales=named).max_rel_error
    except ReferenceNotFinite as error:
        raise ValueError(str(error)) from error


def _nodes(model: Any) -> list[Any]:
    import onnx

    return list(parts_of(model.graph, onnx.NodeProto))


def _change_weights(
    model: Any, draw: random.Random, change: Callable[[Array], Array], said: str, rows: int = 1
) -> str:
    from onnx import TensorProto, numpy_helper

    read = {name for node in _nodes(model) for name in node.input}
    kinds = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)
    found = [one for one in parts_of(model.graph, TensorProto) if one.name in read and one.data_type in kinds]
    found = [one for one in found if one.dims and one.dims[0] >= rows]
    if not found:
        raise ValueError("it has no such floating-point weights")
    tensor = draw.choice(found)
    tensor.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(tensor)), tensor.name))
    return f"{tensor.name}, {said}"


def _change_output(model: Any, draw: random.Random, outputs: Outputs, nodes: Callable[..., list[Any]]) -> str:
    from onnx import helper

    graph = model.graph
    floating = [one for one in graph.output if one.name in outputs and outputs[one.name].dtype.kind == "f"]
    made = {name for node in graph.node for name in node.output}
    if not (chosen := [one for one in floating if one.name in made]):
        raise ValueError("it has no floating-point output")
    output = draw.choice(chosen)
    before = f"{output.name}_unbroken"
    for node in _nodes(model):
        for names in (node.input, node.output):
            names[:] = [before if name == output.name else name for name in names]
    graph.node.extend(nodes(helper, output.name, before, output.type.tensor_type.elem_type))
    return str(output.name)
