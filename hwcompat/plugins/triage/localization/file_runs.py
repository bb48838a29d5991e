"""The runs of a user's `.onnx` file on a target and in its reference, with the values of all nodes."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hwcompat.hardware.backends.base import Runnable
from hwcompat.hardware.testing.graph_ladder import Ladder
from hwcompat.hardware.testing.graph_weights import parts_of

from .graph_nodes import Values
from .onnx_nodes import OnnxRuns, given_by

if TYPE_CHECKING:
    from hwcompat.hardware.compare import Array
    from hwcompat.hardware.testing.graph_reference import GraphReference

_FEW = 64
"""Entries of an integer tensor up to which it may be a shape, which some runtimes take only as a constant."""
_MOST_LOADS = 40
"""Files that are tried to find nodes that the runtime computes."""


class FileRuns(OnnxRuns):
    """The runs of a user's file; `load` opens one on the target. With `flattens` the branches that these inputs take
    are part of the graph, which is then `is_flat`."""

    method = ""

    def __init__(
        self,
        file: Path,
        inputs: Mapping[str, Array],
        *,
        load: Callable[[Path, Mapping[str, Array]], Runnable],
        folder: Path,
        flattens: bool = True,
    ) -> None:
        def computed(path: Path, arrays: Mapping[str, Array]) -> Values:
            opened = load(path, arrays)
            try:
                found = dict(opened(**arrays))
                kinds = {name: one.dtype for name, one in self._known.items() if name in found}
                return {name: one.astype(kinds.get(name, one.dtype)) for name, one in found.items()}
            finally:
                opened.close()

        super().__init__(file, inputs, computed, folder)
        self._load = load
        self.is_flat = flattens and self._flatten()
        self.read_nodes()

    def _flatten(self) -> bool:
        """Write local functions and the taken branches into the graph; return whether it had branches."""
        import onnx

        if self._model.functions:
            self._model = onnx.inliner.inline_local_functions(self._model)
        had = False
        while branches := [node for node in self._model.graph.node if node.op_type == "If"]:
            had = True
            conditions = [node.input[0] for node in branches]
            taken = self._values_of(conditions)
            for node in branches:
                _inline(self._model.graph, node, bool(np.all(taken[node.input[0]])))
        self.device_model = self._model
        return had

    def _values_of(self, names: Sequence[str]) -> dict[str, Array]:
        """Return these tensors as the first implementation that loads the file computes them."""
        import onnx

        model = copy.deepcopy(self._model)
        held = {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer}
        wanted = [name for name in dict.fromkeys(names) if name not in {**held, **self._inputs}]
        del model.graph.output[:]
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted)
        found = Ladder(model, self._write_model(model)).first(self._inputs) if wanted else {}
        return {**held, **self._inputs, **found}

    def of_reference(self, reference: GraphReference) -> Values:
        """Return the tensors of all nodes as the reference's method computes them. Of the implementations that agree
        on the file's outputs the most exact one is taken, as for the file itself."""
        names = [name for name in given_by(self._model.graph) if name]
        plain = self._values_of(names)
        self._known = {**self._inputs, **{name: plain[name] for name in names if isinstance(plain[name], np.ndarray)}}
        file = self._exposed(self._model, {name: self._info(name) for name in self._known})
        is_quantized = reference.computes_in == "int8"
        scales = {name: reference.scales.get(name, math.inf) for name in names}
        exposed: Any = _load_whole(file)
        found = Ladder(exposed, file, is_quantized=is_quantized).trusted(self._inputs, scales)
        arrays = found.arrays if found else plain
        arrays = {name: one.astype(self._known[name].dtype) for name, one in arrays.items() if name in self._known}
        self.method = f"the same file in {found.method}" if found else "the same file in float32 by ONNX Runtime"
        return {name: one for name, one in arrays.items() if one.dtype.kind in "fiub"}

    def on_device(self) -> Values:
        def observed(names: Sequence[str]) -> Values:
            return self._compute(self._exposed(self.device_model, {n: self._info(n) for n in names}), self._inputs)

        return _in_parts([*self._known], observed)

    def apart(self, given: Values, kept: Sequence[int] | None = None) -> Values:
        numbers = [n for n, node in enumerate(self.device_model.graph.node) if node.op_type != "Constant"]
        return _in_parts(numbers, lambda part: super(FileRuns, self).apart(given, part))

    def _as_constant(self, array: Array) -> bool:
        return array.dtype.kind in "iu" and array.ndim <= 1 and array.size <= _FEW

    def loads(self, count: int) -> bool:
        """Return whether the runtime loads the first `count` nodes, with all that no later one reads as outputs."""
        model = copy.deepcopy(self._model)
        kept = [node for node in model.graph.node if node.op_type == "Constant"]
        kept = [*kept, *[node for node in model.graph.node if node.op_type != "Constant"][:count]]
        taken = {name for node in kept for part in (node, *_inner(node)) for name in part.input}
        outputs = [name for node in kept for name in node.output if name in self._known and name not in taken]
        if not outputs:
            return True
        del model.graph.node[:], model.graph.output[:]
        model.graph.node.extend(kept)
        model.graph.output.extend(self._info(name) for name in outputs)
        read = {name for part in parts_of(model.graph, type(model.graph.node[0])) for name in part.input}
        for unread in [one for one in model.graph.input if one.name not in read]:
            model.graph.input.remove(unread)
        names = {one.name for one in model.graph.input}
        try:
            opened = self._load(self._write_model(model), {n: one for n, one in self._inputs.items() if n in names})
        except Exception:  # each runtime has error classes of its own
            return False
        opened.close()
        return True


def _in_parts(parts: Sequence[Any], run: Callable[[Sequence[Any]], Values]) -> Values:
    """Return what `run` returns for all parts, or for each half of those that it refuses. Raises its last error if
    it refuses everything."""
    found: dict[str, Array] = {}
    last: Exception = RuntimeError("nothing was run")
    waiting = [parts]
    for _ in range(_MOST_LOADS):
        if not waiting:
            break
        tried = waiting.pop(0)
        try:
            found |= run(tried)
        except Exception as error:  # each runtime has error classes of its own
            last, half = error, len(tried) // 2
            waiting += [one for one in (tried[:half], tried[half:]) if half]
    if not found:
        raise last
    return found


def _load_whole(file: Path) -> Any:
    import onnx

    return onnx.load(str(file))


def _inner(node: Any) -> Iterator[Any]:
    """Yield the nodes inside of a node's subgraphs."""
    return (part for part in parts_of(node, type(node)) if part is not node)


def _inline(graph: Any, node: Any, condition: bool) -> None:
    """Replace an If node by the nodes of one of its branches."""
    import onnx

    wanted = "then_branch" if condition else "else_branch"
    branch = next(one.g for one in node.attribute if one.name == wanted)
    place = list(graph.node).index(node)
    results = zip(node.output, branch.output, strict=True)
    ends = [onnx.helper.make_node("Identity", [one.name], [name], f"{node.name}/{name}") for name, one in results]
    graph.initializer.extend(branch.initializer)
    nodes = [*graph.node[:place], *branch.node, *ends, *graph.node[place + 1 :]]
    nodes = [copy.deepcopy(one) for one in nodes]
    del graph.node[:]
    graph.node.extend(nodes)
