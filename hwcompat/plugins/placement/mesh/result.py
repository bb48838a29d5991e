"""What a check of a mesh gives: plain values, in the shape of `schemas/mesh.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .case import MeshCase

OUTPUTS, SAME, GRADIENTS, HELD, HEARD, TALKED = (
    "matches_reference",
    "matches_one_device",
    "gradients_match",
    "holds_its_part",
    "every_rank_is_heard",
    "talks",
)
CHECKS = {
    OUTPUTS: "outputs of each last rank, float64",
    SAME: "the same, one device in float32",
    GRADIENTS: "all gradients, float64",
    HELD: "its parameters and no others",
    HEARD: "damage to a rank moves its share",
    TALKED: "along each axis it is split by",
}


@dataclass(frozen=True, kw_only=True)
class MeshCheck:
    """One check of one case. `error` is relative to the scale of what it is held against, where there is one."""

    name: str
    passed: bool
    error: float | None = None
    tolerance: float | None = None
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class RankFacts:
    """What one rank was: its device, how many parameters it held (whole ones and parts), bytes, and calls to others
    (`all_reduce on tensor`: 8) in a forward and a backward pass, with their bytes."""

    rank: int
    device: str
    coordinates: tuple[int, int, int]
    parameters: int
    parts: int
    bytes: int
    forward: Mapping[str, int]
    backward: Mapping[str, int]
    forward_bytes: Mapping[str, int]
    seconds: float
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CaseResult:
    """All checks of one case, and what the ranks were."""

    case: MeshCase
    checks: tuple[MeshCheck, ...]
    ranks: tuple[RankFacts, ...] = ()
    whole_bytes: int = 0

    @property
    def passed(self) -> bool:
        """Whether every check passed; a case without checks has proved nothing."""
        return bool(self.checks) and all(one.passed for one in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        values = asdict(self)
        values["passed"] = self.passed
        for check in values["checks"]:
            if check["error"] is not None and not check["error"] < float("inf"):
                check["error"] = None
        return values


@dataclass(frozen=True, kw_only=True)
class MeshResult:
    """What one start of the ranks came to. `broken` says why it came to no end, `rank` who it was
    and `step` at what; `cases` are then those that were done."""

    cases: tuple[CaseResult, ...] = ()
    broken: str = ""
    rank: int | None = None
    step: str = ""

    @property
    def passed(self) -> bool:
        """Whether all cases passed, and there were any."""
        return not self.broken and bool(self.cases) and all(one.passed for one in self.cases)
