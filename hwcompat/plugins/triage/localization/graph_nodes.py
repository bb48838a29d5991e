"""Compare a converted graph node by node.

There are two separate questions. Is the graph right? Its values on the runtime's own CPU in float32 are searched for
among the tensors that torch computes in float64. Does the device compute it? On the device every node gets the CPU's
values, so that an error doesn't reach the next node.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hwcompat.hardware.model.calls import to_arrays
from hwcompat.hardware.testing import reference

from .localization_result import MOST_OTHERS, ErrorPlace, Localization, LocalizationOutcome
from .tensor_errors import error_of, outputs_error

if TYPE_CHECKING:
    import torch

    from hwcompat.hardware.compare import Array

FOUND = 1e-4
"""The largest error at which a value of a graph counts as one of torch's: the tolerance of an export."""

Values = Mapping[str, "Array"]
Errors = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class GraphNode:
    """A node of a graph: its name, operator, the module of torch in its name, and the names of the tensors that it
    reads from other nodes and gives."""

    name: str
    operator: str
    module: str
    takes: tuple[str, ...]
    gives: tuple[str, ...]


class GraphRuns(ABC):
    """A converted graph and the ways to run it. Values are arrays by the name of the tensor; integers may be missing
    if a device returns none."""

    nodes: Sequence[GraphNode]

    @abstractmethod
    def on_cpu(self) -> Values:
        """Return the values of all nodes of the converted graph on the runtime's own CPU in float32."""

    @abstractmethod
    def on_device(self) -> Values:
        """Return the values of all nodes on the device."""

    @abstractmethod
    def apart(self, given: Values) -> Values:
        """Return the values of all nodes on the device, with `given` as the inputs of each node."""

    @abstractmethod
    def outputs(self, values: Values) -> dict[str, Array]:
        """Return the model's outputs among values, by the model's own names."""

    @abstractmethod
    def plain(self) -> dict[str, Array]:
        """Return the model's outputs on the device in an ordinary run."""


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
    """Return the first wrong node: `want` are the model's outputs in float64, `traced` all its tensors."""
    values = runs.on_cpu()
    numbers = {name: array for name, array in values.items() if array.dtype.kind == "f"}
    matched = {name for name, array in numbers.items() if traced.has(array)}
    nodes = [node for node in runs.nodes if not numbers.keys().isdisjoint(node.gives)]
    vouched = sum(not matched.isdisjoint(node.gives) for node in nodes)
    found = Localization(
        cell=cell,
        finding=LocalizationOutcome.AGREES,
        granularity="node",
        reference="the same graph on the runtime's own CPU in float32; "
        f"{vouched} of its {len(nodes)} nodes with numbers match a float64 tensor of torch",
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
    for ruled_out in (padding, ()):  # if padding is what is wrong, it is compared as well
        ordinary, own = (_errors(got, numbers, padding=ruled_out, **how) for got in (together, alone))
        if found.is_whole or not all(error <= tolerance for error in own.values()):
            break
    return on_the_device(found, runs.nodes, ordinary, own, lambda node: place_of(node, alone, values, own, ordinary))


def _in_the_graph(
    found: Localization, nodes: Sequence[GraphNode], computed: Sequence[GraphNode], numbers: Values, matched: set[str]
) -> Localization:
    """Return the node at which the conversion goes wrong: the first one with right inputs whose value, and everything
    computed from it, differs from torch."""
    sound = set(matched)  # tensors that are torch's, or from which such a tensor is computed
    for node in reversed(nodes):
        if not sound.isdisjoint(node.gives):
            sound.update(node.gives, node.takes)
    found = replace(found, compared=len(computed), notes=("the converted graph itself is wrong, on any device",))
    made = {name for node in computed for name in node.gives if name in numbers}
    broken = [n for n in computed if sound.isdisjoint(n.gives) and sound.issuperset(made.intersection(n.takes))]
    if not broken:
        return replace(found, finding=LocalizationOutcome.UNNAMED)
    # The runtime may have fused several operators: then the wrong value belongs to all of its parts.
    first, *others = (place_of(node, numbers, numbers, {}, {}) for node in broken)
    within = tuple(one.name for one in computed if one.module == first.module and one is not broken[0])
    return replace(
        found,
        finding=LocalizationOutcome.NAMED,
        place=replace(first, within=within[:MOST_OTHERS]),
        others=tuple(others[:MOST_OTHERS]),
    )


def on_the_device(
    found: Localization,
    nodes: Sequence[GraphNode],
    ordinary: Errors,
    own: Errors,
    place: Callable[[GraphNode], ErrorPlace],
) -> Localization:
    """Return the node that the device computes wrongly, from errors in an ordinary run and with separate nodes."""
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
        return replace(found, finding=LocalizationOutcome.NAMED, place=place(wrong[0]), others=others)
    if found.is_whole:
        return found
    grown = next((node for node, error in together if not error <= found.tolerance), None)
    if grown:
        return replace(found, finding=LocalizationOutcome.GROWS, place=place(grown))
    why = "the device agrees while all nodes are observed, so the fault is in nodes that it fuses"
    return replace(found, finding=LocalizationOutcome.UNNAMED, notes=(why,))


def _errors(got: Values, want: Values, **how: Any) -> dict[str, float]:
    errors = {name: error_of(got[name], one, **how) for name, one in want.items() if name in got}
    return {name: error for name, error in errors.items() if error is not None}


def _worst(errors: Errors, names: Sequence[str]) -> float | None:
    return max((errors[one] for one in names if one in errors), default=None)


def place_of(node: GraphNode, got: Values, want: Values, own: Errors, ordinary: Errors) -> ErrorPlace:
    """Return a node with its tensor that has the largest error by itself."""
    names = [one for one in node.gives if one in (own or want)] or [one for one in node.gives if one in want]
    tensor = max(names, key=lambda one: own.get(one, 0.0), default=node.gives[0])
    have, expected = got.get(tensor), want.get(tensor)
    return ErrorPlace(
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


# The reference's tensors


class TracedValues:
    """The tensors of one float64 pass, found by their values."""

    def __init__(self, tensors: Iterable[Array], padding: Sequence[Array]) -> None:
        self._padding = padding
        self._by_size: dict[int, list[Array]] = {}
        for one in tensors:
            self._by_size.setdefault(one.size, []).append(one)

    def has(self, values: Array) -> bool:
        """Whether the reference has a tensor with these values in this order, of any shape."""
        how: dict[str, Any] = {"precision": "float32", "tolerance": FOUND, "padding": self._padding}
        wanted = (one.reshape(values.shape) for one in self._by_size.get(values.size, ()))
        errors = (error_of(values, one, **how) for one in wanted)
        return any(error is not None and error <= FOUND for error in errors)


def traced_values(
    model: torch.nn.Module, inputs: Mapping[str, Array], padding: Sequence[Array]
) -> tuple[TracedValues, dict[str, Array]]:
    """Run a reference (as `as_reference` makes it), and keep the outputs and every floating-point tensor that an
    operator returns. Attention is computed step by step, as in many converted graphs. Raises `ReferenceNotFinite`."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils._python_dispatch import TorchDispatchMode

    kept = [np.asarray(one) for one in inputs.values() if one.size > 1]  # graphs return their inputs too

    class Keeping(TorchDispatchMode):  # type: ignore[misc] # torch is Any to mypy
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            for one in (*(out if isinstance(out, tuple | list) else (out,)), *_inner(func, args, kwargs or {}, out)):
                if isinstance(one, torch.Tensor) and one.is_floating_point() and one.numel() > 1:
                    kept.append(to_arrays({"": one})[""].copy())
            return out

    with sdpa_kernel(SDPBackend.MATH), Keeping():
        outputs = reference.float64_outputs(model, inputs)
    return TracedValues(kept, padding), outputs


def _inner(func: Any, args: Any, kwargs: Mapping[str, Any], out: Any) -> list[Any]:
    """Yield tensors that torch computes inside of one operator and converted graphs in several nodes: products before
    their bias, and the input of a norm's scale."""
    import torch

    aten = torch.ops.aten
    if func is aten.addmm.default:
        return [args[1] @ args[2]]
    if func is aten.convolution.default and args[2] is not None:
        return [func(args[0], args[1], None, *args[3:], **kwargs)]
    if func is aten.native_layer_norm.default and args[2] is not None:
        return [out[0] - args[3] if args[3] is not None else out[0], func(args[0], args[1], None, None, args[4])[0]]
    return []
