"""From evidence to a verdict: what a cell's check lines say, and no more than they say.

Lines that don't speak of the cell (another target, too small a subject, other versions) are set aside first.
The rest is judged for each accelerator by itself, and the worst level that is known is the cell's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hardware.cell import Cell
from hardware.errors import UsageError
from hardware.evidence.error_types import facts_of_error_types
from hardware.evidence.record import EDITED, OUTDATED, CheckLine, Outcome
from hardware.evidence.versions import expiry_by_check, modified_for
from hardware.target import Target

from .current_checks import worst_of_runs
from .judgement import Judgement, describe, judge, reason_text, tolerance_moved
from .levels import level_rules
from .verdict import Basis, Level, Verdict, worst

_EXPIRED = ("measured with ", "measured by ", "the installed modeling files ")
"""How each reason begins for which evidence doesn't count any more."""

MODIFIED = "modified checker"
"""How a run is marked whose checking code was never declared."""

UNNAMED = ""
"""The accelerator of lines of a run that names none."""

_EVIDENCE = frozenset(o for o in Outcome if o.is_failure or o in (Outcome.PASSED, Outcome.AMBIGUOUS))


def conclude(
    cell: Cell,
    planned_checks: Sequence[str],
    checks: Sequence[CheckLine],
    *,
    current_versions: Mapping[str, str],
    run_versions: Mapping[str, Mapping[str, str]],
    subject_required: str = "tiny",
    suite_hash: str = "",
    outdated: str = "",
    required_checks: Sequence[str] = (),
    own_limit: float | None = None,
) -> Verdict:
    """The measured verdict of `cell`; `unknown` wherever the lines don't show more.

    `current_versions` are the versions of now, `run_versions` those of each run by its id: a line whose target or
    check depends on one that differs has the basis `expired`, and so has a line of a run without versions. A line
    that undeclared checking code measured doesn't count at all (`hardware/evidence/revisions.py`). Expired is also a
    line of another suite, where `suite_hash` names the present one, every line where `outdated` says why the present
    one isn't up to date, and what was held to a tolerance under which it would be decided otherwise now.
    `subject_required` is `checkpoint` where the cell's model is a checkpoint. `required_checks` are those that the
    cell has to have whether they were planned or not. `own_limit` is a repository's own tolerance for the cell. Lines
    of other cells are left out, and of two lines of one check in one run the worse one counts.
    """
    if not planned_checks:
        return _unknown(cell, ["nothing was planned, so nothing can be concluded"], ())
    lacking = tuple(name for name in required_checks if name not in planned_checks)
    planned_checks = (*planned_checks, *lacking)
    own = worst_of_runs([line for line in checks if line.cell_id == cell.id])
    old = _expired_lines(cell, own, current_versions, run_versions, outdated, own_limit)
    sorted_lines = _sort(cell, own, old, _modified_lines(cell, own, run_versions), subject_required, suite_hash)
    verdict = _over_accelerators(cell, planned_checks, sorted_lines.current, Basis.MEASURED, own_limit)
    if verdict.level is Level.UNKNOWN and sorted_lines.expired:
        older = _over_accelerators(cell, planned_checks, sorted_lines.expired, Basis.EXPIRED, own_limit)
        if older.level is Level.UNKNOWN and sorted_lines.current:  # some checks alone have expired
            both = (*sorted_lines.current, *sorted_lines.expired)
            older = _over_accelerators(cell, planned_checks, both, Basis.EXPIRED, own_limit)
        reasons = (*sorted_lines.why_expired, *older.reasons)
        verdict = replace(older, reasons=reasons)
    if verdict.level is Level.UNKNOWN:
        thin = [f"the plan lacks checks that the cell has to have: {', '.join(lacking)}"] if lacking else []
        return replace(verdict, reasons=_once([*thin, *sorted_lines.set_aside, *verdict.reasons]))
    return verdict


def why_expired(verdict: Verdict) -> tuple[str, ...]:
    """Of an expired verdict's reasons, those that say what has changed since."""
    return tuple(reason for reason in verdict.reasons if reason.startswith(_EXPIRED))


