"""Makes the text that a suite on disk would have if it were generated now."""

from __future__ import annotations

import platform
from pathlib import Path

from generators.compatibility.facts import facts_of
from generators.compatibility.rules import load_rules, predict
from generators.models.recipe import recipe_for
from hardware.errors import ModelError
from hardware.software import package_versions
from hardware.testing.suite_file import SuiteFile

from .render import render


def regenerate(suite: SuiteFile, *, template_folder: Path | None = None) -> str:
    """The present text for the cell of a suite.

    Raises `ModelError` where its model is no longer known, or is a checkpoint, whose folder a suite doesn't hold.
    """
    if suite.subject == "checkpoint":
        raise ModelError(
            f"{suite.cell.model} is a checkpoint",
            why="its suite holds no path to its weights",
            fix="Generate it again with --model FOLDER.",
        )
    recipe = recipe_for(suite.cell.model, suite.cell.task)
    versions = {name: version for name, version in package_versions().items() if version}
    verdict = predict(suite.cell, facts_of(recipe, suite.cell, versions, platform=platform.system()), load_rules())
    return render(recipe, suite.cell, verdict.rule_ids, template_folder=template_folder)
