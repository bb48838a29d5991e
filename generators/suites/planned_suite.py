"""`PlannedSuite`: one suite to write, with the prediction made before anything runs."""

from __future__ import annotations

from dataclasses import dataclass

from hwcompat.generators.compatibility.selection import Selection
from hwcompat.generators.compatibility.verdict import Verdict
from hwcompat.generators.model_profile import Profile
from hwcompat.hardware.cell import Cell
from hwcompat.hardware.target import Target
from hwcompat.hardware.testing.tolerances import OwnTolerance


@dataclass(frozen=True, kw_only=True)
class PlannedSuite:
    """A suite to write: its cell, the device, the prediction made before anything runs, and its text."""

    profile: Profile
    cell: Cell
    device: Target
    verdict: Verdict
    text: str
    required: bool
    selection: Selection | None = None
    tolerance: OwnTolerance | None = None

    @property
    def file_name(self) -> str:
        """The name of the suite's file."""
        return f"test_{self.cell.slug}.py"
