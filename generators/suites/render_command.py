"""The command at the top of a suite, which makes it again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from hwcompat.generators.models.recipe import Recipe
from hwcompat.hardware.cell import Cell
from hwcompat.hardware.command_names import PROGRAM


def command_for(
    cell: Cell, *, model: str | None = None, config: str = "", dims: str = "", more: Sequence[str] = ()
) -> str:
    """Return the command that makes a suite again. `model` is the name that the user passed if it isn't the cell's
    model, `config` the project file if it affects the suite's text, and `dims` what a configuration gives: `real` or
    `pieces` for its widths, `tiny` for its settings alone; `more` are further words."""
    words = [PROGRAM, "generate", *(["--config", config] if config else [])]
    words += ["--model", model or cell.model, "--device", str(cell.target)]
    if cell.precision != "float32":
        words += ["--precision", cell.precision]
    words += [
        *{"real": ["--dims", "real"], "pieces": ["--dims", "pieces"], "tiny": ["--allow-tiny"]}.get(dims, []),
        *more,
    ]
    return shlex.join(words)


def sizes(recipe: Recipe) -> dict[str, Any]:
    """Return what makes a recipe's size, as arguments of `command_for`."""
    lengths = recipe.recorded["lengths"]
    if recipe.pieces:
        return {"dims": "pieces", "more": ["--length", str(lengths[0])] if len(lengths) == 1 else []}
    return {"dims": "real" if recipe.dimensions.startswith("real") else "tiny" if recipe.dimensions else ""}
