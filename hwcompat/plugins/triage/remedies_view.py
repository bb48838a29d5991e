"""How tried remedies are told: as text, and as JSON that `schemas/remedies.json` describes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from hardware.evidence.record import CheckLine
from hardware.plain_text import folded, json_text, one_line
from hwcompat.plugins.triage.remedies.judging import State, Tried
from hwcompat.plugins.triage.remedies.trying import CellTried
from reports.finding import COSTS
from reports.identifying import Around, identify
from reports.text import code, markdown, markdown_table

SCHEMA_VERSION = 1
_SAID = {
    State.TURNED: "turned",
    State.BETTER: "better, not turned",
    State.FAILS: "still fails",
    State.NOT_APPLICABLE: "changes nothing here",
    State.NOT_RUN: "could not be measured",
}


def error_type_of(line: CheckLine) -> str:
    """The error type that a failed check shows, by the patterns of the diagnosis."""
    around = Around(
        check=line.check_name,
        stage=line.stage or "",
        target=line.actual_target or line.requested_target,
        precision=line.precision,
    )
    return identify(line.error_message, recorded=line.error_type, log=line.traceback, around=around).error_type


def write_of(one: Tried) -> str:
    """What a user writes to apply a remedy; names are quoted for a shell where it is a command."""
    cell = one.step.cell
    text = one.step.remedy.write
    if not text.startswith("python "):
        return text
    places = {"{model}": cell.model, "{target}": str(cell.target), "{precision}": cell.precision}
    return " ".join(shlex.quote(places.get(word, word)) for word in text.split())


def remedies_text(cells: Sequence[CellTried], folder: str, width: int) -> str:
    """Each cell with what was tried, the smallest change that turned it, and how it is applied."""
    lines = [line for one in cells for line in (*_cell_lines(one, width), "")]
    turned = sum(1 for one in cells if one.smallest)
    works = sum(1 for one in cells if one.works)
    already = f", {works} work as they are" if works else ""
    lines += folded("Turned     ", f"{turned} of {len(cells)} cell(s){already}", width=width)
    lines += folded("Evidence   ", f"{folder} (of its own: nothing in it counts for a cell as it is)", width=width)
    return "\n".join(lines)


def _cell_lines(one: CellTried, width: int) -> list[str]:
    lines = folded("", one_line(one.cell.id), width=width)
    if one.works:
        return [*lines, *folded("  works as it is: ", f"level {one.level}, nothing to remedy", width=width)]
    if one.problem:
        return [*lines, *folded("  not measured: ", one_line(one.problem), width=width)]
    lines += folded("  as it is   ", one_line(f"{one.error_type}: {one.why}"), width=width)
    for tried in one.tried:
        lines += folded(f"  {tried.step.id}: ", _came_to(tried), indent=4, width=width)
    if not one.tried:
        return [*lines, *folded("  no remedy  ", one.kind_reason, width=width)]
    found = one.smallest
    if found is None:
        return [*lines, *folded("  none of them turned it: ", one.kind_reason, indent=4, width=width)]
    lines += folded("  smallest   ", f"{found.step.id}, {found.step.remedy.says}", width=width)
    lines += folded("  write      ", write_of(found), width=width)
    lines += folded("  cost       ", _cost(found), width=width)
    if one.not_tried:
        lines += folded("  not tried  ", f"{', '.join(one.not_tried)}: no smaller change", width=width)
    return lines


def remedies_markdown(cells: Sequence[CellTried], folder: str) -> str:
    """The same as Markdown: a heading for each cell, and a table of what was tried."""
    turned = sum(1 for one in cells if one.smallest)
    lines = ["# Remedies", "", f"{turned} of {len(cells)} cell(s) turned. Evidence of its own: {code(folder)}."]
    for one in cells:
        lines += ["", f"## {code(one.cell.id)}", "", *_cell_markdown(one)]
    return "\n".join(lines)


def _cell_markdown(one: CellTried) -> list[str]:
    if one.works:
        return [f"Works as it is: level {one.level}, nothing to remedy."]
    if one.problem:
        return [f"Not measured: {markdown(one.problem)}"]
    lines = [f"As it is: {code(one.error_type)}, {markdown(one.why)}"]
    if one.tried:
        rows = [(code(tried.step.id), markdown(_came_to(tried))) for tried in one.tried]
        lines += ["", markdown_table(("remedy", "what came of it"), rows), ""]
    found = one.smallest
    if found is None:
        return [*lines, f"{'None of them turned it' if one.tried else 'No remedy'}: {markdown(one.kind_reason)}"]
    lines += [
        f"- smallest change: {code(found.step.id)}, {markdown(found.step.remedy.says)}",
        f"- write: {code(write_of(found))}",
        f"- cost: {markdown(_cost(found))}",
    ]
    if one.not_tried:
        lines.append(f"- not tried, since no smaller change: {', '.join(map(code, one.not_tried))}")
    return lines


def _cost(one: Tried) -> str:
    return "; ".join(f"{name}: {one.step.remedy.cost[name]}" for name in COSTS)


def _came_to(one: Tried) -> str:
    said = f"{_SAID[one.state]} (level {one.level}, {one.seconds:.0f} s)"
    what = "; ".join(one.conditions) if one.state is State.TURNED else one_line(one.why)
    return f"{said}: {what}" if what else said


def cell_to_dict(one: CellTried) -> dict[str, Any]:
    """A cell as data."""
    found = one.smallest
    return {
        "cell": one.cell.id,
        "works": one.works,
        "level": str(one.level),
        "check": one.check,
        "error_type": one.error_type,
        "why": one_line(one.why),
        "failure": one.kind,
        "reason": one.kind_reason,
        "problem": one_line(one.problem),
        "tried": [_tried_to_dict(each) for each in one.tried],
        "not_tried": list(one.not_tried),
        "smallest": found.step.id if found else None,
        "write": write_of(found) if found else None,
    }


def _tried_to_dict(one: Tried) -> dict[str, Any]:
    remedy = one.step.remedy
    return {
        "remedy": one.step.id,
        "says": remedy.says,
        "size": remedy.size,
        "likely": one.step.likely,
        "cell": one.step.cell.id,
        "changed": one.step.changes.text,
        "leaves_out": list(remedy.leaves_out),
        "state": str(one.state),
        "level": str(one.level),
        "error_type": one.error_type,
        "why": one_line(one.why),
        "conditions": [one_line(text) for text in one.conditions],
        "cost": {name: remedy.cost[name] for name in COSTS},
        "evidence": one.evidence,
        "run": one.run_id,
        "seconds": round(one.seconds, 1),
    }


def remedies_json(cells: Sequence[CellTried], folder: str, timestamp: str) -> str:
    """All of it as data."""
    data = {
        "schema_version": SCHEMA_VERSION,
        "timestamp": timestamp,
        "folder": folder,
        "turned": sum(1 for one in cells if one.smallest),
        "cells": [cell_to_dict(one) for one in cells],
    }
    return json_text(data, indent=1, ascii_alone=True)
