"""What the checks of operators say: an outcome for each operator and precision, and which model types that allows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from hwcompat.generators.compatibility.fault import ROUTE_STAGES
from hwcompat.generators.compatibility.grade import level_rules
from hwcompat.generators.compatibility.operators import coverage
from hwcompat.hardware.backends.factory import backend_class, known_targets
from hwcompat.hardware.evidence.record import EDITED, CheckLine, Outcome, Stage
from hwcompat.hardware.operators.node_test import PREFIX
from hwcompat.hardware.operators.tried_call import FAILED_CALLS, REMOVED, UNJUDGED_CALLS
from hwcompat.hardware.target import Target

from .operator_variants import (
    NOT_TESTED,
    calls_of,
    needing_types,
    operators_with_suites,
    types_by_call,
    types_of_others,
)
from .render_operator import operator_cell

_REFERENCE, _PLACEMENT = "matches_reference", "runs_natively"
_NUMBERS = frozenset({"numerical_mismatch", "non_finite", "relation_broken"})
_BEYOND_MODELS = ("no_elements", "special_numbers", "samples")
"""Checks of calls, sizes and numbers that models don't have: a failure doesn't block a model."""

_OF_GRAPHS = ("other_layouts",)
"""On targets of graphs a layout is two more operators, which models don't have there."""


class OperatorOutcome(StrEnum):
    """What an operator does on a target; the first that applies."""

    CRASHED = "crashed"
    WRONG = "wrong"
    HOST = "host"
    UNSUPPORTED = "unsupported"
    UNKNOWN = "unknown"
    SUPPORTED = "supported"


BLOCKING = frozenset(set(OperatorOutcome) - {OperatorOutcome.SUPPORTED, OperatorOutcome.UNKNOWN})
"""Outcomes with which a model that calls the operator doesn't work on the target alone, if its own calls have it."""
FAULTY = BLOCKING - {OperatorOutcome.UNSUPPORTED}
"""Outcomes that the target doesn't admit to: it claims the operator."""


@dataclass(frozen=True, kw_only=True)
class OperatorResult:
    """The outcome of an operator in a precision, with its reason, and how many model types need it.

    `error` is the largest error relative to the scale and `ulp` the largest in units in the last place; both are None
    if nothing was compared. `blocks` says whether a model that calls the operator is affected: not if only tensors
    without elements or special numbers fail. `proven` says whether its calls matched and ran there. `calls` are the
    calls that models make.
    """

    operator: str
    precision: str
    outcome: OperatorOutcome
    reason: str = ""
    blocks: bool = False
    proven: bool = True
    error: float | None = None
    ulp: float | None = None
    types: int = 0
    calls: tuple[str, ...] = ()
    failed_checks: tuple[str, ...] = ()
    failed_calls: tuple[str, ...] | None = None
    unjudged_calls: tuple[str, ...] = ()

    def blocks_type(self, model_type: str) -> bool:
        """Whether a model type that calls the operator makes a call that fails."""
        return self.blocks and (self.failed_calls is None or self._makes(model_type, self.failed_calls))

    def is_open_for(self, model_type: str) -> bool:
        """Whether nothing says that the calls of a model type work, nor that one fails."""
        if self.outcome is OperatorOutcome.UNKNOWN or self.failed_calls is None:
            return self.outcome is OperatorOutcome.UNKNOWN or not (self.blocks or self.proven)
        is_unjudged = self._makes(model_type, self.unjudged_calls)
        return not self.proven or is_unjudged or model_type in types_of_others(self.operator, self.failed_calls)

    def _makes(self, model_type: str, calls: Sequence[str]) -> bool:
        callers = types_by_call(self.operator)
        return any(model_type in callers.get(name, (model_type,)) for name in calls)


