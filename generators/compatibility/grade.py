"""Grade the results of a cell on one accelerator: a level with its reasons and conditions (`levels.toml`)."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from hwcompat.hardware.cell import Cell
from hwcompat.hardware.errors import UsageError
from hwcompat.hardware.evidence.error_types import facts_of_error_types
from hwcompat.hardware.evidence.record import COARSE, CheckLine, Outcome
from hwcompat.hardware.plain_text import one_line
from hwcompat.hardware.target import Target
from hwcompat.hardware.testing.checks import comparing_checks, core_checks

from .verdict import Level, Reason

_LONGEST_MESSAGE = 200
_STATED = {
    **{"dimensions": "dimensions", COARSE: "coarse_functions", "exercised": "exercised"},
    **{"reference_method": "reference_method", "inputs": "inputs", "unmoved": "unmoved"},
    **{"sensitive": "sensitive", "not_compared": "not_compared"},
    **{"unread": "unread", "undetected": "undetected", "state": "state", "differs": "differs"},
}
"""Conditions of a run that don't change its level, with the codes of their reasons."""
_FILE = Path(__file__).with_name("levels.toml")
_PARTS = re.compile(r"[.:/]+")


@dataclass(frozen=True, kw_only=True)
class Grade:
    """A level, with its reasons and conditions."""

    level: Level
    reasons: tuple[Reason, ...]
    conditions: tuple[Reason, ...] = ()


def grade(cell: Cell, planned: Sequence[str], lines: Sequence[CheckLine], *, own_limit: float | None = None) -> Grade:
    """Grade results of one run or several that all count for `cell` on one accelerator.

    If runs disagree on a check, the worst of them counts. `own_limit` is the tolerance that a project sets for the
    cell: it replaces the product's, and a wider one becomes a condition.
    """
    rules = level_rules()
    failures = [line for line in lines if line.outcome.is_failure]
    harness = [line for line in failures if line.error_type in rules.not_the_target]
    failures = [line for line in failures if line not in harness]
    core = core_checks()

    fatal = [line for line in failures if line.check_name in core and not _ran_partly(line)]
    if fatal:
        return Grade(level=Level.UNSUPPORTED, reasons=tuple(check_reason(line) for line in fatal))
    gaps = _undecided(cell, planned, lines, failures, harness, own_limit)
    partial = [check_reason(line) for line in failures] + list(_partly_done(planned, lines))
    if any(name in core for name, _ in gaps) or (gaps and not partial):
        return Grade(level=Level.UNKNOWN, reasons=(*partial, *(reason for _, reason in gaps)))

    caps = _limiting_conditions(cell, planned, lines)
    conditions = (*_stated(cell, lines), *caps)
    heavy = sorted({name for line in lines for name in line.offloaded_ops if rules.has_parameters(name)})
    if heavy:
        partial.append(Reason.of("weights_on_host", operators=tuple(heavy)))
    if partial:
        reasons = (*partial, *(reason for _, reason in gaps))
        return Grade(level=Level.LOW, reasons=reasons, conditions=conditions)
    if caps:
        return Grade(level=Level.MEDIUM, reasons=caps, conditions=conditions)
    where = next((line.accelerator for line in lines if line.accelerator), str(cell.target))
    passed = Reason.of("all_passed", count=len(set(planned)), where=where)
    return Grade(level=Level.HIGH, reasons=(passed,), conditions=conditions)


def check_reason(line: CheckLine) -> Reason:
    """Return the reason for a check that didn't pass."""
    if line.error_type == "weights_missing":
        return Reason.of("weights_missing", message=line.error_message)
    error, limit = line.max_rel_error, line.tolerance
    over = error is not None and limit is not None and error > limit
    return Reason.of(
        "check",
        check=line.check_name,
        outcome=str(line.outcome),
        stage=None if line.stage is None else str(line.stage),
        message=one_line(line.error_message or line.error_type, longest=_LONGEST_MESSAGE),
        error=error if over else None,
        tolerance=limit if over else None,
    )


def _ran_partly(line: CheckLine) -> bool:
    """Whether a check failed only because operators ran on the host: a proof that saw operators on the target, or
    another check whose numbers were right."""
    rules = level_rules()
    if line.check_name == rules.proof:
        return any(line.native_ops.values())
    return line.error_type == rules.offloaded and bool(line.offloaded_ops)


def _unproven(cell: Cell, line: CheckLine, own_limit: float | None) -> Reason | None:
    """Return why a pass doesn't count: a comparing check needs an error within today's tolerance."""
    if line.check_name not in comparing_checks():
        return None
    error, limit = line.max_rel_error, line.tolerance
    if error is None or limit is None or not 0 <= error <= limit:
        return Reason.of("pass_without_error", check=line.check_name, error=error, tolerance=limit)
    today = product_limit(cell, line) if own_limit is None else own_limit
    if today is None:
        where = {"precision": cell.precision, "target": str(cell.target)}
        return Reason.of("no_tolerance", check=line.check_name, **where)
    if limit > today:
        return Reason.of("wide_tolerance", check=line.check_name, limit=limit, today=today)
    return None


