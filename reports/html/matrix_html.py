"""The compatibility matrix as a page: all views, with the details of each cell packed as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hwcompat.generators.compatibility.matrix import PLURALS
from hwcompat.generators.compatibility.rules import RuleSet, load_rules
from hwcompat.generators.compatibility.selection import recommended_lists
from hwcompat.generators.compatibility.verdict import Basis, Level, is_fault_of_model
from hwcompat.hardware.command_names import as_runnable

from ..reason_text import AT_FAULT, fault_of_model, texts_of
from .page import render_page

VIEWS = ("family", "architecture", "accelerator", "machine", "model")
SCRIPTS = ("matrix.js",)

_AT_FAULT = "{} fail by their own code, on the CPU too, and don't count against this target."

_JSON = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class MatrixCell:
    """A cell of a table: its text, and the number of its detail. `levels` are the counts of a group's bar."""

    level: str
    basis: str
    counts: str
    detail: int
    levels: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class MatrixRow:
    """A family or group, or a model with one task and precision. `parts` are those of its name, for line breaks;
    `fault` says why the model fails by its own code."""

    id: str
    parts: tuple[str, ...]
    cells: tuple[MatrixCell, ...]
    family: str = ""
    architecture: str = ""
    fault: str = ""


def matrix_html(matrix: _JSON, *, versions: Mapping[str, str], views: Sequence[str] = VIEWS) -> str:
    """Return the page of a matrix, given as the JSON object that `schemas/matrix.json` describes.

    `versions` are those that decide what is measured and what has expired; `views` are some of `VIEWS`.
    """
    view = matrix_view(matrix, load_rules())
    return render_page("matrix.html.j2", SCRIPTS, matrix=view, versions=versions, views=views)


def matrix_view(matrix: _JSON, rules: RuleSet) -> _JSON:
    """Return the values of a matrix's templates; `data` is for the page's script: each text once, details by number.

    Levels and bases are the matrix's own.
    """
    packed = _Packed()
    targets = tuple(matrix["hardware_types"])
    families = _group_rows(matrix["compatibility"], targets, packed)
    groups = {plural: _group_rows(matrix[plural], targets, packed) for plural in PLURALS.values()}
    models = tuple(
        MatrixRow(
            id=id_,
            parts=tuple(id_.split("/")),
            cells=tuple(_model_cell(row["compatibility"][target], packed) for target in targets),
            family=row["family"],
            architecture=row["architecture"],
            fault=fault_of_model(row["compatibility"].values()),
        )
        for id_, row in matrix["models"].items()
    )
    known = {rule.id: rule for rule in rules.rules}
    named = sorted(packed.rule_ids)
    return {
        "timestamp": matrix["timestamp"],
        "targets": targets,
        "families": families,
        "groups": groups,
        "models": models,
        "architectures": sorted({row.architecture for row in models if row.architecture}),
        "bases": _count_bases(models),
        "rules": [known[id_] for id_ in named if id_ in known],
        "unknown_rules": [id_ for id_ in named if id_ not in known],
        "recommended": recommended_lists(),
        "data": packed.data({"families": families, **groups, "models": models}, targets),
    }


def _group_rows(view: _JSON, targets: Sequence[str], packed: _Packed) -> tuple[MatrixRow, ...]:
    return tuple(
        MatrixRow(id=name, parts=(name,), cells=tuple(_group_cell(cells[target], packed) for target in targets))
        for name, cells in view.items()
    )


def _count_bases(models: Sequence[MatrixRow]) -> Mapping[str, int]:
    """Count the cells of models by basis, strongest first; those without a basis are `unknown`."""
    counts = Counter(cell.basis or str(Level.UNKNOWN) for row in models for cell in row.cells)
    order = (*sorted(Basis, key=lambda one: -one.rank), Level.UNKNOWN)
    return {str(name): counts[str(name)] for name in order}


def _basis(cell: _JSON) -> str:
    """Return the basis of a level; empty for `unknown`, which has none."""
    return "" if cell["level"] == Level.UNKNOWN else str(cell["basis"] or "")