def by_accelerator(
    cell: Cell, planned_checks: Sequence[str], lines: Sequence[CheckLine], own_limit: float | None = None
) -> dict[str, Judgement]:
    """A judgement for each accelerator that the lines name; lines that name none belong to all of their run."""
    groups = sorted(_split(lines).items())
    return {name: judge(cell, planned_checks, group, own_limit=own_limit) for name, group in groups if group}


def final(predicted: Verdict, concluded: Verdict) -> Verdict:
    """The answer for one cell: what was measured where that is known, else the prediction and why it isn't.

    Raises `ValueError` for verdicts of two cells.
    """
    if predicted.cell != concluded.cell:
        raise ValueError(f"{predicted.cell} and {concluded.cell} are two cells")
    if concluded.level is not Level.UNKNOWN:
        return concluded
    return replace(predicted, reasons=_once([*predicted.reasons, *concluded.reasons]))


@dataclass(frozen=True, kw_only=True)
class _Sorted:
    """A cell's lines: those that count, those of other versions, and in words what was set aside and why."""

    current: tuple[CheckLine, ...]
    expired: tuple[CheckLine, ...]
    why_expired: tuple[str, ...]
    set_aside: tuple[str, ...]


def _expired_lines(
    cell: Cell,
    lines: Sequence[CheckLine],
    current_versions: Mapping[str, str],
    run_versions: Mapping[str, Mapping[str, str]],
    outdated: str,
    own_limit: float | None,
) -> dict[tuple[str, str], str]:
    """Run and check of the lines that no longer hold, each with the reason: other versions, another tolerance."""
    found: dict[tuple[str, str], str] = {}
    for run_id in dict.fromkeys(line.run_id for line in lines):
        own = [line for line in lines if line.run_id == run_id]
        checks = dict.fromkeys(line.check_name for line in own)
        then = run_versions.get(run_id)
        moved = expiry_by_check(cell, then, current_versions, checks) if then is not None else {}
        held = tolerance_moved(cell, own, own_limit)
        suite = next((line.conditions[OUTDATED] for line in own if OUTDATED in line.conditions), "")
        unknown = "measured with versions that aren't known" if then is None else ""
        of_run = (
            outdated or unknown or (f"measured by a suite of other revisions: {reason_text(suite)}" if suite else "")
        )
        for check in checks:
            of_check = f"measured with {'; '.join(moved[check])}" if moved.get(check) else held
            if why := of_run or of_check:
                found[run_id, check] = why
    return found


def _modified_lines(
    cell: Cell, lines: Sequence[CheckLine], run_versions: Mapping[str, Mapping[str, str]]
) -> dict[tuple[str, str], str]:
    """Run and check of the lines that undeclared checking code measured, each with its parts in words."""
    found = {}
    for run_id, check in dict.fromkeys((line.run_id, line.check_name) for line in lines):
        if parts := modified_for(cell, run_versions.get(run_id, {}), (check,)):
            found[run_id, check] = f"{MODIFIED}: {reason_text(', '.join(parts))}"
    return found


def _sort(
    cell: Cell,
    lines: Sequence[CheckLine],
    old: Mapping[tuple[str, str], str],
    modified: Mapping[tuple[str, str], str],
    subject_required: str,
    suite_hash: str,
) -> _Sorted:
    current: list[CheckLine] = []
    expired: list[CheckLine] = []
    why_expired: list[str] = []
    set_aside: list[str] = []
    elsewhere = {line.run_id: line for line in lines if ran_elsewhere(cell, line)}
    there = {line.run_id for line in lines if _is_there(cell, line)}
    edited = {line.run_id for line in lines if EDITED in line.conditions}
    for line in lines:
        if line.run_id in edited:
            set_aside.append(str(facts_of_error_types()["suite_edited"]["says"]))
        elif line.run_id in elsewhere:
            set_aside.append(_substituted(cell, elsewhere[line.run_id]))
        elif line.run_id not in there:
            set_aside.append(f"{describe(line)}; nothing says that this was on {cell.target}")
        elif (line.run_id, line.check_name) in modified:
            set_aside.append(modified[line.run_id, line.check_name])
        elif line.is_to_come:
            set_aside.append(f"{line.check_name} is dated {reason_text(line.started_at)}, which is yet to come")
        elif not level_rules().proves_enough(line.subject, subject_required):
            set_aside.append(f"evidence from {reason_text(line.subject)} says nothing of a {subject_required}")
        elif (line.run_id, line.check_name) in old or (suite_hash and line.suite_hash != suite_hash):
            expired.append(line)
            why_expired.append(old.get((line.run_id, line.check_name), "measured by another suite"))
        else:
            current.append(line)
    return _Sorted(
        current=tuple(current),
        expired=tuple(expired),
        why_expired=_once(why_expired),
        set_aside=_once(set_aside),
    )


