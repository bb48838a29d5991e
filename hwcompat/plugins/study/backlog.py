"""Operators that block model types on a target, in the order in which a kernel team would add them.

An operator is *missing* if a table says so for a type that never ran, *failing* if a failed check names it, and
*offloaded* if it ran, or would run, on the host. An operator unlocks a type if no other obstacle is known; further
ones may appear later.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hwcompat.generators.compatibility.operators import OperatorCoverage, coverage
from hwcompat.generators.compatibility.operators.operator_names import examples, nodes, operators_named
from hwcompat.generators.compatibility.operators.operator_table import onnx_types
from hwcompat.generators.models.recipe import Recipe
from hwcompat.hardware.cell import Cell
from hwcompat.hardware.evidence.record import CheckLine, Outcome
from hwcompat.hardware.evidence.shipped_evidence import last_checks
from hwcompat.hardware.target import Target

MISSING, FAILING, OFFLOADED = "missing", "failing", "offloaded"
_MOST_SHAPES = 4
_LONGEST_REASON = 200
_DOMAIN = re.compile(r"^onnx\..*\.")
"""The prefix of the name of an ONNX operator."""


@dataclass(frozen=True, kw_only=True)
class Obstacles:
    """The obstacles of one type: operators with their states, and whether it was `measured`.

    `other` is the first failure that names no operator; `passes`: the type works, without obstacles.
    """

    model_type: str
    operators: Mapping[str, str]
    measured: bool
    passes: bool = False
    other: str = ""


@dataclass(frozen=True, kw_only=True)
class Item:
    """One operator of the list.

    `unlocks` are the types without another known obstacle, `part_in` those with others. `states` counts types by the
    state of the operator. `shapes` are dtypes and shapes in tiny models, `real` those in models at their default
    size.
    """

    operator: str
    states: Mapping[str, int]
    unlocks: tuple[str, ...]
    part_in: tuple[str, ...]
    measured: int
    reason: str
    shapes: tuple[str, ...]
    real: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BacklogGroup:
    """Several operators that unlock these types together."""

    operators: tuple[str, ...]
    unlocks: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Backlog:
    """The list for one target, the operator that unlocks the most types first, and the counts of types.

    `passing` and `failing` ran; `predicted` are known from the table only, and `clear` are those of them without a
    known obstacle. `groups` are operators that must be added together. `other` has types by failures that name no
    operator, `unknown` counts types by operators that no table lists.
    """

    target: str
    precision: str
    source: str
    evidence: str
    items: tuple[Item, ...]
    types: int
    passing: int
    failing: int
    predicted: int
    clear: int
    groups: tuple[BacklogGroup, ...] = ()
    other: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unknown: Mapping[str, int] = field(default_factory=dict)


def backlog(
    target: Target,
    recipes: Sequence[Recipe],
    checks: Sequence[CheckLine],
    *,
    precision: str = "float32",
    evidence: str = "",
) -> Backlog:
    """Rank the obstacles of each recipe's type on a target, from the tables and from `checks`."""
    cells = last_checks(checks, target)
    ran = {
        cell.model: list(lines.values())
        for name, lines in cells.items()
        if (cell := Cell.parse(name)).precision == precision and cell.target.variant == target.variant
    }
    known = {recipe.model_type: coverage(target, recipe.operators) for recipe in recipes}
    measured = [_measured_obstacles(name, lines, known.get(name)) for name, lines in sorted(ran.items())]
    predicted = [
        Obstacles(model_type=name, operators=dict.fromkeys(found.missing, MISSING), measured=False)
        for name, found in known.items()
        if name not in ran
    ]
    unknown = Counter(name for found in known.values() for name in found.unknown)
    asked = coverage(target, sorted({name for found in known.values() for name in found.missing}))
    other: dict[str, list[str]] = defaultdict(list)
    for one in measured:
        if one.other and not one.operators:
            other[one.other].append(one.model_type)
    return Backlog(
        target=str(target),
        precision=precision,
        source=asked.source,
        evidence=evidence,
        items=_items([*measured, *predicted], asked, _reasons_by_operator(ran)),
        groups=_groups([*measured, *predicted]),
        types=len({*known, *ran}),
        passing=sum(one.passes for one in measured),
        failing=sum(not one.passes for one in measured),
        predicted=len(predicted),
        clear=sum(not one.operators for one in predicted),
        other={kind: tuple(names) for kind, names in sorted(other.items(), key=lambda pair: -len(pair[1]))},
        unknown=dict(unknown.most_common()),
    )


