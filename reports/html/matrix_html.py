"""The compatibility matrix as a page: all views, with the details of each cell packed as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from hwcompat.generators.compatibility.matrix import PLURALS
from hwcompat.generators.compatibility.rules import RuleSet, load_rules
from hwcompat.generators.compatibility.selection import recommended_lists
from hwcompat.generators.compatibility.verdict import Basis, Level, is_fault_of_model
from hwcompat.hardware.command_names import as_runnable
from hwcompat.hardware.evidence.latest import Latest
from hwcompat.hardware.evidence.store import lines_by_cell
from hwcompat.hardware.evidence.versions import library_versions

from ..fact_labels import error_text
from ..reason_text import AT_FAULT, fault_of_model, texts_of
from .charts import share_words, shares
from .page import render_page

VIEWS = ("family", "architecture", "accelerator", "machine", "model")
SCRIPTS = ("matrix.js",)

_AT_FAULT = "{} fail by their own code, on the CPU too, and don't count against this target."

_OBSERVED = (Basis.MEASURED, Basis.EXPIRED, Basis.IMPORTED)
_JSON = Mapping[str, Any]
_Sections = Sequence[tuple[str, Sequence[str]]]


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


def matrix_html(
    matrix: _JSON, *, versions: Mapping[str, str], views: Sequence[str] = VIEWS, evidence: Latest | None = None
) -> str:
    """Return the page of a matrix, given as the JSON object that `schemas/matrix.json` describes.

    `versions` are those that decide what is measured and what has expired; `views` are some of `VIEWS`. A cell that
    opens shows its measurement in the `evidence`.
    """
    view = matrix_view(matrix, load_rules(), _measurements(evidence, matrix) if evidence else {})
    return render_page("matrix.html.j2", SCRIPTS, matrix=view, versions=versions, views=views)


def _measurements(evidence: Latest, matrix: _JSON) -> Mapping[str, _Sections]:
    """Return by cell when, where, with what and how near to its tolerance it was measured, by the results that its
    verdict rests on."""
    verdicts = [verdict for row in matrix["models"].values() for verdict in row["compatibility"].values()]
    basis = {id_ for one in verdicts if _basis(one) in _OBSERVED for id_ in one.get("evidence_ids", ())}
    found = {}
    results = [line for line in (*evidence.imported, *evidence.checks) if line.evidence_id in basis]
    for cell, lines in lines_by_cell(results).items():
        last = max(lines, key=lambda line: line.started_at)
        worst = max(lines, key=lambda line: max(shares([line]), default=-1.0))
        errors = [f"{worst.check_name}: {error_text(worst)}: {share_words(one)}" for one in shares([worst])]
        versions = library_versions(evidence.versions.get(last.run_id, {}))
        machine = evidence.machines.get(last.run_id)
        found[cell] = (
            ("Measured", [f"{last.started_at[:10]}{f' on {machine}' if machine else ''}, by {last.origin}"]),
            ("Device", list(dict.fromkeys(line.accelerator for line in lines if line.accelerator))),
            ("Weights", list(dict.fromkeys(line.subject for line in lines))),
            ("Largest error / tolerance", errors),
            ("Versions", [", ".join(f"{name} {one}" for name, one in sorted(versions.items()))] if versions else []),
            ("Suite", [evidence.plans[cell].suite] if cell in evidence.plans else []),
        )
    return found


def matrix_view(matrix: _JSON, rules: RuleSet, measurements: Mapping[str, _Sections] = MappingProxyType({})) -> _JSON:
    """Return the values of a matrix's templates; `data` is for the page's script: each text once, details by number.

    Levels and bases are the matrix's own; `measurements` are sections of the details of cells, by id.
    """
    packed = _Packed()
    targets = tuple(matrix["hardware_types"])
    families = _group_rows(matrix["compatibility"], targets, packed)
    groups = {plural: _group_rows(matrix[plural], targets, packed) for plural in PLURALS.values()}
    models = tuple(
        MatrixRow(
            id=id_,
            parts=tuple(id_.split("/")),
            cells=tuple(_model_cell(row["compatibility"][target], packed, measurements) for target in targets),
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


def _model_cell(verdict: _JSON, packed: _Packed, measurements: Mapping[str, _Sections]) -> MatrixCell:
    detail = packed.detail(
        (
            ("Why", _texts(verdict, "reasons")),
            ("Conditions", _texts(verdict, "conditions")),
            ("Rules", verdict.get("rule_ids", ())),
            *measurements.get(verdict["cell"], ()),
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

    def detail(self, sections: _Sections) -> int:
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
