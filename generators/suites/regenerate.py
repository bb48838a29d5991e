"""Makes the text that a suite on disk would have if it were generated now."""

from __future__ import annotations

from pathlib import Path

from generators.compatibility.facts import facts_here
from generators.compatibility.rules import load_rules, predict
from generators.derivation.on_demand import recipe_for
from hardware.detection import HardwareInfo
from hardware.errors import ModelError
from hardware.testing.suite_file import SuiteFile
from hardware.testing.tolerances import OwnTolerance

from .render import render


def regenerate(
    suite: SuiteFile,
    inventory: HardwareInfo,
    *,
    template_folder: Path | None = None,
    tolerance: OwnTolerance | None = None,
) -> str:
    """The present text for the cell of a suite. `tolerance` is the project file's for that cell, if it has one.

    Raises `ModelError` where its model is no longer known, or is a checkpoint, whose folder a suite doesn't hold.
    """
    if suite.subject == "checkpoint":
        raise ModelError(
            f"{suite.cell.model} is a checkpoint",
            why="its suite holds no path to its weights",
            fix="Generate it again with --model FOLDER.",
        )
    if suite.subject != "tiny":
        raise ModelError(
            f"{suite.cell.model} is more than a model type",
            why="what stands in its suite was found in your own code, or at real dimensions",
            fix="Generate it again with the command in its first lines.",
        )
    recipe = recipe_for(suite.cell.model, suite.cell.task)
    verdict = predict(suite.cell, facts_here(recipe, suite.cell, inventory), load_rules())
    return render(recipe, suite.cell, verdict.rule_ids, template_folder=template_folder, tolerance=tolerance)
