"""Compares a converted graph node by node.

Two questions are kept apart. Whether the graph itself is right: its values on the runtime's own CPU in float32 are
looked for among the tensors that torch computes in float64. And whether a device computes it: there every node is
given the CPU's values, so that an error doesn't reach the next one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hardware.compare import ReferenceNotFinite, compare

from .comparing import error_of
from .result import Finding, Localization, Place
from .traced import TracedValues

if TYPE_CHECKING:
    from hardware.compare import Array

Values = Mapping[str, "Array"]
_MOST_OTHERS = 20


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node of a graph: its name, operator, the module of torch that it comes from where the name tells, and the
    names of the tensors that it takes from other nodes and gives."""

    name: str
    operator: str
    module: str
    takes: tuple[str, ...]
    gives: tuple[str, ...]


class GraphRuns(ABC):
    """A converted graph and the ways to run it. Values are arrays by the name of the tensor; whole numbers may be
    missing where a device gives none."""

    nodes: Sequence[Node]

    @abstractmethod
    def on_cpu(self) -> Values:
        """The values of all nodes on the runtime's own CPU in float32, of the graph as it was converted."""

    @abstractmethod
    def on_device(self) -> Values:
        """The values of all nodes on the device."""

    @abstractmethod
    def apart(self, given: Values) -> Values:
        """The same, where each node is given these values instead of what other nodes give."""

    @abstractmethod
    def outputs(self, values: Values) -> dict[str, Array]:
        """The model's outputs among values, by the model's own names."""

    @abstractmethod
    def plain(self) -> dict[str, Array]:
        """The model's outputs on the device in an ordinary run."""


