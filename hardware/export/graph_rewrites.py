"""Rewrite operators of an exported graph that a runtime lacks as others that give the same values.

A transposition of many axes becomes one of the axes that move, an Einsum of two operands becomes a product of
matrices, as converters of vendors do, a Trilu becomes a choice by a constant mask, and arithmetic, sums and cuts of
many axes have fewer. All shapes of the graph must be static.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

_FLOAT = 1
"""ONNX's number of float32 (TensorProto.DataType)."""
MOST_AXES = 5
"""Axes of a tensor that Qualcomm's HTP supports at most.

https://docs.qualcomm.com/bundle/publicresource/topics/80-63442-50/operations.html
"""

MOST_NEGATED = 4
"""Axes of a tensor that QNN negates at most: its emulator refuses five (docs/measured/qnn.md)."""

_BY_ELEMENT = ("Add", "Sub", "Mul", "Div", "Pow")
_ALONG_AXES = ("Split", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum")

Shape = tuple[int, ...]


def rewrite(file: Path, rewritten: Path) -> dict[str, int]:
    """Write the graph of `file` without Einsum, Trilu, operators of more than `MOST_AXES` axes and negations of more
    than `MOST_NEGATED`, as far as they can be replaced, to `rewritten`. Return how many operators of each type were
    replaced; with none of them nothing is written. Graphs with others inside them (If, Loop) stay as they are.

    Raises errors of onnx for a graph that it can't read, such as one above 2 GB.
    """
    import onnx

    model = onnx.shape_inference.infer_shapes(onnx.load(str(file)))
    if any(one.HasField("g") for node in model.graph.node for one in node.attribute):
        return {}
    graph = _Graph(model)
    done = Counter(node.op_type for node in list(model.graph.node) if graph.replace(node))
    if done:
        graph.join_reshapes()
        graph.drop_unused_constants()
        del model.graph.value_info[:]
        onnx.save(onnx.shape_inference.infer_shapes(model), str(rewritten))
    return dict(done)


class _Graph:
    """A graph of ONNX whose nodes can be replaced, with the static shape of each value."""

    def __init__(self, model: Any) -> None:
        self.graph = model.graph
        self.shapes: dict[str, Shape] = {one.name: tuple(one.dims) for one in self.graph.initializer}
        for one in (*self.graph.value_info, *self.graph.input, *self.graph.output):
            axes = one.type.tensor_type.shape.dim
            known = one.type.tensor_type.HasField("shape")
            if known and all(axis.HasField("dim_value") and axis.dim_value for axis in axes):
                self.shapes[one.name] = tuple(axis.dim_value for axis in axes)
        self.kinds = {one.name: one.type.tensor_type.elem_type for one in (*self.graph.value_info, *self.graph.input)}
        self._number = 0

    def replace(self, node: Any) -> bool:
        """Replace a node that can be replaced by others; return whether it was."""
        known = all(name in self.shapes for name in (*node.input, *node.output))
        rewritten = {
            "Transpose": self._transpose,
            "Einsum": self._einsum,
            "Trilu": self._triangle,
            "Neg": self._negation,
            "Squeeze": self._other_shape,
            "Unsqueeze": self._other_shape,
            **dict.fromkeys(_BY_ELEMENT, self._arithmetic),
            **dict.fromkeys(_ALONG_AXES, self._along_axes),
        }.get(node.op_type)
        made = rewritten(node) if known and rewritten else None
        if made is None:
            return False
        place = next(i for i, one in enumerate(self.graph.node) if one is node)
        self.graph.node.remove(node)
        for offset, one in enumerate(made):
            self.graph.node.insert(place + offset, one)
        return True

    # Operators

    def _transpose(self, node: Any) -> list[Any] | None:
        shape = self.shapes[node.input[0]]
        if len(shape) <= MOST_AXES:
            return None
        order = next((tuple(one.ints) for one in node.attribute), tuple(reversed(range(len(shape)))))
        made: list[Any] = []
        value = self._moved(node.input[0], shape, order, made)
        self._reshape(value, self.shapes[node.output[0]], made, node.output[0])
        return made

    def _moved(self, value: str, shape: Shape, order: Sequence[int], made: list[Any]) -> str:
        """Append nodes that transpose a value, whose axes then are as few as possible; return their result."""
        sizes, moves = merged(shape, order)
        for given, move in steps(sizes, moves):
            value = self._node("Transpose", [self._reshape(value, given, made)], made, perm=move)
        return value

    def _triangle(self, node: Any) -> list[Any] | None:
        """Choose between the tensor and 0, as a product with a mask would turn infinities into NaN."""
        from onnx import numpy_helper

        constants = {one.name: one for one in self.graph.initializer}
        if any(name not in constants for name in node.input[1:]) or self.kinds.get(node.input[0]) != _FLOAT:
            return None
        diagonal = int(numpy_helper.to_array(constants[node.input[1]])) if len(node.input) > 1 else 0
        upper = next((one.i for one in node.attribute if one.name == "upper"), 1)
        *batch, rows, columns = self.shapes[node.input[0]]
        whole = np.ones((1, rows, columns), np.bool_)
        mask = np.triu(whole, diagonal) if upper else np.tril(whole, diagonal)
        made: list[Any] = []
        value = self._reshape(node.input[0], (math.prod(batch), rows, columns), made)
        chosen = [self._constant(mask), value, self._constant(np.zeros(1, np.float32))]
        value = self._node("Where", chosen, made)
        self._reshape(value, self.shapes[node.output[0]], made, node.output[0])
        return made

    def _negation(self, node: Any) -> list[Any] | None:
        shape = self.shapes[node.input[0]]
        if len(shape) <= MOST_NEGATED:
            return None
        made: list[Any] = []
        value = self._reshape(node.input[0], (math.prod(shape[:-1]), shape[-1]), made)
        self._reshape(self._node("Neg", [value], made), shape, made, node.output[0])
        return made

    def _other_shape(self, node: Any) -> list[Any] | None:
        shape = self.shapes[node.output[0]]
        if max(len(shape), len(self.shapes[node.input[0]])) <= MOST_AXES:
            return None
        made: list[Any] = []
        self._reshape(node.input[0], shape, made, node.output[0])
        return made

    def _arithmetic(self, node: Any) -> list[Any] | None:
        """Join neighboring axes along which either both operands or the same one has a single row."""
        result = self.shapes[node.output[0]]
        shapes = [(1,) * (len(result) - len(self.shapes[name])) + self.shapes[name] for name in node.input]
        joined: list[list[int]] = []
        before: list[bool] = []
        for sizes in zip(*shapes, strict=True):
            single = [size == 1 for size in sizes]
            if all(single):
                continue
            if joined and single == before:
                joined[-1] = [one * size for one, size in zip(joined[-1], sizes, strict=True)]
            else:
                joined.append(list(sizes))
            before = single
        if len(result) <= MOST_AXES or not 0 < len(joined) <= MOST_AXES:
            return None
        made: list[Any] = []
        given = [
            self._reshape(name, shape, made)
            for name, shape in zip(node.input, zip(*joined, strict=True), strict=True)
        ]
        self._reshape(self._node(node.op_type, given, made), result, made, node.output[0])
        return made

    def _along_axes(self, node: Any) -> list[Any] | None:
        """Cut or sum up along neighboring axes as along the second of three."""
        from onnx import helper, numpy_helper

        shape = self.shapes[node.input[0]]
        attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        constants = {one.name: one for one in self.graph.initializer}
        name = "axis" if node.op_type == "Split" else "axes"
        given = constants.get(node.input[1]) if name == "axes" and len(node.input) > 1 else None  # by opset
        named = attributes.pop(name, 0 if name == "axis" else ()) if given is None else numpy_helper.to_array(given)
        axes = sorted(int(axis) % len(shape) for axis in np.atleast_1d(named))
        if len(shape) <= MOST_AXES or not axes or axes != list(range(axes[0], axes[-1] + 1)):
            return None
        first, last = axes[0], axes[-1] + 1
        sizes = (math.prod(shape[:first]), math.prod(shape[first:last]), math.prod(shape[last:]))
        made: list[Any] = []
        inputs = [self._reshape(node.input[0], sizes, made), *node.input[1:]]
        if given is not None:
            inputs[1] = self._constant(np.array([1], np.int64))
        else:
            attributes[name] = 1 if name == "axis" else [1]
        outputs = [self._name() for _ in node.output]
        made.append(helper.make_node(node.op_type, inputs, outputs, name=self._name(), **attributes))
        for output, wanted in zip(outputs, node.output, strict=True):
            self._reshape(output, self.shapes[wanted], made, wanted)
        return made

    def _einsum(self, node: Any) -> list[Any] | None:
        equation = next(one.s.decode() for one in node.attribute if one.name == "equation").replace(" ", "")
        shapes = [self.shapes[name] for name in node.input]
        terms = _terms(equation, [len(shape) for shape in shapes])
        if terms is None or len(shapes) > 2:
            return None
        given, result = terms
        made: list[Any] = []
        if len(given) == 1:
            if set(given[0]) != set(result):
                return None
            value = self._moved(node.input[0], shapes[0], [given[0].index(label) for label in result], made)
            self._reshape(value, self.shapes[node.output[0]], made, node.output[0])
            return made
        pairs = {pair for term, shape in zip(given, shapes, strict=True) for pair in zip(term, shape, strict=True)}
        sizes = dict(pairs)
        if len(sizes) < len(pairs):
            return None  # an axis of size 1 is repeated
        return self._product(node, given, result, sizes, made)

    def _product(
        self,
        node: Any,
        given: Sequence[Sequence[str]],
        result: Sequence[str],
        sizes: Mapping[str, int],
        made: list[Any],
    ) -> list[Any] | None:
        left, right = given
        both = [label for label in left if label in right]
        rows, columns = ([label for label in term if label not in both] for term in (left, right))
        if not {*rows, *columns} <= set(result):
            return None  # an axis of one operand alone is summed
        kept, summed = ([label for label in both if (label in result) is there] for there in (True, False))
        count = [math.prod(sizes[label] for label in labels) for labels in (kept, rows, columns, summed)]
        one = self._ordered(node.input[0], left, (kept, rows, summed), sizes, made)
        other = self._ordered(node.input[1], right, (kept, summed, columns), sizes, made)
        one = self._reshape(one, (count[0], count[1], count[3]), made)
        other = self._reshape(other, (count[0], count[3], count[2]), made)
        product = self._node("MatMul", [one, other], made)
        labels = [*kept, *rows, *columns]
        shape = tuple(sizes[label] for label in labels)
        value = self._moved(product, shape, [labels.index(label) for label in result], made)
        self._reshape(value, self.shapes[node.output[0]], made, node.output[0])
        return made

    def _ordered(
        self,
        value: str,
        term: Sequence[str],
        parts: Sequence[Sequence[str]],
        sizes: Mapping[str, int],
        made: list[Any],
    ) -> str:
        order = [term.index(label) for part in parts for label in part]
        return self._moved(value, tuple(sizes[label] for label in term), order, made)

    # Nodes

    def _name(self) -> str:
        self._number += 1
        return f"rewritten_{self._number}"

    def _node(self, kind: str, inputs: Sequence[str], made: list[Any], output: str = "", **attributes: Any) -> str:
        from onnx import helper

        name = self._name()
        output = output or name
        made.append(helper.make_node(kind, list(inputs), [output], name=name, **attributes))
        return output

    def _constant(self, array: Any) -> str:
        from onnx import numpy_helper

        name = f"{self._name()}_constant"
        self.graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def _reshape(self, value: str, shape: Shape, made: list[Any], output: str = "") -> str:
        output = self._node("Reshape", [value, self._constant(np.array(shape, np.int64))], made, output)
        self.shapes[output] = shape
        return output

    def join_reshapes(self) -> None:
        """Let a Reshape that follows another begin at what that one reads, and drop those that nothing reads then."""
        by_output = {node.output[0]: node for node in self.graph.node if node.op_type == "Reshape"}
        for node in self.graph.node:
            if node.op_type == "Reshape" and node.output[0] in self.shapes:
                self._state_shape(node)
                while before := by_output.get(node.input[0]):
                    node.input[0] = before.input[0]
        used = Counter(name for node in self.graph.node for name in node.input)
        used.update(one.name for one in self.graph.output)
        for node in reversed(list(self.graph.node)):
            if node.op_type == "Reshape" and not used[node.output[0]]:
                used.subtract(node.input)
                self.graph.node.remove(node)

    def drop_unused_constants(self) -> None:
        """Remove constants that no node reads, of which ONNX Runtime warns."""
        used = {name for node in self.graph.node for name in node.input} | {one.name for one in self.graph.output}
        kept = [one for one in self.graph.initializer if one.name in used]
        del self.graph.initializer[:]
        self.graph.initializer.extend(kept)

    def _state_shape(self, node: Any) -> None:
        """Give a Reshape its shape in numbers: 0 and -1 depend on what it reads."""
        node.input[1] = self._constant(np.array(self.shapes[node.output[0]], np.int64))


def merged(shape: Shape, order: Sequence[int]) -> tuple[Shape, tuple[int, ...]]:
    """Return a shape of fewer axes and their order, which move the same values: axes of size 1 are left out, and axes
    that stay side by side are one."""
    kept = [axis for axis in range(len(shape)) if shape[axis] != 1]
    moved = [kept.index(axis) for axis in order if shape[axis] != 1]
    runs: list[list[int]] = []
    for axis in moved:
        if runs and axis == runs[-1][-1] + 1:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    first = sorted(run[0] for run in runs)
    sizes = {run[0]: math.prod(shape[kept[axis]] for axis in run) for run in runs}
    return tuple(sizes[axis] for axis in first), tuple(first.index(run[0]) for run in runs)


def steps(shape: Shape, order: Sequence[int]) -> Iterator[tuple[Shape, tuple[int, ...]]]:
    """Yield shapes and orders of at most `MOST_AXES` axes that transpose one after the other as `order` does."""
    if list(order) == sorted(order):
        return
    if len(shape) <= MOST_AXES:
        yield shape, tuple(order)
        return
    axes = list(range(len(shape)))
    for place, axis in enumerate(order):
        at = axes.index(axis)
        if at == place:
            continue
        parts = (axes[:place], axes[place:at], axes[at : at + 1], axes[at + 1 :])
        yield tuple(math.prod(shape[one] for one in part) for part in parts), (0, 2, 1, 3)
        axes = [*parts[0], *parts[2], *parts[1], *parts[3]]


def _terms(equation: str, ranks: Sequence[int]) -> tuple[list[list[str]], list[str]] | None:
    """Return the labels of the operands and of the result, with numbers for the axes of an ellipsis; None if a label
    is there twice or the equation can't be read."""
    given, arrow, result = equation.partition("->")
    operands = given.split(",")
    if not arrow or len(operands) != len(ranks):
        return None
    widest = 0
    found: list[list[str]] = []
    for operand, rank in zip(operands, ranks, strict=True):
        width = rank - len(operand.replace("...", ""))
        widest = max(widest, width)
        head, dots, tail = operand.partition("...")
        if width < 0 or (width and not dots):
            return None
        found.append([*head, *(str(number) for number in range(width)), *tail])
    head, dots, tail = result.partition("...")
    wanted = [*head, *(str(number) for number in range(widest if dots else 0)), *tail]
    widths = {sum(label.isdigit() for label in term) for term in found}
    if any(len(set(term)) < len(term) for term in (*found, wanted)) or len(widths) > 1 + (0 in widths):
        return None
    return found, wanted
