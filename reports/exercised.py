"""What the suite of a cell exercises of its model's code, and what it doesn't ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hwcompat.generators.models.recipe import Recipe
from hwcompat.generators.suites.render import checks_of, exercised_by
from hwcompat.hardware.cell import Cell
from hwcompat.hardware.testing.checks import all_checks

_FUNCTIONS = 12
"""Functions with missing branches that a text names."""


@dataclass(frozen=True, kw_only=True)
class Exercised:
    """The branches of the modeling code that a suite's compared passes enter on the CPU, those missing by function
    and the number of those that aren't counted by reason (empty without a figure), and the checks that the suite
    doesn't have."""

    text: str
    missing: dict[str, list[str]]
    left_out: dict[str, int]
    not_asked: dict[str, str]

    @classmethod
    def by(cls, cell: Cell, recipe: Recipe) -> Exercised:
        """Return what the suite of a recipe exercises in a cell."""
        asked, text = checks_of(recipe, cell), exercised_by(recipe, cell)
        rest = {one.name: one.says for one in all_checks() if one not in asked}
        known = recipe.branches if text else {}
        return cls(
            text=text,
            missing=dict(known.get("missing", {})),
            left_out=dict(known.get("left_out", {})),
            not_asked=rest,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "branches": self.text,
            "missing": self.missing,
            "left_out": self.left_out,
            "not_asked": self.not_asked,
        }

    def lines(self) -> list[tuple[str, str]]:
        """Return labeled lines."""
        found = [("Exercises", self.text)] if self.text else []
        for index, (function, ways) in enumerate(list(self.missing.items())[:_FUNCTIONS]):
            found.append(("" if index else "Not entered", f"{function}: {'; '.join(ways)}"))
        if len(self.missing) > _FUNCTIONS:
            found.append(("", f"and branches of {len(self.missing) - _FUNCTIONS} other functions (--format json)"))
        for index, (reason, count) in enumerate(self.left_out.items()):
            found.append(("" if index else "Not counted", f"{count} branches: {reason}"))
        if self.not_asked:
            found.append(("Not asked", f"checks that aren't in this suite: {', '.join(self.not_asked)}"))
        found.append(("", "Only a tiny model is tested, no larger size."))
        return found
