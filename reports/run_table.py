"""The results that are printed after a run: one table, failures grouped by cause, notes, and a last line."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hwcompat.generators.compatibility.verdict import Level, Verdict, is_failing, is_final
from hwcompat.generators.run import CellResult, JobResult
from hwcompat.hardware.backends.factory import backend_class
from hwcompat.hardware.cell import PIECES_TASK
from hwcompat.hardware.command_names import as_runnable
from hwcompat.hardware.evidence.record import CheckLine, Outcome, Stage
from hwcompat.hardware.expected_targets import TargetStatus, targets
from hwcompat.hardware.plain_text import labelled, one_line, printable
from hwcompat.hardware.testing.checks import call_checks
from hwcompat.hardware.testing.progress import counted

from .finding import Finding, Severity
from .reason_text import FAULT_WORDS, explained, reason_text
from .speed_text import latency_text
from .suites_text import selection_texts
from .text import listed

if TYPE_CHECKING:
    from rich.console import Console

_HEADINGS = ("cell", "weights", "verdict", "checks", "branches", "error / tolerance", "latency", "time")
_STYLES = {Level.HIGH: "green", Level.MEDIUM: "green", Level.UNSUPPORTED: "red"}
_OTHER_STYLE = "yellow"
_WORKS = (Level.HIGH, Level.MEDIUM)
_ERRORS = (Severity.CRITICAL, Severity.ERROR)
_SHOWN = 5
_REMEDIES = 3
_LOG_WIDTH = 200
"""The table's width outside a terminal, where a row stays on one line."""


@dataclass(kw_only=True)
class _Cause:
    """The cells that fail for one cause: the texts of each, and what to do."""

    title: str
    cells: dict[str, list[str]] = field(default_factory=dict)
    remedies: dict[str, None] = field(default_factory=dict)


def run_text(
    result: JobResult, findings: Sequence[Finding] = (), *, width: int = 100, is_terminal: bool = False
) -> str:
    """Return the table of cells, failures grouped by cause with what to do, and notes on the results.

    `findings` are those of the run's report. Colors are only for a terminal, and not with NO_COLOR.
    """
    console = _console(width if is_terminal else _LOG_WIDTH, is_terminal=is_terminal)
    _print_table(console, result.cells)
    for cause in _causes(result.cells, findings):
        number = f"{len(cause.cells)} cell{'' if len(cause.cells) == 1 else 's'}"
        _print_lines(console, [f"{cause.title} ({number})"], "bold red")
        _print_lines(console, _lines_of(cause, width))
        console.print()
    if notes := list(_notes(result)):
        _print_lines(console, [*labelled(notes, width=width), ""])
    return _printed(console)


def last_line(result: JobResult, report: Path, *, is_terminal: bool = False) -> str:
    """Return the result in one line: `2 of 4 cells don't work · report PATH · next: hwcompat localize CELL`."""
    failing = [cell for cell in result.cells if _is_failing(cell)]
    others = [cell for cell in result.cells if _ran(cell) and not _is_failing(cell)]
    not_run = sum(not _ran(cell) for cell in result.cells)
    unknown = sum(_is_unknown(cell) for cell in others)
    in_part = sum(cell.verdict.level is Level.LOW for cell in others)
    total, works = len(result.cells), len(others) - unknown - in_part
    number, verb = (len(failing), "doesn't work") if failing else (works, "works")
    if number != 1:
        verb = verb.replace("doesn't", "don't").replace("works", "work")
    counts = [f"{number} of {total} cell{'' if total == number == 1 else 's'} {verb}"]
    counts += [f"{in_part} in part"] if in_part else []
    counts += [f"{unknown} unknown"] if unknown else []
    counts += [f"{not_run} not run"] if not_run else []
    command = _next_command(failing) or ("hwcompat doctor" if any(one.substituted for one in result.cells) else "")
    parts = [", ".join(counts), f"report {report}", *([f"next: {as_runnable(command)}"] if command else [])]
    console = _console(_LOG_WIDTH, is_terminal=is_terminal)
    style = "bold red" if failing else "bold yellow" if unknown or in_part or not_run else "bold green"
    _print_lines(console, [" · ".join(parts)], style)
    return _printed(console)


def _console(width: int, *, is_terminal: bool) -> Console:
    from rich.console import Console

    return Console(file=io.StringIO(), width=width, force_terminal=is_terminal, highlight=False, emoji=False)


def _print_lines(console: Console, lines: Sequence[str], style: str = "") -> None:
    from rich.text import Text

    for line in lines:
        console.print(Text(printable(line), style=style), soft_wrap=True)


def _printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().rstrip("\n").split("\n"))