def tolerance_moved(cell: Cell, line: CheckLine, own_limit: float | None) -> Reason | None:
    """Return why a result would be decided differently today: a pass was allowed more than now, or a failure less.

    A pass within a narrower limit proves more than is required, and still counts.
    """
    error, limit = line.max_rel_error, line.tolerance
    if error is None or limit is None or line.check_name not in comparing_checks():
        return None
    today = product_limit(cell, line) if own_limit is None else own_limit
    if today is None:
        return None
    passed_wider = line.outcome is Outcome.PASSED and error <= limit and limit > today
    failed_narrower = line.outcome is Outcome.FAILED and limit < error <= today
    if passed_wider or failed_narrower:
        return Reason.of("tolerance_moved", then=limit, now=today)
    return None


def product_limit(cell: Cell, line: CheckLine) -> float | None:
    """Return the product's tolerance for a result; None if it has none."""
    # Imported late: NumPy is not needed for a matrix of predictions.
    from hwcompat.hardware.testing.tolerances import tolerance_for

    try:
        return tolerance_for(cell.target, cell.precision, line.conditions).limit
    except UsageError:
        return None


def _undecided(
    cell: Cell,
    planned: Sequence[str],
    lines: Sequence[CheckLine],
    failures: Sequence[CheckLine],
    harness: Sequence[CheckLine],
    own_limit: float | None,
) -> list[tuple[str, Reason]]:
    """Return planned checks that neither passed nor failed, each with its outcome."""
    rules = level_rules()
    gaps: list[tuple[str, Reason]] = []
    if rules.compares not in planned:
        gaps.append((rules.compares, Reason.of("not_planned", check=rules.compares)))
    failed = {line.check_name for line in failures}
    partly = {line.check_name for line in lines if _is_partial(line)}
    for name in dict.fromkeys(planned):
        own = [line for line in lines if line.check_name == name]
        unclear = [line for line in own if line.outcome is Outcome.AMBIGUOUS or line in harness]
        passed = [line for line in own if line.outcome is Outcome.PASSED]
        if name in failed:
            continue
        if unclear:
            gaps += [(name, check_reason(line)) for line in unclear]
        elif not passed and name not in partly:
            gaps.append((name, check_reason(own[-1]) if own else Reason.of("not_run", check=name)))
        elif unproven := [reason for line in passed if (reason := _unproven(cell, line, own_limit))]:
            gaps += [(name, reason) for reason in unproven]
        elif name == rules.proof and not any(any(line.native_ops.values()) for line in passed):
            gaps.append((name, Reason.of("no_operator_seen", check=name)))
    return gaps


def _is_partial(line: CheckLine) -> bool:
    return (
        line.outcome is Outcome.SKIPPED
        and line.error_type in level_rules().partial
        and line.check_name not in core_checks()
    )


def _partly_done(planned: Sequence[str], lines: Sequence[CheckLine]) -> Iterator[Reason]:
    passed = {line.check_name for line in lines if line.outcome is Outcome.PASSED}
    for line in lines:
        if _is_partial(line) and line.check_name in planned and line.check_name not in passed:
            yield check_reason(line)


def _limiting_conditions(cell: Cell, planned: Sequence[str], lines: Sequence[CheckLine]) -> tuple[Reason, ...]:
    """Return the conditions under which everything passed, and that limit the level."""
    rules = level_rules()
    caps: list[Reason] = []
    passed = [line for line in lines if line.outcome is Outcome.PASSED]
    computed = {rules.precision(line.actual_dtype) for line in passed if line.actual_dtype}
    others = sorted(computed - {cell.precision})
    caps += [Reason.of("computed_in", dtype=name, precision=cell.precision) for name in others]
    if not computed:
        caps.append(Reason.of("dtype_not_recorded"))
    for line in passed:
        limits = rules.limiting(line.conditions)
        caps += [
            Reason.of("run_condition", key=key, value=one_line(value, longest=_LONGEST_MESSAGE))
            for key, value in limits
        ]
    caps += _wider_tolerances(cell, passed)
    by_run: dict[str, set[str]] = {}
    for line in passed:
        by_run.setdefault(line.run_id, set()).add(line.check_name)
    if not any(checks >= set(planned) for checks in by_run.values()):
        caps.append(Reason.of("several_runs"))
    light = sorted({name for line in lines for name in line.offloaded_ops if not rules.has_parameters(name)})
    if light:
        caps.append(Reason.of("on_host", operators=tuple(light)))
    if rules.proof not in planned:
        caps.append(Reason.of("not_planned", check=rules.proof))
    return tuple(dict.fromkeys(caps))