@dataclass(frozen=True, kw_only=True)
class OperatorReport:
    """The results of a target in a mode, by operator and precision; `source` says what they rest on."""

    target: str
    mode: str
    precisions: tuple[str, ...]
    results: tuple[OperatorResult, ...]
    source: str

    @property
    def is_of_onnx(self) -> bool:
        """Whether the results are of ONNX's own tests instead of operators of torch."""
        return bool(self.results) and all(one.operator.startswith(PREFIX) for one in self.results)

    @property
    def counts(self) -> Mapping[OperatorOutcome, int]:
        """The number of results by outcome."""
        return Counter(one.outcome for one in self.results)

    def by_operator(self) -> dict[str, dict[str, OperatorResult]]:
        """Return the results by operator and precision; operators that most model types need come first."""
        found: dict[str, dict[str, OperatorResult]] = defaultdict(dict)
        for one in sorted(self.results, key=lambda one: (-one.types, one.operator)):
            found[one.operator][one.precision] = one
        return dict(found)


def result_of(
    operator: str, precision: str, outcome: OperatorOutcome, reason: str = "", **more: Any
) -> OperatorResult:
    """Return a result with the facts of its operator, which blocks models if its outcome is one of `BLOCKING`."""
    calls = operators_with_suites()[operator].main if operator in operators_with_suites() else ()
    return OperatorResult(
        operator=operator,
        precision=precision,
        outcome=outcome,
        reason=" ".join(reason.split()),
        types=len(needing_types().get(operator, ())),
        calls=tuple(map(str, calls)),
        **{"blocks": outcome in BLOCKING, **more},
    )


def support_report(target: Target, operators: Sequence[str], precisions: Sequence[str]) -> OperatorReport:
    """Return which operators a target has by the tables of operators. Nothing runs."""
    found = coverage(target, operators)
    computed = computed_in(target, precisions)
    by_name: dict[str, tuple[OperatorOutcome, str]] = {
        **{name: (OperatorOutcome.SUPPORTED, found.conditions.get(name, "")) for name in found.supported},
        **{name: (OperatorOutcome.UNSUPPORTED, found.reasons[name]) for name in found.missing},
        **dict.fromkeys(found.unknown, (OperatorOutcome.UNKNOWN, "no table lists it")),
    }

    def of(name: str, precision: str) -> OperatorResult:
        refused = None if precision in computed else not_computed(name, precision, target)
        return refused or result_of(name, precision, *by_name[name])

    return OperatorReport(
        target=str(target),
        mode="support",
        precisions=tuple(precisions),
        results=tuple(of(name, one) for name in operators for one in precisions),
        source=found.source or "no table of operators",
    )


def computed_in(target: Target, precisions: Sequence[str]) -> tuple[str, ...]:
    """Return the precisions in which a target computes; all for one that no backend here runs."""
    if target.name not in known_targets():
        return tuple(precisions)
    return tuple(one for one in precisions if one in backend_class(target.name).PRECISIONS)


def not_computed(operator: str, precision: str, target: Target) -> OperatorResult | None:
    """Return the result in a precision in which the target doesn't compute; None for an operator without
    floating-point tensors, which is the same in each."""
    tested = operators_with_suites().get(operator)
    if tested is not None and not tested.has_precision:
        return None
    return result_of(operator, precision, OperatorOutcome.UNSUPPORTED, f"{target} doesn't compute in {precision}")