def _print_table(console: Console, cells: Sequence[CellResult]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    rows = [[printable(word) for word in _row(cell)] for cell in cells]
    extra = ("branches", "latency")
    shown = [place for place, name in enumerate(_HEADINGS) if name not in extra or any(row[place] for row in rows)]
    for place in shown:
        table.add_column(_HEADINGS[place], no_wrap=_HEADINGS[place] == "cell", overflow="fold")
    for cell, row in zip(cells, rows, strict=True):
        style = _STYLES.get(cell.verdict.level, _OTHER_STYLE)
        table.add_row(*(Text(row[place], style=style if _HEADINGS[place] == "verdict" else "") for place in shown))
    console.print()
    console.print(table)
    console.print()


def _row(cell: CellResult) -> tuple[str, ...]:
    planned = cell.written.planned
    worst = max(
        (line for line in cell.lines if line.max_rel_error is not None),
        key=lambda line: line.max_rel_error or 0.0,
        default=None,
    )
    weights = "missing" if planned.profile.missing else planned.profile.recipe.subject
    counts = counted(Counter(line.outcome for line in cell.lines))
    seconds = sum(line.duration_s for line in cell.lines)
    level = f"{cell.verdict.level}{'' if _ran(cell) else ' (earlier)'}"
    speed = latency_text(cell.lines)
    return planned.cell.id, weights, level, counts, _share(cell.verdict), _error(worst), speed, f"{seconds:.1f} s"


def _share(verdict: Verdict) -> str:
    """Return the share of the branches of the modeling code that the suite enters."""
    found = (re.search(r"\((\d+ %)\)$", reason_text(one)) for one in verdict.conditions if one.code == "exercised")
    return next((one[1] for one in found if one), "")


def _without_share(verdict: Verdict) -> Verdict:
    return replace(verdict, conditions=tuple(one for one in verdict.conditions if one.code != "exercised"))


def _error(line: CheckLine | None) -> str:
    if line is None or line.max_rel_error is None or line.tolerance is None:
        return ""
    return f"{line.max_rel_error:.1e} / {line.tolerance:.0e}"


# Failures by cause


def _ran(cell: CellResult) -> bool:
    """Whether any check ran, or the cell couldn't be planned; the verdict of another is of earlier runs."""
    return not cell.lines or any(line.outcome is not Outcome.NOT_RUN for line in cell.lines)


def _is_failing(cell: CellResult) -> bool:
    failed = any(line.outcome.is_failure for line in cell.lines)
    return failed or (_ran(cell) and is_failing(cell.verdict) and not _is_unknown(cell))


def _is_unknown(cell: CellResult) -> bool:
    return cell.untrusted or cell.verdict.level is Level.UNKNOWN


def _causes(cells: Sequence[CellResult], findings: Sequence[Finding]) -> list[_Cause]:
    """Return the causes of all cells that fail or whose results are unknown, in the order of the cells."""
    found: dict[tuple[str, ...], _Cause] = {}
    for cell in cells:
        works = cell.verdict.level in _WORKS and not cell.untrusted
        if works and not _is_failing(cell):
            continue
        own = [one for one in findings if cell.verdict.cell in one.cells and one.severity in _ERRORS]
        if cell.substituted or cell.written.planned.profile.missing:
            own = []
        for one in own:
            title = f"{one.error_type.replace('_', ' ')} on {one.hardware_type}"
            cause = found.setdefault((title, one.cause), _Cause(title=title))
            _add(cause, cell, [f"{one.message} (checks: {', '.join(one.checks)})"])
            cause.remedies.update(dict.fromkeys(one.recommendations))
        if not own or cell.untrusted or is_final(cell.verdict):
            title, texts, remedies = _without_finding(cell)
            cause = found.setdefault((title,), _Cause(title=title))
            _add(cause, cell, texts)
            cause.remedies.update(dict.fromkeys(remedies))
    return list(found.values())


def _add(cause: _Cause, cell: CellResult, texts: Sequence[str]) -> None:
    fault = cell.verdict.fault
    known = cause.cells.setdefault(cell.verdict.cell, [f"Fault: {FAULT_WORDS[fault]}"] if fault else [])
    known += [text for text in texts if text not in known]


def _without_finding(cell: CellResult) -> tuple[str, list[str], list[str]]:
    """Return the title, texts and remedies of a cell that no finding explains."""
    planned = cell.written.planned
    if planned.profile.missing:
        return f"the weights of {planned.profile.asked} are missing", [planned.profile.missing], []
    if cell.substituted:
        target = planned.cell.target
        actual = next((line.actual_target for line in cell.lines if line.actual_target), "another target")
        texts = [f"The checks ran on {actual}. They don't count as a pass on {target}."]
        remedies = [f"See what is missing: {as_runnable('hwcompat doctor')}"]
        return f"{target} isn't available: {cell.substituted}", texts, remedies
    if cell.lines and all(line.error_type == "interrupted" for line in cell.lines):
        return "not run: the run was interrupted", [], []
    reasons, _ = explained(cell.verdict)
    title = reasons[0] if reasons else "no result"
    return title if cell.verdict.level is Level.UNKNOWN else f"works in part: {title}", list(reasons[1:]), []


def _lines_of(cause: _Cause, width: int) -> list[str]:
    """Return the lines of a cause: cells with the same texts are listed together."""
    by_texts: dict[tuple[str, ...], list[str]] = {}
    for cell, own in cause.cells.items():
        by_texts.setdefault(tuple(own), []).append(cell)
    shown: list[tuple[str, str]] = []
    for texts, cells in by_texts.items():
        shown.append(("Cell" if len(cells) == 1 else "Cells", listed(cells, _SHOWN)))
        shown += [("", one_line(text)) for text in texts]
    shown += [("Fix", one_line(text)) for text in list(cause.remedies)[:_REMEDIES]]
    return labelled(shown, width=width)


def _next_command(failing: Sequence[CellResult]) -> str:
    """Return the command that helps with the first failure: outputs that differ can be localized, and checks of other
    calls than the plain ones only explained."""
    emulated = failing and backend_class(failing[0].written.planned.cell.target.name).SIMULATED
    helps: dict[str, Callable[[CheckLine], bool]] = {
        "localize": lambda line: line.check_name == "matches_reference" and line.stage is Stage.COMPARE,
        "fix" if emulated else "repro": lambda line: line.check_name not in call_checks(),
        "explain": lambda line: True,
    }
    for command, fits in helps.items():
        for cell in failing:
            if cell.written.planned.cell.task == PIECES_TASK and command != "explain":
                continue  # its check names the piece
            if any(line.outcome.is_failure and fits(line) for line in cell.lines):
                return f"hwcompat {command} {cell.verdict.cell}"
    return ""


# Notes


def _notes(result: JobResult) -> Iterator[tuple[str, str]]:
    """Return labeled texts: requested models that were replaced, conditions, predictions, selections and files."""
    cells = result.cells
    for text, ids in _by_text((cell, _stand_in(cell)) for cell in cells).items():
        yield "Requested", f"{text} ({listed(ids, _SHOWN)})"
    for run, ids in _by_text((cell, cell.taken_from) for cell in cells).items():
        yield "Resumed", f"{listed(ids, _SHOWN)}: from run {run}"
    conditions = _by_text(
        (cell, text) for cell in cells if not _is_failing(cell) for text in explained(_without_share(cell.verdict))[1]
    )
    passing = _by_text(
        (cell, text) for cell in cells if cell.verdict.level is Level.MEDIUM for text in explained(cell.verdict)[0]
    )
    for label, found in (("Medium", passing), ("Condition", conditions)):
        for text, ids in found.items():
            yield label, f"{text} ({'all cells' if len(ids) == len(cells) > 1 else listed(ids, _SHOWN)})"
    yield from _predictions(cells)
    yield from _selections(result)
    if folders := dict.fromkeys(str(cell.written.path.parent) for cell in cells):
        yield "Suites", ", ".join(folders)
    if folders := dict.fromkeys(str(path.parent) for path in result.evidence):
        yield "Evidence", f"{', '.join(folders)} ({len(result.evidence)} files of this run)"


def _by_text(pairs: Iterator[tuple[CellResult, str]]) -> dict[str, list[str]]:
    """Return the cells of each text, without empty texts."""
    found: dict[str, list[str]] = {}
    for cell, text in pairs:
        if text:
            found.setdefault(text, []).append(cell.verdict.cell)
    return found


def _stand_in(cell: CellResult) -> str:
    """Return what was requested, if other weights ran in place of it."""
    profile = cell.written.planned.profile
    if not profile.stands_in_for:
        return ""
    known = "" if profile.recipe.subject == "config" else "unknown. "
    return f"{profile.stands_in_for}: {known}{profile.note}"


def _predictions(cells: Sequence[CellResult]) -> Iterator[tuple[str, str]]:
    """Return how many stored predictions the results confirm, and each that they don't."""
    predicted = {cell.verdict.cell: cell.written.planned.verdict.level for cell in cells}
    unknown = Level.UNKNOWN
    judged = [one for one in cells if _ran(one) and unknown not in (one.verdict.level, predicted[one.verdict.cell])]
    wrong = [
        f"{cell.verdict.cell}: predicted {predicted[cell.verdict.cell]}, measured {cell.verdict.level}"
        for cell in judged
        if (predicted[cell.verdict.cell] in _WORKS) != (cell.verdict.level in _WORKS)
    ]
    if judged:
        right = len(judged) - len(wrong)
        were = "was" if right == 1 else "were"
        yield "Predicted", f"{right} of {len(judged)} predictions stored before the run {were} right about what works"
    yield from (("", text) for text in wrong[:_SHOWN])


def _selections(result: JobResult) -> Iterator[tuple[str, str]]:
    """Return why `auto` selected its targets, once for all cells with the same reasons."""
    chosen = [cell for cell in result.cells if cell.written.planned.selection]
    statuses: Sequence[TargetStatus] = targets(result.inventory) if chosen else ()
    by_texts: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for cell in chosen:
        selection = cell.written.planned.selection
        assert selection is not None
        by_texts.setdefault(tuple(selection_texts(selection, statuses)), []).append(cell.verdict.cell)
    for texts, ids in by_texts.items():
        label, text = texts[0]
        yield label, f"{text} ({listed(ids, _SHOWN)})"
        yield from texts[1:]
