"""Decide who is responsible for a level that isn't high: the model, the route, the device or the set-up."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence

from hwcompat.hardware.backends.factory import backend_class, known_targets
from hwcompat.hardware.cell import GRAPH_TASK, Cell, parsed
from hwcompat.hardware.evidence.error_types import facts_of_error_types
from hwcompat.hardware.evidence.record import CheckLine, Outcome, Stage
from hwcompat.hardware.target import Target

from .verdict import Fault, Level
from .vocabulary import not_computed

_MAX_ERROR_RATIO = 2.0
"""A device whose error is at most this many times the CPU's fails as the CPU does: the model is at fault."""

ROUTE_STAGES = (Stage.EXPORT, Stage.CONVERT)

_ROUTES = {"optimum-intel": "optimum-export", "torchscript": "onnx-torchscript", "dynamo": "onnx-dynamo"}
"""Names of routes by what backends record as `export`; other values are routes already."""

_DECISIVE = frozenset(o for o in Outcome if o.is_failure or o is Outcome.PASSED)


def route_of(cell: Cell, lines: Iterable[CheckLine]) -> str:
    """Return how the model got to the target, as its results recorded it; empty if they don't."""
    for line in lines:
        route = line.conditions.get("route") or line.conditions.get("export")
        if route:
            return _ROUTES.get(route, route)
    return default_route(cell)


def default_route(cell: Cell) -> str:
    """Return the route that a cell's target always takes; empty if it has several or isn't known."""
    return backend_class(cell.target.name).ROUTE if cell.target.name in known_targets() else ""


def reference_cells(lines: Iterable[CheckLine]) -> dict[tuple[str, str], list[Cell]]:
    """Return the cells on the CPU that have results, by model and task: failures elsewhere are compared with them."""
    found: dict[tuple[str, str], list[Cell]] = {}
    for id_ in dict.fromkeys(line.cell_id for line in lines if line.requested_target == "cpu"):
        if cell := parsed(id_):  # otherwise reported as broken evidence
            found.setdefault((cell.model, cell.task), []).append(cell)
    return found


def fault_of(cell: Cell, level: Level, lines: Sequence[CheckLine], references: Sequence[CheckLine]) -> Fault | None:
    """Return who is responsible for the failures of a cell; None if nothing failed or it isn't known yet.

    One failure of the device makes it the device's fault. After that, an undecided failure leaves the fault open;
    then the route counts before the model, and the model before the set-up.
    """
    failures = [line for line in lines if line.outcome.is_failure]
    if level is Level.HIGH or not failures:
        return Fault.DEVICE if level is Level.LOW and any(line.offloaded_ops for line in lines) else None
    found = [_fault_of_line(cell, line, references) for line in failures]
    for fault in (Fault.DEVICE, None, Fault.ROUTE, Fault.MODEL, Fault.HARNESS):
        if fault in found:
            return fault
    return None


def _fault_of_line(cell: Cell, line: CheckLine, references: Sequence[CheckLine]) -> Fault | None:
    known = _fault_without_reference(cell, line)
    if known is not None and not (known is Fault.ROUTE and line.outcome.is_breakdown):
        return known  # a process that dies or hangs while a model is exported may do so in the model
    same = [
        one
        for one in references
        if (one.check_name, one.subject) == (line.check_name, line.subject)
        and one.outcome in _DECISIVE
        and _fault_without_reference(cell, one) is not Fault.HARNESS
    ]
    if cell.target.name == "cpu":
        return known or _fault_on_cpu(cell, line, [one for one in same if one.precision != line.precision])
    if not any(one.precision == cell.precision for one in same):
        computes = not not_computed(Target(name="cpu"), cell.precision, cell.task)
        passed = any(one.outcome is Outcome.PASSED for one in same)
        return known or (Fault.DEVICE if passed and not computes else None)
    if all(_fails_alike(line, one) for one in same):
        return Fault.HARNESS if line.outcome is Outcome.TIMEOUT else Fault.MODEL
    return known or Fault.DEVICE


def _fails_alike(line: CheckLine, reference: CheckLine) -> bool:
    """Whether the CPU's result is a failure too, by the tolerance of `line`, and not a milder one."""
    error, limit = reference.max_rel_error, line.tolerance
    exceeds = error is not None and limit is not None and error > limit
    return (reference.outcome.is_failure or exceeds) and not _is_worse(line, reference)


def _fault_on_cpu(cell: Cell, line: CheckLine, others: Sequence[CheckLine]) -> Fault:
    """Return the fault of a failure on the CPU: the model, unless the CPU computes the check in another precision. A
    graph file has no code of its own: its runtime is at fault."""
    if line.outcome is Outcome.TIMEOUT:
        return Fault.HARNESS
    passed = any(one.outcome is Outcome.PASSED for one in others)
    is_file = cell.task == GRAPH_TASK
    return Fault.DEVICE if is_file or passed or line.outcome is Outcome.OUT_OF_MEMORY else Fault.MODEL


def _fault_without_reference(cell: Cell, line: CheckLine) -> Fault | None:
    """Return the fault that a failure shows without a result of the CPU."""
    named = _by_error_type().get(line.error_type)
    if named is not None:
        return named
    if line.stage in ROUTE_STAGES and default_route(cell) != "eager":
        return Fault.ROUTE
    return None


@functools.cache
def _by_error_type() -> Mapping[str, Fault]:
    facts = facts_of_error_types()
    return {name: Fault(facts[name]["fault"]) for name in facts if "fault" in facts[name]}


def _is_worse(line: CheckLine, reference: CheckLine) -> bool:
    """Whether the device fails in another way than the CPU: another error type, a larger error, or another stage."""
    if {line.error_type, reference.error_type}.isdisjoint(
        {"", "unknown"}
    ) and line.error_type != reference.error_type:
        return True
    if line.max_rel_error is None or reference.max_rel_error is None:
        same_stage = line.stage is reference.stage or line.outcome.is_breakdown  # torch on the CPU compiles nothing
        return not same_stage or line.outcome is not reference.outcome
    return not line.max_rel_error <= _MAX_ERROR_RATIO * reference.max_rel_error
