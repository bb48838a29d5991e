"""What the plug-in made of an order: the break, how far it moved the outputs, and what it could not make."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from .operators import Mutant


@dataclass(frozen=True, kw_only=True)
class Made:
    """`mutant` is None where none could be made. `change` is relative to the outputs' scale, infinite for NaN.

    `refused` says, by `<operator>@<seed>`, why others weren't made: the model has no place for them, or they move its
    outputs too little.
    """

    mutant: Mutant | None = None
    change: float | None = None
    refused: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; an infinite change is the text `inf`, for JSON has no such number."""
        change = self.change
        return {
            "mutant": asdict(self.mutant) if self.mutant else None,
            "change": "inf" if change is not None and not math.isfinite(change) else change,
            "refused": dict(self.refused),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """What `to_dict` gave."""
        return cls(
            mutant=Mutant(**values["mutant"]) if values["mutant"] else None,
            change=None if values["change"] is None else float(values["change"]),
            refused=values["refused"],
        )

    def __str__(self) -> str:
        if self.mutant is None or self.change is None:
            return "; ".join(f"no {name}: {why}" for name, why in self.refused.items()) or "no model was loaded"
        return (
            f"{self.mutant.name}: {self.mutant.describe}; side {self.mutant.side}; {self.mutant.site}; "
            f"outputs changed by {self.change:.2g} of their scale"
        )
