"""`hwcompat fix`: try changes that may fix a failing cell in child processes, and report the smallest that did."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from hwcompat.generators.models.classification import classify_type
from hwcompat.hardware.backends.factory import resolve_target
from hwcompat.hardware.cell import Cell, parsed
from hwcompat.hardware.command_line import note
from hwcompat.hardware.command_names import own_command
from hwcompat.hardware.detection import detect
from hwcompat.hardware.errors import NothingMatched, echo
from hwcompat.hardware.evidence.latest import read_latest
from hwcompat.hardware.evidence.store import read_folder
from hwcompat.hardware.evidence.writer import new_run_id, now
from hwcompat.hardware.expected_targets import targets
from hwcompat.hardware.files import DEFAULT_EVIDENCE, OUTPUT
from hwcompat.hardware.plain_text import json_text
from hwcompat.hardware.plain_values import json_values
from hwcompat.plugins.triage.remedies.try_remedies import (
    STATE_TEXT,
    CellTried,
    TrialState,
    TriedRemedy,
    Workplace,
    try_cell,
)
from hwcompat.reports.delivery import SUFFIXES, print_or_write
from hwcompat.reports.document import COMMAND, Answer, Block, document
from hwcompat.reports.finding import COSTS
from hwcompat.reports.progress_bar import working_on
from hwcompat.reports.report_request import Request

FOLDER = OUTPUT / "remedies"
"""The folder of the evidence of tries: one folder for each run, apart from the user's evidence."""

SCHEMA_VERSION = 1
NOT_FIXED = 1
_SHOWN = 5


def try_remedies(request: Request, names: Sequence[str]) -> int:
    """Try remedies, print or write the results, and return the exit code.

    0 if every cell was fixed, or works unchanged; 5 if no remedy applies to any of them; 1 otherwise. Raises
    `UsageError` for an invalid cell, `NothingMatched` (5) for a pattern that matches no failing cell of the evidence.
    """
    evidence = request.evidence or (DEFAULT_EVIDENCE if DEFAULT_EVIDENCE.is_dir() else None)
    if request.evidence is not None:
        read_folder(request.evidence)  # raises with what is wrong with it
    cells = asked_cells(names, evidence)
    folder = FOLDER / new_run_id()
    place = Workplace(folder=folder, evidence=evidence, command=own_command())
    here = [one.target for one in targets(detect()) if one.expected]
    found = []
    for cell in cells:
        note(f"{cell.id}: baseline, then each fix")
        with working_on("running the cell"):
            found.append(try_cell(cell, place, here=here, on_note=note))
    form, where = request.file_format, str(folder)
    text = (
        f"{remedies_json(found, where, now())}\n" if form == "json" else document(remedies_blocks(found, where), form)
    )
    print_or_write(text, request.output_dir, f"remedies.{SUFFIXES[form]}")
    return exit_code(found)


def exit_code(found: Sequence[CellTried]) -> int:
    """Return 0 if a remedy fixed every cell that doesn't work unchanged, 5 if nothing applies to any, else 1."""
    if all(one.works or one.smallest for one in found):
        return 0
    if not any(one.works or one.tried or one.problem for one in found):
        return NothingMatched.exit_code
    return NOT_FIXED


def asked_cells(texts: Sequence[str], evidence: Path | None) -> tuple[Cell, ...]:
    """Return the named cells, and the failing ones of the evidence that match a pattern, each once."""
    lines = read_latest(evidence).checks if evidence else ()
    known = {line.cell_id for line in lines}
    failing = sorted({line.cell_id for line in lines if line.outcome.is_failure})
    found: dict[str, Cell] = {}
    for text in texts:
        if any(sign in text for sign in "*?["):
            fitting = [cell for cell in failing if fnmatchcase(cell, text)]
            if not fitting:
                raise _nothing_matches(text, failing, evidence)
            found |= {id_: cell for id_ in fitting if (cell := parsed(id_))}
            continue
        cell = Cell.parse(text)
        if cell.id not in known:
            resolve_target(str(cell.target))
            classify_type(cell.model)
        found[cell.id] = cell
    return tuple(found.values())