def _measured_obstacles(model_type: str, lines: Sequence[CheckLine], known: OperatorCoverage | None) -> Obstacles:
    """Return the obstacles in a type's last run, or those of the table if its failures name no operator."""
    failed = [line for line in lines if line.outcome is not Outcome.PASSED]
    operators = {_DOMAIN.sub("onnx.", name): OFFLOADED for line in lines for name in line.offloaded_ops}
    for line in failed:
        for name, said in operators_named(line.error_message).items():
            operators.setdefault(name, said.how)
    if not failed and not operators:
        return Obstacles(model_type=model_type, operators={}, measured=True, passes=True)
    other = ""
    if not operators:
        other = f"{failed[0].error_type or failed[0].outcome} at {failed[0].stage or 'no known stage'}"
        operators = dict.fromkeys(known.missing, MISSING) if known else {}
    return Obstacles(model_type=model_type, operators=operators, measured=True, other=other)


def _reasons_by_operator(ran: Mapping[str, Sequence[CheckLine]]) -> dict[str, str]:
    """Return by operator the reason in the first message that names it."""
    found: dict[str, str] = {}
    for model_type, lines in ran.items():
        for line in lines:
            if line.outcome is not Outcome.PASSED:
                named = operators_named(line.error_message)
                found = {name: f"{said.says} ({model_type})" for name, said in named.items()} | found
    return found


def _items(obstacles: Iterable[Obstacles], asked: OperatorCoverage, messages: Mapping[str, str]) -> tuple[Item, ...]:
    by_operator: dict[str, list[Obstacles]] = defaultdict(list)
    for one in obstacles:
        for name in one.operators:
            by_operator[name].append(one)
    items = [_item(name, found, asked, messages) for name, found in by_operator.items()]
    return tuple(sorted(items, key=lambda one: (-len(one.unlocks), -len(one.part_in), -one.measured, one.operator)))


def _groups(obstacles: Iterable[Obstacles]) -> tuple[BacklogGroup, ...]:
    """Return the groups of operators that would unlock types together, the most types first."""
    by_operators: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for one in obstacles:
        if len(one.operators) > 1 and not one.other:
            by_operators[tuple(sorted(one.operators))].append(one.model_type)
    groups = [BacklogGroup(operators=names, unlocks=tuple(sorted(types))) for names, types in by_operators.items()]
    return tuple(sorted(groups, key=lambda one: (-len(one.unlocks), len(one.operators), one.operators)))


def _item(name: str, found: Sequence[Obstacles], asked: OperatorCoverage, messages: Mapping[str, str]) -> Item:
    alone = tuple(sorted(one.model_type for one in found if len(one.operators) == 1 and not one.other))
    reason = messages.get(name) or asked.reasons.get(name, "")
    return Item(
        operator=name,
        states=dict(sorted(Counter(one.operators[name] for one in found).items())),
        unlocks=alone,
        part_in=tuple(sorted({one.model_type for one in found} - set(alone))),
        measured=sum(one.measured for one in found),
        reason=" ".join(reason.split())[:_LONGEST_REASON],
        shapes=tuple(str(one) for one in _examples(name)[:_MOST_SHAPES]),
    )


def _examples(name: str) -> Sequence[object]:
    """Return how models call an operator of torch; for an ONNX operator its inputs, or its sources in torch."""
    if not name.startswith("onnx."):
        return examples(name)
    if met := nodes(name):
        return met
    type_name = name.removeprefix("onnx.")
    made = [op for op, types in onnx_types().items() if not isinstance(types, str) and type_name in types]
    return [f"{op}: {one}" for op in made for one in examples(op)[:1]]
