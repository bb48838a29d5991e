"""Where the nodes of a model's file ran, from the runtime's report.

`counted` in `hardware/workers/web/placement.mjs` is the same function in JavaScript, for pages without Python. Tests
compare both on the same logs.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WHOLE = " of whole numbers"
"""Suffix of an operator that reads no floating-point number: indices, shapes and masks, never activations."""

MEMCPY_OPERATORS = ("MemcpyToHost", "MemcpyFromHost")
"""Nodes that the runtime inserts between providers: they compute nothing."""

REARRANGING_OPERATORS = ("Transpose", "Reshape", "Squeeze", "Unsqueeze")
"""Nodes that the runtime drops, merges and adds when a provider wants another layout, even without optimizations.
They move numbers and compute none."""

_OF_SHAPES = ("Shape", "Size")
"""Operators that read no number of their input."""


class Incomplete(Exception):
    """The runtime's report is incomplete and proves nothing. The message says what is missing."""


@dataclass(frozen=True, kw_only=True)
class NodePlacement:
    """Number of nodes of each operator, by its name in evidence, on the target and on the host."""

    native: Mapping[str, int]
    host: Mapping[str, int]


def operator_in(kind: str) -> str:
    """Return ONNX's name of an operator of evidence."""
    return kind.removeprefix("onnx.").removesuffix(WHOLE)


def placement(report: Mapping[str, Any], nodes: Mapping[str, str], target_provider: str) -> NodePlacement:
    """Return the placement of a file whose `nodes` (`operators_of`) are known.

    `report["providers"]` has for each provider the number of its nodes (`stated`), whether they are `all`, and
    `listed` nodes as operator and name; `report["taken"]` has the same for nodes that a provider fuses. Nodes count
    for the target if it lists them, or if it fuses and says that it takes them. A node that the runtime replaced is
    matched by another one of its operator. Raises `Incomplete`.
    """
    if nodes or report["providers"]:  # a file of constants alone has no nodes, and no list of them
        _require_complete(report)
    needed = [name for name, kind in nodes.items() if operator_in(kind) not in REARRANGING_OPERATORS]
    found = _Counting(nodes)
    fused = False
    listed_names = set()
    for provider, one in report["providers"].items():
        native = provider == target_provider
        if one["all"] and (not native or one["stated"] >= len(needed)):
            for name in nodes:
                found.count(name, "", native=native)
        fused |= one["all"] and native and one["stated"] < len(needed)
        for operator, name in one["listed"]:
            if operator in MEMCPY_OPERATORS:
                continue
            listed_names.add(name)
            if native and name.startswith(f"{provider}_{operator}_"):
                fused = True
            else:
                found.count(name, operator, native=native)
    for operator, name in report["taken"]["listed"] if fused else ():
        if name not in listed_names:
            found.count(name, operator, native=True)
    found.require(needed)
    return NodePlacement(native=dict(found.native), host=dict(found.host))


def _require_complete(report: Mapping[str, Any]) -> None:
    """Raise `Incomplete` if a list is shorter than its stated number, as it is when the log lost a line."""
    if not report["providers"]:
        raise Incomplete("the runtime's log doesn't show where the nodes ran")
    for provider, one in report["providers"].items():
        if one["all"] and len(report["providers"]) > 1:
            raise Incomplete(
                f"the runtime's log is incomplete: {provider} reports all nodes, but other providers report some too"
            )
        if not one["all"] and len(one["listed"]) != one["stated"]:
            listed = f"it lists {len(one['listed'])} of {one['stated']} nodes of {provider}"
            raise Incomplete(f"the runtime's log is incomplete: {listed}")
    taken = report["taken"]
    if len(taken["listed"]) != taken["stated"]:
        listed = f"it lists {len(taken['listed'])} of {taken['stated']} fused nodes"
        raise Incomplete(f"the runtime's log is incomplete: {listed}")


class _Counting:
    """Nodes counted so far: `beyond` are nodes that aren't the file's."""

    def __init__(self, nodes: Mapping[str, str]) -> None:
        self.nodes = nodes
        self.seen: set[str] = set()
        self.native: Counter[str] = Counter()
        self.host: Counter[str] = Counter()
        self.beyond: Counter[str] = Counter()

    def count(self, name: str, operator: str, *, native: bool) -> None:
        if name in self.nodes:
            self.seen.add(name)
        else:
            self.beyond[operator] += 1
        (self.native if native else self.host)[self.nodes.get(name, f"onnx.{operator}")] += 1

    def require(self, names: Iterable[str]) -> None:
        """Raise `Incomplete` unless each node was counted, or another node of its operator that isn't the file's."""
        for name in names:
            operator = operator_in(self.nodes[name])
            if name in self.seen:
                continue
            if not self.beyond[operator]:
                missing = f"it doesn't show where {operator} ({name}) ran"
                raise Incomplete(f"the runtime's log is incomplete: {missing}")
            self.beyond[operator] -= 1


@functools.lru_cache(maxsize=16)
def operators_of(file: Path) -> Mapping[str, str]:
    """Return the operator of each node, by its name in evidence; with `WHOLE` if it reads only integers.

    A node without a name has its position as name. Constants are left out: to the runtime they are no nodes.
    """
    import onnx

    graph = onnx.shape_inference.infer_shapes(onnx.load(str(file))).graph
    types = {one.name: one.type.tensor_type.elem_type for one in (*graph.input, *graph.output, *graph.value_info)}
    types |= {one.name: one.data_type for one in graph.initializer}
    floating = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)
    found = {}
    for place, node in enumerate(graph.node):
        if node.op_type == "Constant":
            continue
        kinds = [types.get(name, onnx.TensorProto.FLOAT) for name in node.input if name]
        whole = node.op_type in _OF_SHAPES or not any(kind in floating for kind in kinds)
        found[node.name or str(place)] = f"onnx.{node.op_type}{WHOLE if whole else ''}"
    return found