def _nothing_matches(pattern: str, failing: Sequence[str], evidence: Path | None) -> NothingMatched:
    shown = ", ".join(echo(cell) for cell in failing[:_SHOWN])
    where = f"of {evidence}" if evidence else "since there is no evidence"
    return NothingMatched(
        f"{echo(pattern)} matches no failing cell {where}",
        why="a pattern selects among cells that were measured and failed",
        fix=f"Failing cells: {shown}." if shown else "Name a cell, for example bert/fill-mask/cpu/float32.",
    )


# Results as text, Markdown and JSON (`schemas/remedies.json`)


def remedies_blocks(cells: Sequence[CellTried], folder: str) -> Iterator[Block]:
    """Yield the answer for each cell, with how to apply the smallest change that fixed it, and all tries."""
    if len(cells) > 1:
        yield f"{_count_fixed(cells)} of {len(cells)} cells fixed."
    for one in cells:
        yield Answer(cell=one.cell.id, text=_answer(one), facts=_facts(one))
    yield f"Evidence of the tries: {folder}"


def _count_fixed(cells: Sequence[CellTried]) -> int:
    return sum(1 for one in cells if one.smallest)


def _answer(one: CellTried) -> str:
    if one.works:
        return f"works unchanged: level {one.level}"
    if one.problem:
        return f"not measured: {one.problem}"
    if one.smallest:
        return f"fixed by {one.smallest.step.id}, {one.smallest.step.remedy.says}"
    return f"{'no fix worked' if one.tried else 'no fix applies'}: {one.reason}"


def _facts(one: CellTried) -> list[tuple[str, str]]:
    """Return how the cell fails, how to apply the fix, and what was tried, as labels and texts."""
    if one.works or one.problem:
        return []
    facts = []
    if found := one.smallest:
        cost = found.step.remedy.cost
        facts = [(COMMAND, write_of(found)), ("Cost", "; ".join(f"{name}: {cost[name]}" for name in COSTS))]
    facts.append(("Baseline", f"{one.error_type}, {one.why}"))
    facts += [("Tried", f"{tried.step.id}: {_result_text(tried)}") for tried in one.tried]
    if one.not_tried:
        facts.append(("Not tried", f"{', '.join(one.not_tried)}: not smaller"))
    return facts


def _result_text(one: TriedRemedy) -> str:
    text = f"{STATE_TEXT[one.state]} (level {one.level}, {one.seconds:.0f} s)"
    details = "; ".join(one.conditions) if one.state is TrialState.FIXED else one.why
    return f"{text}: {details}" if details else text


def write_of(one: TriedRemedy) -> str:
    """Return what a user writes to apply a remedy; names in a command are quoted for a shell."""
    cell = one.step.cell
    text = one.step.remedy.write
    values = {"model": cell.model, "target": str(cell.target), "precision": cell.precision}
    return re.sub(r"\{(model|target|precision)\}", lambda found: shlex.quote(values[found[1]]), text)


def remedies_json(cells: Sequence[CellTried], folder: str, timestamp: str) -> str:
    """Return the results of all cells as JSON."""
    data = {
        "schema_version": SCHEMA_VERSION,
        "timestamp": timestamp,
        "folder": folder,
        "turned": _count_fixed(cells),
        "cells": [cell_to_dict(one) for one in cells],
    }
    return json_text(data, indent=1, ascii_alone=True)


def cell_to_dict(one: CellTried) -> dict[str, Any]:
    """Return the results of a cell as JSON values."""
    found = one.smallest
    return {
        **json_values(one),
        "cell": one.cell.id,
        "works": one.works,
        "tried": [_tried_to_dict(each) for each in one.tried],
        "smallest": found.step.id if found else None,
        "write": write_of(found) if found else None,
    }


def _tried_to_dict(one: TriedRemedy) -> dict[str, Any]:
    values, step = json_values(one), one.step
    del values["step"]
    return {
        "remedy": step.id,
        "says": step.remedy.says,
        "size": step.remedy.size,
        "likely": step.likely,
        "cell": step.cell.id,
        "changed": step.changes.text,
        "leaves_out": list(step.remedy.leaves_out),
        "cost": {name: step.remedy.cost[name] for name in COSTS},
        **values,
    }
