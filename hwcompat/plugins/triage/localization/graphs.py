"""Compares a converted graph node by node.

Two questions are kept apart. Whether the graph itself is right: its values on the runtime's own CPU in float32 are
looked for among the tensors that torch computes in float64. And whether a device computes it: there every node is
given the CPU's values, so that an error doesn't reach the next one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .comparing import error_of, outputs_error
from .result import MOST_OTHERS, Finding, Localization, Place
from .traced import TracedValues

if TYPE_CHECKING:
    from hardware.compare import Array

Values = Mapping[str, "Array"]
Errors = Mapping[str, float]


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
    values = runs.on_cpu()
    numbers = {name: array for name, array in values.items() if array.dtype.kind == "f"}
    matched = {name for name, array in numbers.items() if traced.has(array)}
    nodes = [node for node in runs.nodes if not numbers.keys().isdisjoint(node.gives)]
    vouched = sum(not matched.isdisjoint(node.gives) for node in nodes)
    found = Localization(
        cell=cell,
        finding=Finding.AGREES,
        granularity="node",
        reference="the same graph on the runtime's own CPU in float32; "
        f"of its {len(nodes)} nodes with numbers, {vouched} give a tensor of torch's in float64",
        tolerance=tolerance,
        outputs_error=outputs_error(runs.outputs(values), want, masks),
        left_out=len(runs.nodes) - len(nodes),
    )
    if not found.is_whole:
        return _in_the_graph(found, runs.nodes, nodes, numbers, matched)
    found = replace(found, outputs_error=outputs_error(runs.plain(), want, masks))
    progress("all nodes at once")
    together = runs.on_device()
    progress("all nodes apart")
    alone = runs.apart(values)
    how: dict[str, Any] = {"precision": precision, "tolerance": tolerance, "finite": not found.is_whole}
    for ruled_out in (padding, ()):  # where padding is what is wrong, it is looked at as well
        ordinary, own = (_errors(got, numbers, padding=ruled_out, **how) for got in (together, alone))
        if found.is_whole or not all(error <= tolerance for error in own.values()):
            break
    return _on_the_device(found, runs.nodes, ordinary, own, lambda node: _place(node, alone, values, own, ordinary))


def _in_the_graph(
    found: Localization, nodes: Sequence[Node], computed: Sequence[Node], numbers: Values, matched: set[str]
) -> Localization:
    """The conversion is wrong: the first node whose value torch has nowhere, nor that of anything computed from it,
    though what it takes is right."""
    sound = set(matched)  # tensors that are torch's, or from which such a tensor is computed
    for node in reversed(nodes):
        if not sound.isdisjoint(node.gives):
            sound.update(node.gives, node.takes)
    found = replace(found, compared=len(computed), notes=("the converted graph itself is wrong, on any device",))
    made = {name for node in computed for name in node.gives if name in numbers}
    broken = [n for n in computed if sound.isdisjoint(n.gives) and sound.issuperset(made.intersection(n.takes))]
    if not broken:
        return replace(found, finding=Finding.UNNAMED)
    # Its value may be that of an operator which the runtime has fused: what it is only part of belongs to it.
    first, *others = (_place(node, numbers, numbers, {}, {}) for node in broken)
    within = tuple(one.name for one in computed if one.module == first.module and one is not broken[0])
    return replace(
        found,
        finding=Finding.NAMED,
        place=replace(first, within=within[:MOST_OTHERS]),
        others=tuple(others[:MOST_OTHERS]),
    )


def _on_the_device(
    found: Localization, nodes: Sequence[Node], ordinary: Errors, own: Errors, place: Callable[[Node], Place]
) -> Localization:
    """What the device computes otherwise, from the errors of tensors in a run as it was and with nodes apart."""
    alone = [(node, error) for node in nodes if (error := _worst(own, node.gives)) is not None]
    together = [(node, error) for node in nodes if (error := _worst(ordinary, node.gives)) is not None]
    largest = max(together, key=lambda one: one[1], default=None)
    found = replace(
        found,
        compared=len(alone),
        left_out=len(nodes) - len(alone),
        largest=place(largest[0]) if largest else None,
    )
    wrong = [node for node, error in alone if not error <= found.tolerance]
    if wrong:
        others = tuple(place(node) for node in wrong[1 : 1 + MOST_OTHERS])
        return replace(found, finding=Finding.NAMED, place=place(wrong[0]), others=others)
    if found.is_whole:
        return found
    grown = next((node for node, error in together if not error <= found.tolerance), None)
    if grown:
        return replace(found, finding=Finding.GROWS, place=place(grown))
    why = "with all nodes watched the device agrees: what it does with several nodes at once is wrong"
    return replace(found, finding=Finding.UNNAMED, notes=(why,))


def _errors(got: Values, want: Values, **how: Any) -> dict[str, float]:
    errors = {name: error_of(got[name], one, **how) for name, one in want.items() if name in got}
    return {name: error for name, error in errors.items() if error is not None}


def _worst(errors: Errors, names: Sequence[str]) -> float | None:
    return max((errors[one] for one in names if one in errors), default=None)


def _place(node: Node, got: Values, want: Values, own: Errors, ordinary: Errors) -> Place:
    """A node with its tensor that is furthest off by itself."""
    names = [one for one in node.gives if one in (own or want)] or [one for one in node.gives if one in want]
    tensor = max(names, key=lambda one: own.get(one, 0.0), default=node.gives[0])
    have, expected = got.get(tensor), want.get(tensor)
    return Place(
        name=node.name,
        kind=node.operator,
        tensor=tensor,
        own_error=own.get(tensor),
        error=ordinary.get(tensor),
        input_error=_worst(ordinary, node.takes),
        shape=tuple(getattr(have, "shape", ())),
        dtype=str(getattr(have, "dtype", "")),
        expected_shape=tuple(getattr(expected, "shape", ())),
        expected_dtype=str(getattr(expected, "dtype", "")),
        module=node.module,
    )
