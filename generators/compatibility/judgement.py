"""The level that the check lines of one cell on one accelerator show, with the reasons and conditions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hardware.cell import Cell
from hardware.errors import UsageError
from hardware.evidence.record import COARSE, CheckLine, Outcome
from hardware.plain_text import one_line

from .levels import level_rules
from .verdict import Level

ONLY_SO = "passes only so: "
"""How each reason begins that is a condition without which nothing was shown."""

_LONGEST_REASON = 200
_SAID = {"dimensions": "dimensions", COARSE: "as coarse as the target's standard allows"}
"""Conditions of a run that are said with its level: what is real of a model whose weights aren't."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A level and what has to be said with it."""

    level: Level
    reasons: tuple[str, ...]
    conditions: tuple[str, ...] = ()


def judge(
    cell: Cell, planned: Sequence[str], lines: Sequence[CheckLine], *, own_limit: float | None = None
) -> Judgement:
    """Judge lines that all count for `cell` on one accelerator, of one run or of several.

    Where runs disagree on a check, the worst of them is taken. `own_limit` is the tolerance that a repository states
    for the cell: it counts instead of the product's, and a wider one is a condition.
    """
    rules = level_rules()
    failures = [line for line in lines if line.outcome.is_failure]
    blameless = [line for line in failures if line.error_type in rules.not_the_target]
    failures = [line for line in failures if line not in blameless]
    core = _core()

    fatal = [line for line in failures if line.check_name in core and not _ran_partly(line)]
    if fatal:
        return Judgement(level=Level.NONE, reasons=tuple(describe(line) for line in fatal))
    gaps = _gaps(cell, planned, lines, failures, blameless, own_limit)
    core_gaps = [text for name, text in gaps if name in core]
    partial = [describe(line) for line in failures] + list(_partly_done(planned, lines))
    if core_gaps or (gaps and not partial):
        return Judgement(level=Level.UNKNOWN, reasons=(*partial, *(text for _, text in gaps)))

    caps = _caps(cell, planned, lines)
    conditions = (*_said(cell, lines), *caps)
    heavy = sorted({name for line in lines for name in line.offloaded_ops if rules.has_parameters(name)})
    if heavy:
        partial.append(f"operators with parameters ran on the host: {reason_text(', '.join(heavy))}")
    if partial:
        return Judgement(level=Level.LOW, reasons=(*partial, *(text for _, text in gaps)), conditions=conditions)
    if caps:
        return Judgement(
            level=Level.MEDIUM, reasons=tuple(f"{ONLY_SO}{text}" for text in caps), conditions=conditions
        )
    where = next((line.accelerator for line in lines if line.accelerator), str(cell.target))
    return Judgement(
        level=Level.HIGH,
        reasons=(f"all {len(set(planned))} planned checks passed on {reason_text(where)}",),
        conditions=conditions,
    )


def _core() -> frozenset[str]:
    # Imported late: the package brings NumPy along, which a matrix of declared levels doesn't need.
    from hardware.testing.checks import core_checks

    return core_checks()


def describe(line: CheckLine) -> str:
    """What went wrong in a check, on one line."""
    words = f"{line.check_name} {_WORDS.get(line.outcome, str(line.outcome).replace('_', ' '))}"
    if line.stage is not None:
        words += f" at {line.stage}"
    message = line.error_message or line.error_type
    if message:
        words += f": {reason_text(message)}"
    if line.max_rel_error is not None and line.tolerance is not None and line.max_rel_error > line.tolerance:
        words += f" (error {line.max_rel_error:.2g}, tolerance {line.tolerance:.2g})"
    return words


_WORDS = {Outcome.TIMEOUT: "ran out of time", Outcome.OUT_OF_MEMORY: "ran out of memory"}


def reason_text(text: str) -> str:
    """What somebody's code or evidence said, as part of a reason: one printable line of 200 characters at most."""
    return one_line(text, longest=_LONGEST_REASON)


def _ran_partly(line: CheckLine) -> bool:
    """Whether a check failed for what ran on the host alone: a proof that still saw operators on the target, or
    another check, whose numbers were right."""
    rules = level_rules()
    if line.check_name == rules.proof:
        return bool(line.native_ops)
    return line.error_type == rules.offloaded and bool(line.offloaded_ops)


def _unproven(cell: Cell, line: CheckLine, own_limit: float | None) -> str:
    """Why a pass isn't believed: a comparing check has to show an error within the tolerance of today."""
    # Imported late, as in `_core`.
    from hardware.testing.checks import comparing_checks

    if line.check_name not in comparing_checks():
        return ""
    error, limit = line.max_rel_error, line.tolerance
    if error is None or limit is None or not error <= limit:
        return f"{line.check_name} passed without an error within its tolerance ({error} against {limit})"
    today = _product_limit(cell, line) if own_limit is None else own_limit
    if today is None:
        return f"{line.check_name} passed, and no tolerance is stated for {cell.precision} on {cell.target}"
    if limit > today:
        return f"{line.check_name} was held to {limit:.0e}; the tolerance is {today:.0e}"
    return ""


