"""Renders the suites of what a user brings: their own module, or a graph file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from generators.models.given import GivenRecipe
from hardware.backends.factory import backend_class
from hardware.cell import Cell
from hardware.evidence.revisions import suite_revisions
from hardware.testing.checks import applicable_checks
from hardware.testing.suite_file import stamp
from hardware.testing.tolerances import OwnTolerance

from .render import command_for, fill_template

_TEMPLATES = {"module": "own-module", "graph": "graph-file"}


def render_given(
    recipe: GivenRecipe,
    cell: Cell,
    rule_ids: Sequence[str],
    *,
    template_folder: Path | None = None,
    tolerance: OwnTolerance | None = None,
    folder: str = "",
) -> str:
    """The text of the suite for `cell`, as `render.render` gives it for models of transformers. A graph file lies in
    `folder`, relative to the suite."""
    can = backend_class(cell.target.name).CAN
    checks = applicable_checks(generates="none", has_mask=False, has_cache=False, can=can, task=recipe.task)
    module, _, factory = recipe.name.partition(":")
    values: Mapping[str, Any] = {
        "cell": cell,
        "recipe": recipe,
        "command": command_for(
            cell,
            model=recipe.name if recipe.kind == "module" else f"<path of {recipe.name}>",
            config=tolerance.source if tolerance else "",
        ),
        "tolerance": tolerance,
        "folder": folder,
        "subject_line": _subject_line(recipe),
        "revisions": suite_revisions([check.name for check in checks]),
        "rules_line": ", ".join(rule_ids) or "none: nothing is predicted",
        "recorded": _recorded(recipe.recorded),
        "checks": checks,
        "dimensions": "as the factory makes it" if recipe.kind == "module" else "",
        "module": module,
        "factory": factory,
        "computed_dtype": backend_class(cell.target.name).COMPUTES_IN.get(cell.precision, cell.precision),
    }
    body = fill_template(_TEMPLATES[recipe.kind], values, template_folder)
    return stamp(body.rstrip("\n") + "\n")


def _recorded(recorded: Mapping[str, Any]) -> dict[tuple[int, ...], float]:
    positions = [tuple(position) for position in recorded.get("positions", ())]
    return dict(zip(positions, recorded.get("values", ()), strict=True))


def _subject_line(recipe: GivenRecipe) -> str:
    if recipe.kind == "module":
        return f"{recipe.subject}: {recipe.parameters:,} parameters, as {recipe.name} makes them; runs its code"
    return f"{recipe.subject}: {recipe.name}, {recipe.parameters:,} parameters, known by its hash"
