"""`Remedy`: one thing to do about a finding, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

COSTS = ("accuracy", "speed", "memory")
"""What a remedy may cost, in the order in which it is said."""


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """What to `do`, with commands in backticks, and its `cost` in words by what it is paid in; empty: none."""

    do: str
    cost: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def text(self) -> str:
        """Both as one text: `Use float16. Cost: accuracy (3 digits).`"""
        if not self.cost:
            return self.do
        paid = "; ".join(f"{name} ({self.cost[name]})" for name in COSTS if name in self.cost)
        return f"{self.do} Cost: {paid}."

    def to_dict(self) -> dict[str, object]:
        """The JSON object that `schemas/report.json` describes."""
        return {"do": self.do, "cost": dict(self.cost)}