def tolerance_moved(cell: Cell, lines: Sequence[CheckLine], own_limit: float | None) -> str:
    """Why what some lines were held to decides differently now: a pass was allowed more than today, or a failure
    less. Empty where it doesn't: a pass under a narrower limit proves more than is asked."""
    # Imported late, as in `_core`.
    from hardware.testing.checks import comparing_checks

    for line in lines:
        error, limit = line.max_rel_error, line.tolerance
        if error is None or limit is None or line.check_name not in comparing_checks():
            continue
        today = _product_limit(cell, line) if own_limit is None else own_limit
        if today is None:
            continue
        passed_wider = line.outcome is Outcome.PASSED and error <= limit and limit > today
        failed_narrower = line.outcome is Outcome.FAILED and limit < error <= today
        if passed_wider or failed_narrower:
            return f"measured with a tolerance of {limit:g}, now {today:g}"
    return ""


def _product_limit(cell: Cell, line: CheckLine) -> float | None:
    # Imported late, as in `_core`.
    from hardware.testing.tolerances import tolerance_for

    try:
        return tolerance_for(cell.target, cell.precision, line.conditions).limit
    except UsageError:
        return None


def _gaps(
    cell: Cell,
    planned: Sequence[str],
    lines: Sequence[CheckLine],
    failures: Sequence[CheckLine],
    blameless: Sequence[CheckLine],
    own_limit: float | None,
) -> list[tuple[str, str]]:
    """Planned checks that neither passed nor failed, each with what became of it."""
    rules = level_rules()
    gaps: list[tuple[str, str]] = []
    if rules.compares not in planned:
        gaps.append((rules.compares, f"{rules.compares} was not planned: {rules.compares_reason}"))
    failed = {line.check_name for line in failures}
    partly = {line.check_name for line in lines if _is_partial(line)}
    for name in dict.fromkeys(planned):
        own = [line for line in lines if line.check_name == name]
        unclear = [line for line in own if line.outcome is Outcome.AMBIGUOUS or line in blameless]
        passed = [line for line in own if line.outcome is Outcome.PASSED]
        if name in failed:
            continue
        if unclear:
            gaps += [(name, describe(line)) for line in unclear]
        elif not passed and name not in partly:
            gaps.append((name, describe(own[-1]) if own else f"{name} was not run"))
        elif unproven := [text for line in passed if (text := _unproven(cell, line, own_limit))]:
            gaps += [(name, text) for text in unproven]
        elif name == rules.proof and not any(line.native_ops for line in passed):
            gaps.append((name, f"{name} recorded no operator, so it proves nothing"))
    return gaps


def _is_partial(line: CheckLine) -> bool:
    return (
        line.outcome is Outcome.SKIPPED
        and line.error_type in level_rules().partial
        and line.check_name not in _core()
    )


def _partly_done(planned: Sequence[str], lines: Sequence[CheckLine]) -> Iterator[str]:
    passed = {line.check_name for line in lines if line.outcome is Outcome.PASSED}
    for line in lines:
        if _is_partial(line) and line.check_name in planned and line.check_name not in passed:
            yield describe(line)


def _caps(cell: Cell, planned: Sequence[str], lines: Sequence[CheckLine]) -> tuple[str, ...]:
    """The conditions under which everything passed and without which it wasn't shown to."""
    rules = level_rules()
    caps: list[str] = []
    passed = [line for line in lines if line.outcome is Outcome.PASSED]
    computed = {rules.precision(line.actual_dtype) for line in passed if line.actual_dtype}
    caps += [f"computed in {reason_text(name)}, not {cell.precision}" for name in sorted(computed - {cell.precision})]
    if not computed:
        caps.append("no check recorded which precision was computed in")
    for line in passed:
        caps += rules.limiting(line.conditions)
    caps += _wider(cell, passed)
    if len({line.run_id for line in passed}) > 1:
        caps.append("put together from several runs")
    light = sorted({name for line in lines for name in line.offloaded_ops if not rules.has_parameters(name)})
    if light:
        caps.append(f"on the host: {reason_text(', '.join(light))}")
    if rules.proof not in planned:
        caps.append(f"{rules.proof} was not planned: {rules.proof_reason}")
    return tuple(dict.fromkeys(caps))


def _wider(cell: Cell, passed: Sequence[CheckLine]) -> Iterator[str]:
    """Where a check was held to more than the product's tolerance and its line doesn't say whose that was."""
    for line in passed:
        limit, product = line.tolerance, _product_limit(cell, line)
        if limit is not None and "tolerance" not in line.conditions and (product is None or limit > product):
            yield f"held to a tolerance of {limit:g} that nobody gave a reason for"


def _said(cell: Cell, lines: Sequence[CheckLine]) -> Iterator[str]:
    """What has to be said of a level without changing it."""
    rules = level_rules()
    subjects = {line.subject for line in lines}
    for name, words in _SAID.items():
        for text in dict.fromkeys(line.conditions[name] for line in lines if name in line.conditions):
            yield f"{words}: {reason_text(text)}"
    for subject in rules.subjects:
        if subject in subjects and subject in rules.subject_conditions:
            yield rules.subject_conditions[subject]
    if cell.target.name in rules.stated:
        yield rules.stated[cell.target.name]
    for text in dict.fromkeys(line.unseen for line in lines if line.unseen):
        yield f"the proof did not see: {reason_text(text)}"
