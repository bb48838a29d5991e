"""Asks a child process to localize a cell, and says where it was when it ended without an answer."""

from __future__ import annotations

import tempfile
from pathlib import Path

from generators.models.catalog import load_catalog
from generators.models.classifier import classify
from generators.models.store import load_recipe
from hardware.backends.factory import backend_class, built_in_targets, get_backend, resolve_target
from hardware.cell import Cell
from hardware.errors import BackendUnavailable, NothingMatched, did_you_mean, echo
from hardware.process import NoAnswer, ask
from hardware.testing.tolerances import tolerance_for
from hwcompat.plugins.triage.localization.result import Finding, Localization, Place

MODULES = tuple(name for name in built_in_targets() if backend_class(name).DEVICE_TYPE)
"""Targets on which torch's own modules run."""
GRAPHS = tuple(name for name in built_in_targets() if backend_class(name).WATCHED_GRAPH)
"""Targets in whose graphs single nodes can be watched."""
_LONGEST = 600


def localize_cell(text: str) -> Localization:
    """Where the cell `model/task/target/precision` first differs from its reference. Takes seconds, in a child.

    Raises `UsageError` for what is no cell, `NothingMatched` for one that can't be localized, `BackendUnavailable`
    where its target isn't here.
    """
    cell = checked_cell(text)
    limit = backend_class(cell.target.name).DEADLINE_S
    with tempfile.TemporaryDirectory(prefix="hwcompat-") as name:
        progress = Path(name) / "progress"
        asked = {"cell": cell.id, "progress": str(progress)}
        try:
            return Localization.from_dict(ask(f"{__package__}.child", asked, limit_s=limit))
        except NoAnswer as error:
            place = progress.read_text(encoding="utf-8")[:_LONGEST] if progress.is_file() else ""
            return broke(cell, str(error), place)


def checked_cell(text: str) -> Cell:
    """The cell that a text names, where there is one to localize. Raises `UsageError` and `NothingMatched`."""
    cell = Cell.parse(text)
    resolve_target(str(cell.target))
    if cell.target.name not in (*MODULES, *GRAPHS):
        raise NothingMatched(
            f"{cell.target} can't be localized",
            why="what it computes inside can be watched neither as torch's modules nor as nodes of a graph",
            fix=f"Cells of these targets can: {', '.join((*MODULES, *GRAPHS))}.",
        )
    known = backend_class(cell.target.name).PRECISIONS
    if cell.precision not in known:
        fix = f"{did_you_mean(cell.precision, known)} {cell.target} computes in {', '.join(known)}."
        raise NothingMatched(f"there is no cell {echo(cell.id)}", why="its target has no such precision", fix=fix)
    if cell.precision == "int8":
        raise NothingMatched(
            "cells in int8 can't be localized",
            why="a quantised graph has other nodes than the one it is held against",
        )
    if not load_catalog().config_class(cell.model) and load_recipe(cell.model) is None:
        classify(cell.model)  # raises with the names that are close
        raise NothingMatched(
            f"{echo(cell.model)} can't be localized",
            why="only model types are built anew, module by module; checkpoints, own modules and files aren't yet",
        )
    recipe = load_recipe(cell.model, cell.task)
    primary = load_recipe(cell.model)
    if recipe is None and primary is not None:
        raise NothingMatched(
            f"no recipe of {cell.model} doing {echo(cell.task)} is stored",
            fix=did_you_mean(cell.task, [primary.task]) or f"Its primary task is {primary.task}.",
        )
    if reason := get_backend(cell.target).unavailable() if backend_class(cell.target.name).OWN_ENVIRONMENT else "":
        raise BackendUnavailable(f"{cell.target} isn't here", why=reason)
    return cell


def broke(cell: Cell, ended: str, place: str) -> Localization:
    """What is said of a device that ended at `place` (a module's path, or empty), `ended` in words."""
    return Localization(
        cell=cell.id,
        finding=Finding.BROKE,
        granularity="module" if cell.target.name in MODULES else "node",
        reference="none: it didn't come so far",
        tolerance=tolerance_for(cell.target, cell.precision).limit,
        outputs_error=None,
        place=Place(name=place, kind="") if place else None,
        notes=(ended,),
    )