def _group_cell(cell: _JSON, packed: _Packed) -> MatrixCell:
    counts = cell["counts"]
    shown = f"{counts['supported']} of {counts['measured']}" if counts["measured"] else ""
    levels = cell.get("levels", {})
    if not shown and levels and cell["level"] is None:
        works = levels.get("high", 0) + levels.get("medium", 0)
        shown = f"({works} of {sum(levels.values())})"
    at_fault = counts.get("models_at_fault", 0)
    split = ", ".join(f"{number} {level}" for level, number in levels.items())
    sections = (
        ("Counts", [_counted(counts)]),
        ("Levels", [split] if split else []),
        ("Faults of models", [_AT_FAULT.format(at_fault)] if at_fault else []),
        ("Notes", cell["notes"]),
        ("Rules", cell["rule_ids"]),
    )
    # The number of lines of each run; the models' own cells name them.
    runs = Counter(id_.partition("/")[0] for id_ in cell["evidence"])
    evidence = ("Evidence", [f"run {run}: {number} checks" for run, number in runs.items()])
    detail = packed.detail((*sections, evidence))
    return MatrixCell(level=cell["level"] or "", basis=_basis(cell), counts=shown, detail=detail, levels=levels)


def _counted(counts: _JSON) -> str:
    head = "No model was measured on this target."
    if counts["measured"]:
        head = f"{counts['supported']} of {counts['measured']} measured models are high or medium."
    if counts.get("said"):
        head += (
            f" {counts['said_supported']} of {counts['said']} models without measurements are expected to be "
            "high or medium, by rules or by the assumption for their family."
        )
    return head if counts["models"] is None else f"{head} There are {counts['models']} models in all."


def _model_cell(verdict: _JSON, packed: _Packed) -> MatrixCell:
    detail = packed.detail(
        (
            ("Why", _texts(verdict, "reasons")),
            ("Conditions", _texts(verdict, "conditions")),
            ("Rules", verdict.get("rule_ids", ())),
            ("Evidence", list(_by_run(verdict.get("evidence_ids", ()), verdict["cell"]))),
        )
    )
    level = (
        AT_FAULT if is_fault_of_model(verdict["cell"], verdict["level"], verdict.get("fault")) else verdict["level"]
    )
    return MatrixCell(level=level, basis=_basis(verdict), counts="", detail=detail)


def _texts(verdict: _JSON, name: str) -> list[str]:
    """Return reasons or conditions as text; an earlier version of a matrix has texts."""
    return list(texts_of(verdict.get(name, ())))


def _by_run(evidence_ids: Sequence[str], cell: str) -> Iterator[str]:
    """Yield `<run id>: builds, backward` for ids that are `<run id>/<cell>/<check>`; others unchanged."""
    checks: dict[str, list[str]] = {}
    for id_ in evidence_ids:
        run, found, check = id_.partition(f"/{cell}/")
        checks.setdefault(run if found else id_, []).extend([check] if found else [])
    for run, names in checks.items():
        yield f"run {run}: {', '.join(names)}" if names else run


@dataclass
class _Packed:
    """Texts and details, each once: 5,500 cells have few different ones."""

    texts: dict[str, int] = field(default_factory=dict)
    details: dict[tuple[tuple[str, tuple[int, ...]], ...], int] = field(default_factory=dict)
    rule_ids: set[str] = field(default_factory=set)

    def detail(self, sections: Sequence[tuple[str, Sequence[str]]]) -> int:
        """Return the number of a detail with these sections; those without texts are left out."""
        key = []
        for label, texts in sections:
            if label == "Rules":
                self.rule_ids.update(texts)
            if texts:
                key.append((label, tuple(self.texts.setdefault(text, len(self.texts)) for text in texts)))
        return self.details.setdefault(tuple(key), len(self.details))

    def data(self, tables: Mapping[str, Sequence[MatrixRow]], targets: Sequence[str]) -> _JSON:
        """Return what the page's script reads."""
        return {
            "command": as_runnable("hwcompat run --model"),
            "targets": list(targets),
            "texts": list(self.texts),
            "details": list(self.details),
            **{name: _numbered(rows) for name, rows in tables.items()},
        }


def _numbered(rows: Sequence[MatrixRow]) -> list[_JSON]:
    return [
        {
            "id": row.id,
            "family": row.family,
            "architecture": row.architecture,
            "cells": [cell.detail for cell in row.cells],
        }
        for row in rows
    ]
