"""The table and the verdicts that are printed after a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from generators.compatibility.verdict import Level
from generators.plan import PlannedSuite
from generators.run import CellResult, JobResult
from hardware.command_names import command_of
from hardware.evidence.record import CheckLine, Outcome
from hardware.plain_text import wrapped
from hardware.testing.progress import counted

from .reason_text import BASIS_WORDS, FAULT_WORDS, explained
from .text import listed, text_table, working

_HEADINGS = ("check", "outcome", "asked for", "ran on", "error/tolerance", "time")
_CELL_HEADINGS = ("cell", "weights", "verdict", "checks", "error/tolerance", "time")

_EACH = 5
"""Up to this number of cells are shown with every check; of more, only those that aren't high, below a table."""


def run_text(result: JobResult, report: Path, *, width: int = 100) -> str:
    """Return tables, verdicts with their reasons, and the paths of suite, evidence and report."""
    few = len(result.cells) <= _EACH
    interrupted = (Outcome.NOT_RUN, "interrupted")  # the run ended before it began
    reached = [
        cell
        for cell in result.cells
        if not cell.lines or any((line.outcome, line.error_type) != interrupted for line in cell.lines)
    ]
    shown = [cell for cell in reached if few or cell.verdict.level is not Level.HIGH]
    parts = [] if few else [_overview(result.cells)]
    shared = frozenset() if few else frozenset.intersection(*(frozenset(_texts(cell)[1]) for cell in result.cells))
    parts += [part for cell in shown for part in (_table(cell), _conclusion(cell, width, shared))]
    if not few:
        parts.append(_levels(result.cells, [cell for cell in result.cells if cell not in shown], shared, width))
    if unreached := [cell.written.planned.cell.id for cell in result.cells if cell not in reached]:
        parts.append("\n" + _labelled("Not reached", listed(unreached, _EACH), width))
    files = _evidence(result, width)
    reports = f"{report} (and .html, .json, .sarif, .xml for JUnit)"
    return "\n".join([*parts, *files, _labelled("Report", reports, width), ""])


def _overview(cells: Sequence[CellResult]) -> str:
    rows = []
    for cell in cells:
        worst = max(
            (line for line in cell.lines if line.max_rel_error is not None),
            key=lambda line: line.max_rel_error or 0.0,
            default=None,
        )
        counts = counted(Counter(line.outcome for line in cell.lines))
        seconds = sum(line.duration_s for line in cell.lines)
        planned = cell.written.planned
        weights = "missing" if planned.profile.missing else planned.profile.recipe.subject
        level = str(cell.verdict.level)
        rows.append((planned.cell.id, weights, level, counts, _error(worst), f"{seconds:.1f}s"))
    return f"\n{text_table(_CELL_HEADINGS, rows)}"


def _levels(cells: Sequence[CellResult], high: Sequence[CellResult], shared: Collection[str], width: int) -> str:
    """Return how many cells work, and the conditions that all share or that belong to cells without details."""
    lines = [_labelled("Verdicts", working([cell.verdict.level for cell in cells]), width)]
    conditions = Counter(text for cell in high for text in _texts(cell)[1] if text not in shared)
    said = [(text, "all cells") for text in sorted(shared)]
    said += [(text, f"{number} of the cells") for text, number in conditions.items()]
    lines += [_labelled("Condition", f"{text} ({whose})", width) for text, whose in said]
    return "\n" + "\n".join(lines)


def _texts(cell: CellResult) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return explained(cell.verdict)


def _evidence(result: JobResult, width: int) -> list[str]:
    if len(result.evidence) <= _EACH:
        return [_labelled("Evidence", str(path), width) for path in result.evidence]
    folders = dict.fromkeys(str(path.parent) for path in result.evidence)
    return [_labelled("Evidence", f"{', '.join(folders)} ({len(result.evidence)} files of this run)", width)]


def _table(cell: CellResult) -> str:
    planned = cell.written.planned
    recipe = planned.profile.recipe
    weights = f"weights: {recipe.subject}, {recipe.parameters:,} parameters"
    head = f"{planned.cell.id}   {'weights: checkpoint, missing' if planned.profile.missing else weights}"
    rows = [_row(check, cell) for check in cell.checks]
    return f"\n{head}\n{text_table(_HEADINGS, rows)}\n"


def _row(check: str, cell: CellResult) -> tuple[str, ...]:
    """Return the line that decides: of two lines of a check the one that isn't a pass."""
    own = [line for line in cell.lines if line.check_name == check]
    if not own:
        return check, "not_run", "", "", "", ""
    line = next((one for one in own if one.outcome is not Outcome.PASSED), own[0])
    error = _error(line)
    ran_on = line.actual_target or "-"
    return check, str(line.outcome), line.requested_target, ran_on, error, f"{line.duration_s:.2f}s"


def _error(line: CheckLine | None) -> str:
    if line is None or line.max_rel_error is None or line.tolerance is None:
        return ""
    return f"{line.max_rel_error:.1e}/{line.tolerance:.0e}"


def _conclusion(cell: CellResult, width: int, shared: Collection[str]) -> str:
    """Return the result of a cell; conditions that all cells share are shown once, below."""
    planned, verdict = cell.written.planned, cell.verdict
    reasons, conditions = _texts(cell)
    said = []
    if planned.profile.stands_in_for:
        known = "" if planned.profile.recipe.subject == "config" else "unknown. "
        said.append(("Asked for", f"{planned.profile.stands_in_for}: {known}{planned.profile.note}"))
    basis = "nothing measured" if verdict.level is Level.UNKNOWN else verdict.basis
    said += [("Verdict", f"{verdict.level} ({basis})")]
    if cell.taken_from:
        said.append(("Taken over", f"from run {cell.taken_from}, which had finished this cell"))
    said += [("Fault", FAULT_WORDS[verdict.fault])] if verdict.fault else []
    said += [("Reason", reason) for reason in reasons[:6]]
    said += [("Condition", condition) for condition in conditions if condition not in shared]
    if not planned.profile.missing:
        predicted, rules = planned.verdict, ", ".join(planned.verdict.rule_ids) or "no rule"
        words = f"{BASIS_WORDS[predicted.basis]}: {rules}"
        said.append(("Predicted", f"{predicted.level} ({words}), stored before the run"))
        said += [("Note", text) for text in _failure_messages(cell)]
        said += _choice(planned)
        said.append(("Suite", str(cell.written.path)))
    return "\n".join(_labelled(label, text, width) for label, text in said)


def _choice(planned: PlannedSuite) -> list[tuple[str, str]]:
    """Return what `auto` selected and why, and what it skipped."""
    if planned.selection is None:
        return []
    taken, passed = planned.selection.steps[-1], planned.selection.steps[:-1]
    said = [("Chosen", f"{taken.target}: {taken.reason}")]
    if passed:
        said.append(
            ("Passed over", f"{', '.join(s.target for s in passed)} ({command_of('devices', 'list')} says why)")
        )
    return said


def _failure_messages(cell: CellResult) -> Iterator[str]:
    """Return the first words of each check that didn't pass, each once."""
    said: dict[str, list[str]] = {}
    for line in cell.lines:
        if line.outcome is not Outcome.PASSED:
            text = line.error_message or line.substitution_reason
            said.setdefault(text.splitlines()[0] if text else "", []).append(line.check_name)
    for text, checks in said.items():
        if text:
            yield f"{', '.join(checks)}: {text[:300]}"


def _labelled(label: str, text: str, width: int) -> str:
    return "\n".join(wrapped(text, width=width, start=f"{label:<12}", indent=" " * 12, break_long_words=False))