def judged(lines: Sequence[CheckLine], operator: str, precision: str) -> OperatorResult:
    """Return the result that the lines of an operator's suite give."""
    errors = [line.max_rel_error for line in lines if line.max_rel_error is not None]
    ulps = [float(line.conditions["ulp"]) for line in lines if "ulp" in line.conditions]
    measured: dict[str, Any] = {"error": max(errors, default=None), "ulp": max(ulps, default=None)}
    beyond = {*_BEYOND_MODELS, *(_OF_GRAPHS if any(_is_of_graph(line) for line in lines) else ())}
    asked = [line for line in lines if line.check_name not in beyond and not _is_allowed(line)]
    blocking = [line for line in asked if _outcome_of(line) in BLOCKING]
    is_known = bool(blocking) and all(FAILED_CALLS in line.conditions for line in blocking)
    failed: dict[str, Any] = {
        "failed_checks": tuple(line.check_name for line in lines if _outcome_of(line) in BLOCKING),
        "blocks": bool(blocking),
        "failed_calls": _calls_named(FAILED_CALLS, blocking) if is_known else None,
        "unjudged_calls": _calls_named(UNJUDGED_CALLS, asked),
    }
    by_check = {line.check_name: line for line in lines}
    needed = lines if operator.startswith(PREFIX) else [by_check.get(_REFERENCE), by_check.get(_PLACEMENT)]
    removed = [line is not None and _is_removed(line) for line in needed]
    passed = [
        line is not None and (_is_pass(line) or _is_allowed(line) or (is_known and line in blocking))
        for line in needed
    ]
    # Without a line nothing is proven, and without a number only what the compiler removed.
    proven = bool(needed) and all(map(any, zip(passed, removed, strict=True))) and (bool(errors) or all(removed))
    for outcome in OperatorOutcome:
        for line in sorted(lines, key=lambda one: one.check_name in beyond):
            if _outcome_of(line) is outcome and outcome is not OperatorOutcome.SUPPORTED:
                return result_of(operator, precision, outcome, _reason(line), proven=proven, **failed, **measured)
    if not proven:
        left = next((line for line in needed if line is not None), None)
        why = _reason(left) if left is not None and left.outcome is Outcome.SKIPPED else "its checks didn't run"
        return result_of(operator, precision, OperatorOutcome.UNKNOWN, why, **measured)
    return result_of(operator, precision, OperatorOutcome.SUPPORTED, **measured)


def _calls_named(condition: str, lines: Sequence[CheckLine]) -> tuple[str, ...]:
    found = [line.conditions[condition].split("; ") for line in lines if condition in line.conditions]
    return tuple(sorted({name for names in found for name in names}))


def _is_pass(line: CheckLine) -> bool:
    return line.outcome is Outcome.PASSED and EDITED not in line.conditions


def _is_of_graph(line: CheckLine) -> bool:
    name = Target.parse(line.requested_target).name
    return name in known_targets() and backend_class(name).EXPORTS


def _is_removed(line: CheckLine) -> bool:
    """Whether the compiler removed the operator, by its own list of what is left."""
    is_skipped = line.outcome is Outcome.SKIPPED and line.error_type == "not_applicable"
    return is_skipped and REMOVED in line.error_message and EDITED not in line.conditions


def _outcome_of(line: CheckLine) -> OperatorOutcome:
    if EDITED in line.conditions:
        return OperatorOutcome.UNKNOWN
    if line.outcome is Outcome.CRASHED and line.stage in ROUTE_STAGES:  # as if the exporter had refused it
        return OperatorOutcome.UNSUPPORTED
    if line.outcome.is_breakdown:  # in the reference, no target is to blame
        return OperatorOutcome.UNKNOWN if line.stage in (Stage.BUILD, *ROUTE_STAGES) else OperatorOutcome.CRASHED
    if line.error_type in level_rules().not_the_target:
        return OperatorOutcome.UNKNOWN
    if line.outcome is Outcome.FAILED:
        if line.error_type == "silent_offload":  # without such operators nothing was seen to run
            return OperatorOutcome.HOST if line.offloaded_ops else OperatorOutcome.UNKNOWN
        if line.error_type in _NUMBERS:  # those of the host are no fault of the target's arithmetic
            return OperatorOutcome.HOST if _left_beyond_allowed(line) else OperatorOutcome.WRONG
        return OperatorOutcome.UNSUPPORTED
    if line.outcome is Outcome.PASSED or line.error_type == "not_applicable":
        return OperatorOutcome.SUPPORTED
    return OperatorOutcome.UNKNOWN


def _is_allowed(line: CheckLine) -> bool:
    """Whether the operator ran on the host, where its target may leave it in models."""
    return _outcome_of(line) is OperatorOutcome.HOST and not _left_beyond_allowed(line)