def localize_graph(
    runs: GraphRuns,
    traced: TracedValues,
    want: Mapping[str, Array],
    *,
    cell: str,
    tolerance: float,
    precision: str,
    masks: Mapping[str, Array],
    padding: Sequence[Array] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> Localization:
    """The first node that is wrong by itself: `want` are the outputs in float64, `traced` what led to them."""
    cpu = runs.on_cpu()
    matched = {name for name, array in cpu.items() if array.dtype.kind == "f" and traced.find(array) is not None}
    floats = [node for node in runs.nodes if any(_is_float(cpu, one) for one in node.gives)]
    vouched = sum(any(one in matched for one in node.gives) for node in floats)
    found = Localization(
        cell=cell,
        finding=Finding.AGREES,
        granularity="node",
        reference="the same graph on the runtime's own CPU in float32; "
        f"of its {len(floats)} nodes with numbers, {vouched} give a tensor of torch's in float64",
        tolerance=tolerance,
        outputs_error=None,
        left_out=len(runs.nodes) - len(floats),
    )
    on_cpu = _error(runs.outputs(cpu), want, masks)
    if not on_cpu <= tolerance:
        return _in_the_graph(replace(found, outputs_error=on_cpu), runs.nodes, cpu, matched, traced)
    found = replace(found, outputs_error=_error(runs.plain(), want, masks))
    return _on_the_device(found, runs, cpu, precision, padding, progress)


def _error(got: Mapping[str, Array], want: Mapping[str, Array], masks: Mapping[str, Array]) -> float:
    shared = tuple(name for name in got if name in want)
    try:
        return compare(got, want, masks=masks, required=shared).max_rel_error if shared else math.inf
    except ReferenceNotFinite:
        return math.inf


def _is_float(values: Values, name: str) -> bool:
    return name in values and values[name].dtype.kind == "f"


def _in_the_graph(
    found: Localization, nodes: Sequence[Node], cpu: Values, matched: set[str], traced: TracedValues
) -> Localization:
    """The conversion is wrong: the first node whose value torch has nowhere, nor that of anything computed from it,
    though what it takes is right."""
    takers: dict[str, list[Node]] = {}
    for node in nodes:
        for one in node.takes:
            takers.setdefault(one, []).append(node)
    sound: set[str] = set()  # tensors that are torch's, or from which such a tensor is computed
    for node in reversed(nodes):
        below = any(one in sound for name in node.gives for taker in takers.get(name, ()) for one in taker.gives)
        if below or any(name in matched for name in node.gives):
            sound.update(node.gives)
    made = {name for node in nodes for name in node.gives}
    computed = [node for node in nodes if any(_is_float(cpu, one) for one in node.gives)]
    found = replace(found, compared=len(computed), notes=("the converted graph itself is wrong, on any device",))
    broken = [
        node
        for node in computed
        if not sound.intersection(node.gives)
        and all(one in sound or one not in made or not _is_float(cpu, one) for one in node.takes)
    ]
    if not broken:
        return replace(found, finding=Finding.UNNAMED)
    # Its value may be that of an operator which the runtime has fused: what it is only part of belongs to it.
    first = broken[0]
    places = [_place(node, cpu, None, cpu, own=None) for node in broken]
    within = tuple(one.name for one in computed if one.module == first.module and one not in broken[:1])
    return replace(
        found,
        finding=Finding.NAMED,
        place=replace(places[0], within=within[:_MOST_OTHERS]),
        others=tuple(places[1 : 1 + _MOST_OTHERS]),
    )


def _on_the_device(
    found: Localization,
    runs: GraphRuns,
    cpu: Values,
    precision: str,
    padding: Sequence[Array],
    progress: Callable[[str], None],
) -> Localization:
    how: dict[str, Any] = {"precision": precision, "tolerance": found.tolerance}
    whole = found.outputs_error is not None and found.outputs_error <= found.tolerance
    progress("all nodes at once")
    together = runs.on_device()
    progress("all nodes apart")
    alone = runs.apart(cpu)
    for ruled_out in (padding, ()):  # where padding is what is wrong, it is looked at as well
        how["padding"] = ruled_out
        ordinary, own = (_errors(values, cpu, **how, finite=not whole) for values in (together, alone))
        if whole or not all(error <= found.tolerance for error in own.values()):
            break

    def place(node: Node) -> Place:
        before = max((ordinary[one] for one in node.takes if one in ordinary), default=None)
        return _place(node, alone, cpu=cpu, errors=ordinary, own=own, input_error=before)

    compared = [node for node in runs.nodes if any(one in own for one in node.gives)]
    wrong = [node for node in compared if any(not own[one] <= found.tolerance for one in node.gives if one in own)]
    ranked = max(
        (node for node in runs.nodes if any(one in ordinary for one in node.gives)),
        key=lambda node: max(ordinary[one] for one in node.gives if one in ordinary),
        default=None,
    )
    found = replace(
        found,
        compared=len(compared),
        left_out=len(runs.nodes) - len(compared),
        largest=place(ranked) if ranked else None,
    )
    if wrong:
        places = [place(node) for node in wrong]
        return replace(found, finding=Finding.NAMED, place=places[0], others=tuple(places[1 : 1 + _MOST_OTHERS]))
    if whole:
        return found
    grown = [n for n in runs.nodes if any(not ordinary[one] <= found.tolerance for one in n.gives if one in ordinary)]
    if grown:
        return replace(found, finding=Finding.GROWS, place=place(grown[0]))
    why = "with all nodes watched the device agrees: what it does with several nodes at once is wrong"
    return replace(found, finding=Finding.UNNAMED, notes=(why,))


def _errors(got: Values, want: Values, **how: Any) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, one in want.items():
        if name in got and one.dtype.kind == "f":
            error = error_of(got[name], one, **how)
            if error is not None:
                found[name] = error
    return found


def _place(
    node: Node,
    got: Values,
    errors: Mapping[str, float] | None,
    cpu: Values,
    *,
    own: Mapping[str, float] | None,
    input_error: float | None = None,
) -> Place:
    names = [one for one in node.gives if own and one in own] or [one for one in node.gives if one in cpu]
    tensor = max(names, key=lambda one: (own or {}).get(one, 0.0), default=node.gives[0])
    have, want = got.get(tensor), cpu.get(tensor)
    return Place(
        name=node.name,
        kind=node.operator,
        tensor=tensor,
        own_error=own.get(tensor) if own else None,
        error=errors.get(tensor) if errors else None,
        input_error=input_error,
        shape=tuple(have.shape) if have is not None else (),
        dtype=str(have.dtype) if have is not None else "",
        expected_shape=tuple(want.shape) if want is not None else (),
        expected_dtype=str(want.dtype) if want is not None else "",
        module=node.module,
    )