def _wider_tolerances(cell: Cell, passed: Sequence[CheckLine]) -> Iterator[Reason]:
    """Return checks with a tolerance wider than the product's that no result explains."""
    for line in passed:
        limit, product = line.tolerance, product_limit(cell, line)
        if limit is not None and "tolerance" not in line.conditions and (product is None or limit > product):
            yield Reason.of("unexplained_tolerance", limit=limit)


def _stated(cell: Cell, lines: Sequence[CheckLine]) -> Iterator[Reason]:
    """Return conditions that are stated with a level and don't change it."""
    rules = level_rules()
    weights = {line.subject for line in lines}
    for name, reason_code in _STATED.items():
        for text in dict.fromkeys(line.conditions[name] for line in lines if name in line.conditions):
            yield Reason.of(reason_code, text=text)
    for name in rules.weights:
        if name in weights and name in rules.weights_conditions:
            yield Reason.of("weights", weights=name)
    if cell.target.name in rules.stated:
        yield Reason.of("target_condition", target=cell.target.name)
    for text in dict.fromkeys(line.unseen for line in lines if line.unseen):
        yield Reason.of("not_verified", text=text)


def ran_elsewhere(cell: Cell, line: CheckLine) -> bool:
    """Whether a result shows that its run was on another target: then no result of that run counts here."""
    if line.outcome is Outcome.PASSED_ON_FALLBACK or line.substitution_reason:
        return True
    return line.actual_target is not None and not is_on_target(cell, line)


def is_on_target(cell: Cell, line: CheckLine) -> bool:
    """Whether a result names the cell's target as the one that it ran on.

    A result written for a process that died names none; the run's other results decide. If they name none either,
    only `cpu`, which nothing replaces, is believed.
    """
    if line.actual_target is None:
        return cell.target.name == "cpu"
    try:
        actual = Target.parse(line.actual_target)
    except UsageError:
        return False
    return actual.name == cell.target.name and cell.target.variant in ("", actual.variant)


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A condition of a run that limits a pass to `medium`; `value` is `*` for any value.

    `condition` is its text, with the value in place of `{}` or after it.
    """

    key: str
    value: str
    condition: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class LevelRules:
    """The contents of `levels.toml`."""

    compares: str
    compares_reason: str
    proof: str
    proof_reason: str
    offloaded: str
    not_the_target: frozenset[str]
    clean_runs: int
    partial: frozenset[str]
    operators_with_parameters: tuple[str, ...]
    precision_names: Mapping[str, str]
    limits: tuple[Limit, ...]
    stated: Mapping[str, str]
    weights: tuple[str, ...]
    weights_conditions: Mapping[str, str]

    def has_parameters(self, operator: str) -> bool:
        """Whether an operator, by a runtime's name for it, holds weights."""
        parts = _PARTS.split(operator.lower())
        return any(fnmatchcase(part, pattern) for part in parts for pattern in self.operators_with_parameters)

    def precision(self, name: str) -> str:
        """Return the product's name for a runtime's precision: `torch.float32` and `f32` are `float32`."""
        short = name.lower().removeprefix("torch.")
        return self.precision_names.get(short, short)

    def proves_enough(self, ran: str, asked: str) -> bool:
        """Whether the weights that ran prove at least as much as the requested ones. An unknown word proves
        nothing."""
        if ran not in self.weights or asked not in self.weights:
            return False
        return self.weights.index(ran) >= self.weights.index(asked)

    def limiting(self, conditions: Mapping[str, str]) -> Iterable[tuple[str, str]]:
        """Yield the conditions of a run, key and value, that limit a pass to `medium`."""
        for limit in self.limits:
            value = conditions.get(limit.key)
            if value is not None and limit.value in ("*", value):
                yield limit.key, value

    def condition_text(self, key: str, value: str) -> str:
        """Return the text of a limiting condition."""
        limit = next((one for one in self.limits if one.key == key and one.value in ("*", value)), None)
        if limit is None:
            return f"{key}: {value}"
        words = limit.condition if "{}" in limit.condition else f"{limit.condition}: {{}}"
        return limit.condition if limit.value != "*" else words.replace("{}", value)


def _harness() -> frozenset[str]:
    facts = facts_of_error_types()
    return frozenset(name for name in facts if facts[name].get("fault") == "harness")


@functools.cache
def level_rules() -> LevelRules:
    """Return the rules of `levels.toml`."""
    data = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    weights = dict(data["weights"])
    return LevelRules(
        **data["required"],
        not_the_target=frozenset(data["not_the_target"]["error_types"]) | _harness(),
        clean_runs=int(data["flaky"]["clean_runs"]),
        partial=frozenset(data["partial"]["error_types"]),
        operators_with_parameters=tuple(data["operators_with_parameters"]["patterns"]),
        precision_names=data["precision_names"],
        limits=tuple(Limit(**limit) for limit in data["limiting"]),
        stated={entry["target"]: entry["condition"] for entry in data["stated"]},
        weights=tuple(weights.pop("order")),
        weights_conditions=weights,
    )