def _left_beyond_allowed(line: CheckLine) -> bool:
    name = Target.parse(line.requested_target).name
    allowed = backend_class(name).HOST_ALLOWED if name in known_targets() else frozenset()
    return bool(line.offloaded_ops.keys() - allowed)


def _reason(line: CheckLine) -> str:
    if _outcome_of(line) is OperatorOutcome.HOST:
        wrong = f", and is wrong: {line.error_message}" if line.error_type in _NUMBERS else ""
        return f"{', '.join(sorted(line.offloaded_ops))} ran on the host{wrong}"
    said = line.error_message or line.substitution_reason or f"{line.outcome} ({line.error_type})"
    if line.outcome.is_breakdown and line.stage in ROUTE_STAGES:
        said += f" during {line.stage}"
    return said if line.check_name == _REFERENCE else f"{line.check_name}: {said}"


@dataclass(frozen=True, kw_only=True)
class TypeCoverage:
    """Which model types a target's operators allow in a precision.

    No operator of `possible` types blocks them. `next` has, by operator, the types that it alone blocks; the
    others of `types` are blocked by several (`blocked`), an operator of theirs is `unknown`, or isn't among those
    that were asked for (`not_asked`).
    """

    precision: str
    types: int
    possible: tuple[str, ...]
    next: Mapping[str, tuple[str, ...]]
    blocked: int
    unknown: int
    not_asked: int = 0


def coverage_of(report: OperatorReport, precision: str) -> TypeCoverage:
    """Return which model types are possible with the results of a report, and which become possible next."""
    results = {one.operator: one for one in report.results if one.precision == precision}
    needed: dict[str, list[str]] = defaultdict(list)
    for operator, types in needing_types().items():
        for model_type in types:
            needed[model_type].append(operator)
    possible, blocked, unknown, not_asked = [], 0, 0, 0
    next_: dict[str, list[str]] = defaultdict(list)
    for model_type, operators in sorted(needed.items()):
        tested = [name for name in operators if name not in NOT_TESTED]
        blocking = [name for name in tested if name in results and results[name].blocks_type(model_type)]
        if len(blocking) > 1:
            blocked += 1
        elif any(name not in results for name in tested):
            not_asked += 1
        elif any(results[name].is_open_for(model_type) for name in tested if name not in blocking):
            unknown += 1
        elif blocking:
            next_[blocking[0]].append(model_type)
        else:
            possible.append(model_type)
    return TypeCoverage(
        precision=precision,
        types=len(needed),
        possible=tuple(possible),
        next={name: tuple(types) for name, types in sorted(next_.items(), key=lambda pair: (-len(pair[1]), pair[0]))},
        blocked=blocked,
        unknown=unknown,
        not_asked=not_asked,
    )


def report_of(
    lines: Iterable[CheckLine],
    target: Target,
    operators: Sequence[str],
    precisions: Sequence[str],
    source: str,
    *,
    breadth: bool = False,
) -> OperatorReport:
    """Return the results of a run. A precision in which an operator has no suite, because it has no floating-point
    tensors, has the result of float32."""
    by_cell: dict[str, list[CheckLine]] = defaultdict(list)
    for line in lines:
        by_cell[f"{PREFIX}{line.check_name}" if line.cell_id.startswith(PREFIX) else line.cell_id].append(line)

    computed = computed_in(target, precisions)

    def of(operator: str, precision: str) -> OperatorResult:
        if precision not in computed and (refused := not_computed(operator, precision, target)):
            return refused
        if operator.startswith(PREFIX):
            return judged(by_cell[operator], operator, precision)
        is_known = operator in operators_with_suites()
        own = precision if is_known and calls_of(operator, breadth=breadth).has_precision else "float32"
        return judged(by_cell[operator_cell(operator, target, own).id], operator, precision)

    return OperatorReport(
        target=str(target),
        mode="correct",
        precisions=tuple(precisions),
        results=tuple(of(name, precision) for name in operators for precision in precisions),
        source=source,
    )
