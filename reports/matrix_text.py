"""A matrix as text: a terminal's table, Markdown, JSON or CSV. Each level's basis has a mark and a legend."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

from hwcompat.generators.compatibility.matrix import Matrix
from hwcompat.generators.compatibility.matrix_groups import GROUPS, GroupCell
from hwcompat.generators.compatibility.rules import own_files
from hwcompat.generators.compatibility.verdict import Basis, Level, Verdict, is_fault_of_model
from hwcompat.hardware.command_names import as_runnable
from hwcompat.hardware.errors import UsageError, did_you_mean, echo
from hwcompat.hardware.plain_text import json_text, one_line, printable, wrapped

from .reason_text import AT_FAULT, BASIS_WORDS, fault_of_model, texts, with_texts
from .text import markdown, text_table

CONSOLE_WIDTH = 100
NARROWEST = 60

MARKS = {
    Basis.ASSUMED: "*",
    Basis.PREDICTED: "~",
    Basis.MEASURED: "+",
    Basis.IMPORTED: "^",
    Basis.EXPIRED: "!",
}
_SIGNS = [f"{sign} {BASIS_WORDS[basis]}" for basis, sign in MARKS.items()]
LEGEND = ("   ".join(_SIGNS[:2]), "   ".join(_SIGNS[2:]))
COUNTS = (
    "n/m: n of m measured or imported models are high or medium; (n/m): n of m models without measurements are "
    "expected to be, by rules (~) or by the assumption for their family (*)"
)
FORMATS = ("table", "markdown", "json", "csv")
FAULTS = f"{AT_FAULT}: the model's own code fails, on the CPU too, and doesn't count against a target:"
NOTES = "Notes on the assumed (*) levels of each family:"
SPLIT = "Cells whose level differs between devices:"

_LONGEST_LABEL = 44
_LONGEST_SHOWN = 2_000
_WIDEST_LEVEL = 18
_WIDEST_TEXT = 120
_GAP = 2

_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
"""How a formula may begin, in full width too; spaces before it are ignored."""

Rows = list[list[str]]


def matrix_text(
    matrix: Matrix,
    format: str = "table",
    *,
    by: str = "family",
    width: int = CONSOLE_WIDTH,
    legend: bool = True,
    whole_names: bool = False,
) -> str:
    """Return the matrix as text that ends in a newline.

    `format` is table (at most `width` columns wide, at least 60), markdown, json (always all views) or csv (one
    view); `by` is one of `VIEWS`. Without `legend` the marks and notes below a table are left out. With `whole_names`
    no name is cut. Raises `UsageError` for others.
    """
    if format not in FORMATS:
        raise _unknown(format, FORMATS, "format of a matrix")
    if by not in VIEWS:
        raise _unknown(by, VIEWS, "view of a matrix")
    if format == "json":
        return json_text(with_texts(matrix.to_dict())) + "\n"
    if format == "csv":
        return _csv(matrix, by)
    label, rows = _rows(matrix, by)
    if not rows:
        return f"{as_runnable(NOTHING[by])}\n"
    table = [[label, *matrix.hardware_types], *rows]
    notes = _notes(matrix, by)
    if format == "markdown" and by in matrix.groups:  # names of machines and accelerators are untrusted
        table = [table[0], *([markdown(row[0]), *row[1:]] for row in rows)]
        notes = [[*part[:1], *map(markdown, part[1:])] for part in notes]
    parts = (
        _table(table, max(width, NARROWEST), whole_names=whole_names)
        if format == "table"
        else [text_table(table[0], table[1:], "github")]
    )
    if legend:
        own = own_files(id_ for row in matrix.rows for one in row.verdicts.values() for id_ in one.rule_ids)
        parts += [f"Using your rules: {', '.join(own)}"] if own else []
        parts += (
            _legend(notes, min(max(width, NARROWEST), _WIDEST_TEXT)) if format == "table" else _markdown_legend(notes)
        )
    return "\n\n".join(parts) + "\n"


def _unknown(name: str, known: tuple[str, ...], noun: str) -> UsageError:
    return UsageError(f"{echo(name)} is not a {noun}", fix=did_you_mean(name, known) or f"Known: {', '.join(known)}.")


def mark(level: Level, basis: Basis | None) -> str:
    """Return a level with its mark: `high+`; `unknown` has none."""
    return str(level) if basis is None or level is Level.UNKNOWN else f"{level}{MARKS[basis]}"


def cell_text(verdict: Verdict) -> str:
    """Return a verdict with its mark; `model` in place of a level if the model fails by its own code."""
    if is_fault_of_model(verdict.cell, verdict.level, verdict.fault):
        return f"{AT_FAULT}{MARKS[verdict.basis]}"
    return mark(verdict.level, verdict.basis)


def _group_text(cell: GroupCell) -> str:
    """Return `46/49+ (3/4)`, or the assumed level of a family without other results."""
    counts, basis = cell.counts, cell.basis
    if cell.level is not None or basis is None:
        return mark(cell.level or Level.UNKNOWN, basis)
    if counts.measured:
        expected = f" ({counts.said_supported}/{counts.said})" if counts.said else ""
        return f"{counts.supported}/{counts.measured}{MARKS[Basis.MEASURED]}{expected}"
    works = sum(number for level, number in cell.levels.items() if level in (Level.HIGH, Level.MEDIUM))
    if basis is Basis.IMPORTED:
        expected = f" ({counts.said_supported}/{counts.said})" if counts.said else ""
        return f"{works}/{sum(cell.levels.values())}{MARKS[basis]}{expected}"
    return f"({works}/{sum(cell.levels.values())}){MARKS[basis]}"


VIEWS = ("family", "model", *GROUPS)


def _rows(matrix: Matrix, by: str) -> tuple[str, Rows]:
    """Return the heading of the first column, and a row for each family, group or model."""
    targets = matrix.hardware_types
    if by == "model":
        rows = [[row.id, *(cell_text(row.verdicts[name]) for name in targets)] for row in matrix.rows]
        return "model/task/precision", rows
    return by, [[_shown(name), *(_group_text(cells[one]) for one in targets)] for name, cells in _groups(matrix, by)]


def _groups(matrix: Matrix, by: str) -> Iterable[tuple[str, Mapping[str, GroupCell]]]:
    return (matrix.families if by == "family" else matrix.groups[by]).items()


NOTHING = {
    "family": "There are no families.",
    "model": "No model has a verdict yet.",
    "architecture": "No model has a verdict yet, so architectures have no levels.",
    "accelerator": "No accelerator has evidence yet. Run suites: hwcompat run --model bert",
    "machine": "No machine has evidence yet. Run suites: hwcompat run --model bert",
}


def _notes(matrix: Matrix, by: str) -> list[list[str]]:
    """Return the notes of families' rules and faults of models, or of groups the cells that have another level
    elsewhere: lists of lines with a heading."""
    if by in matrix.groups:
        found = [
            f"{_shown(name)}: {_shown('; '.join(notes))}"
            for name, cells in _groups(matrix, by)
            if (notes := dict.fromkeys(note for cell in cells.values() for note in cell.notes))
        ]
        return [[SPLIT, *found] if found else []]
    found = [f"{family}: {'; '.join(n)}" for family in matrix.model_families if (n := matrix.family_notes(family))]
    at_fault = [
        _shown(f"{row.id}: {why}")
        for row in matrix.rows
        if by == "model" and (why := fault_of_model([one.to_dict() for one in row.verdicts.values() if one.fault]))
    ]
    return [[NOTES, *found] if found else [], [FAULTS, *at_fault] if at_fault else []]


def _shown(text: str) -> str:
    """Return a text of evidence made safe for a terminal: names of accelerators and machines are untrusted."""
    return one_line(text, longest=_LONGEST_SHOWN)


def _table(table: Rows, width: int, *, whole_names: bool) -> list[str]:
    """Return the blocks of a table, each with the labels, if one is too wide for the console."""
    longest = min(_LONGEST_LABEL, width - _WIDEST_LEVEL - _GAP)

    def shorten(name: str) -> str:
        return name if len(name) <= longest else f"{name[: longest - 1]}…"

    short = table if whole_names else [[shorten(row[0]), *row[1:]] for row in table]
    blocks = ([[line[0], *(line[i] for i in columns)] for line in short] for columns in _blocks(short, width))
    return [text_table(block[0], block[1:]) for block in blocks]


def _legend(notes: Sequence[Sequence[str]], width: int) -> list[str]:
    parts: list[Sequence[str]] = [[*LEGEND, COUNTS], *notes]
    lines = ([line for text in part for line in wrapped(text, width=width, break_on_hyphens=True)] for part in parts)
    return ["\n".join(part) for part in lines if part]


def _blocks(lines: Rows, console: int) -> list[list[int]]:
    """Return the indices of the columns of each block, so that no block is wider than the console."""
    # tabulate makes a column wider than its header by the width of the gap between columns.
    widths = [max(len(lines[0][i]) + _GAP, *(len(line[i]) for line in lines)) + _GAP for i in range(len(lines[0]))]
    blocks: list[list[int]] = [[]]
    used = widths[0]
    for i, width in enumerate(widths[1:], 1):
        if blocks[-1] and used + width - _GAP > console:
            blocks.append([])
            used = widths[0]
        blocks[-1].append(i)
        used += width
    return blocks


def _markdown_legend(notes: Sequence[Sequence[str]]) -> list[str]:
    legend = "\n".join(f"- `{m}` {BASIS_WORDS[basis]}" for basis, m in MARKS.items())
    parts = [f"{legend}\n- {COUNTS}"]
    for heading, *lines in filter(None, notes):
        parts += [heading, "\n".join(f"- {line}" for line in lines)]
    return parts


def _csv(matrix: Matrix, by: str) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if by != "model":
        head = (by, "hardware", "level", "basis", "supported", "measured", "models")
        body = [_group_line(row, one, cell) for row, cells in _groups(matrix, by) for one, cell in cells.items()]
        writer.writerows([head, *(_safe(line) for line in body)])
        return text.getvalue()
    columns = ("cell", "family", "hardware", "level", "basis", "reasons", "conditions", "rules", "evidence")
    writer.writerow(columns)
    for row in matrix.rows:
        writer.writerows(_safe(_model_line(row.family, name, v)) for name, v in row.verdicts.items())
    return text.getvalue()


def _group_line(family: str, name: str, cell: GroupCell) -> tuple[object, ...]:
    counts = cell.counts
    models = "" if counts.models is None else counts.models
    basis = "" if cell.basis is None else str(cell.basis)
    return (family, name, cell.level or "", basis, counts.supported, counts.measured, models)


def _model_line(family: str, name: str, verdict: Verdict) -> tuple[object, ...]:
    lists = (texts(verdict.reasons), texts(verdict.conditions), verdict.rule_ids, verdict.evidence_ids)
    basis = "" if verdict.level is Level.UNKNOWN else str(verdict.basis)
    return (verdict.cell, family, name, verdict.level, basis, *("; ".join(one) for one in lists))


def _safe(values: Sequence[object]) -> list[str]:
    """Escape values that quote untrusted text, so that a spreadsheet runs no formula and a terminal no command. No
    cell begins with a newline, which importers take for a new row."""
    texts = [printable(str(value), keep="\n") for value in values]
    return [f"'{text}" if text.startswith("\n") or text.lstrip().startswith(_FORMULA) else text for text in texts]