def ran_elsewhere(cell: Cell, line: CheckLine) -> bool:
    """Whether the line shows that its run was on another target: then none of that run's lines count here."""
    if line.outcome is Outcome.PASSED_ON_FALLBACK or line.substitution_reason:
        return True
    return line.actual_target is not None and not _is_there(cell, line)


def _is_there(cell: Cell, line: CheckLine) -> bool:
    """Whether the line names the cell's target as the one that it ran on.

    What a parent writes for a child that died names none, and the other lines of the run tell; where they are
    silent too, only `cpu`, which nothing is substituted for, is taken at its word.
    """
    if line.actual_target is None:
        return cell.target.name == "cpu"
    try:
        actual = Target.parse(line.actual_target)
    except UsageError:
        return False
    return actual.name == cell.target.name and cell.target.variant in ("", actual.variant)


def _substituted(cell: Cell, line: CheckLine) -> str:
    why = f": {reason_text(line.substitution_reason)}" if line.substitution_reason else ""
    return f"the run was on {reason_text(line.actual_target or 'another target')}, not on {cell.target}{why}"


def _split(lines: Sequence[CheckLine]) -> dict[str, list[CheckLine]]:
    named: dict[str, list[str]] = {}
    for line in lines:
        names = named.setdefault(line.run_id, [])
        if line.accelerator and line.accelerator not in names:
            names.append(line.accelerator)
    groups: dict[str, list[CheckLine]] = {}
    for line in lines:
        for name in [line.accelerator] if line.accelerator else named[line.run_id] or [UNNAMED]:
            groups.setdefault(name, []).append(line)
    return groups


def _over_accelerators(
    cell: Cell, planned: Sequence[str], lines: Sequence[CheckLine], basis: Basis, own_limit: float | None
) -> Verdict:
    if not any(line.outcome in _EVIDENCE for line in lines):
        words = [f"{line.check_name} {_why_not(line)}" for line in lines]
        return _unknown(cell, words or ["nothing was measured"], lines, basis)
    judged = by_accelerator(cell, planned, lines, own_limit)
    level = worst([one.level for one in judged.values()])
    several = len(judged) > 1
    # A better level on another accelerator is said too, so that nobody takes the worst for the only one.
    reasons = [
        f"{name}: {text}" if several and name else text for name, one in judged.items() for text in one.reasons
    ]
    return Verdict(
        cell=cell.id,
        level=level,
        basis=basis,
        reasons=_once(reasons),
        conditions=_once(text for one in judged.values() for text in one.conditions),
        evidence_ids=_ids(lines),
    )


def _why_not(line: CheckLine) -> str:
    words = str(line.outcome).replace("_", " ")
    return f"{words}: {reason_text(line.error_message)}" if line.error_message else words


def _unknown(
    cell: Cell, reasons: Iterable[str], lines: Sequence[CheckLine], basis: Basis = Basis.MEASURED
) -> Verdict:
    return Verdict(cell=cell.id, level=Level.UNKNOWN, basis=basis, reasons=_once(reasons), evidence_ids=_ids(lines))


def _ids(lines: Sequence[CheckLine]) -> tuple[str, ...]:
    return _once(line.evidence_id for line in lines)


def _once(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
