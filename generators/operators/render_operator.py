"""Render the suite of an operator: a pure function from its calls and its cell to text."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jinja2

from hwcompat.generators.suites.render import environment
from hwcompat.hardware.cell import OPERATOR_TASK, Cell
from hwcompat.hardware.command_names import PROGRAM
from hwcompat.hardware.operators.call import Call, Tensor
from hwcompat.hardware.operators.numbers import NOT_COMPARED
from hwcompat.hardware.target import Target
from hwcompat.hardware.testing.suite_file import stamp

from .operator_variants import OperatorCalls

_SHOWN_TYPES = 6
_HEADINGS = {
    "seen": "As models call it, the most frequent first",
    "odd": "With an odd size",
    "large": "With a size that no tile of a kernel divides",
    "empty": "Without elements",
    "special": "With NaN, infinities, zeros, subnormal and large numbers in all pairs",
    "samples": "As torch's own tests call it (op_db of torch.testing)",
}


def operator_cell(operator: str, target: Target, precision: str) -> Cell:
    """Return the cell of an operator, such as `aten.addmm/operator/cpu/float32`."""
    return Cell(model=operator, task=OPERATOR_TASK, target=target, precision=precision)


def render_operator(calls: OperatorCalls, cell: Cell, types: Sequence[str], *, of_types: int) -> str:
    """Return the text of the suite for `cell`: the same bytes for the same arguments on every machine. `types` are
    the model types that need the operator, of `of_types`."""
    shown = ", ".join(types[:_SHOWN_TYPES]) + (", …" if len(types) > _SHOWN_TYPES else "")
    main = "seen" if calls.seen else "samples"
    parts = [name for name in ("odd", "large") if getattr(calls, name)]
    found = {kind: [] if kind == main else list(getattr(calls, kind)) for kind in _HEADINGS}
    values = {
        "cell": cell,
        "command": f"{PROGRAM} ops {cell.target} --operator {cell.model} --precision {cell.precision}"
        + (" --breadth" if calls.seen and calls.samples else ""),
        "blocks_line": f"{len(types)} of {of_types} model types: {shown}" if types else "no model type calls it",
        "headings": {**_HEADINGS, "main": _HEADINGS[main]},
        "calls": {**found, "main": list(calls.main)},
        "has_tensors": any(call.tensors for call in calls.main),
        "compared": "[*CALLS, " + ", ".join(f"*{name.upper()}" for name in parts) + "]" if parts else "CALLS",
        "is_repeatable": calls.operator not in NOT_COMPARED,
    }
    body: str = _environment().get_template("operators/operator.py.j2").render(values)
    return stamp(body.rstrip("\n") + "\n")


@functools.cache
def _environment() -> jinja2.Environment:
    made = environment().overlay()
    code, literal = made.filters["code"], made.filters["literal"]

    def plain(value: Any) -> str:
        if isinstance(value, Tensor):
            limits = [f"{name}={literal(getattr(value, name))}" for name in _limits_of(value)]
            return f"Tensor({', '.join([literal(value.dtype), literal(value.shape), *limits])})"
        if isinstance(value, list):
            return f"[{', '.join(map(plain, value))}]"
        return str(literal(value))

    def call(one: Call) -> str:
        arguments = ", ".join(map(plain, one.arguments)) + ("," if len(one.arguments) == 1 else "")
        named = ", ".join(f"{literal(name)}: {plain(value)}" for name, value in one.named.items())
        given = [literal(one.overload), f"({arguments})", *([f"{{{named}}}"] if named else [])]
        given += [f"draws={literal(one.draws)}"] if one.draws != Call("", ()).draws else []
        return f"Call({', '.join(given)})"

    def calls(found: Sequence[Call]) -> Any:
        return code("[\n" + "".join(f"    {call(one)},\n" for one in found) + "]")

    made.filters = {**made.filters, "calls": calls}
    return made


def _limits_of(value: Tensor) -> tuple[str, ...]:
    if value.is_real or value.dtype.startswith("complex"):
        return ()
    return ("true",) if value.dtype == "bool" else ("low", "high", "ordered") if value.ordered else ("low", "high")
