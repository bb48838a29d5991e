"""Looks up how far a target's numbers may be from the reference; the numbers and reasons are `tolerances.toml`."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from ..errors import UsageError
from ..evidence.record import COARSE
from ..target import Target

_FILE = Path(__file__).with_name("tolerances.toml")
NO_CONDITIONS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """`limit` on the error relative to the output's scale, and the reason for it.

    `coarse` names functions that the target's own standard lets be coarser than the precision; empty for none.
    """

    target: str
    precision: str
    limit: float
    reason: str
    coarse: str = ""


@dataclass(frozen=True, kw_only=True)
class Rounding:
    """Between which multiples of the limit an error that rounding makes is allowed for in half precision, and how
    many times as much it may be as in a pass in float64 with rounded results; the `reason` of all three."""

    least: float
    most: float
    spread: float
    reason: str


@dataclass(frozen=True, kw_only=True)
class OwnTolerance:
    """A `limit` that a repository states for itself, the reason, and the name of the file that says so."""

    limit: float
    reason: str
    source: str

    @property
    def stated(self) -> str:
        """Source and reason on one line, as suites and evidence carry them."""
        return f"{self.source}: {self.reason}"


@functools.cache
def load_tolerances() -> tuple[Tolerance, ...]:
    """All entries of the data file."""
    entries = tomllib.loads(_FILE.read_text(encoding="utf-8"))["tolerance"]
    return tuple(Tolerance(**entry) for entry in entries)


def tolerance_for(target: Target, precision: str, conditions: Mapping[str, str] = NO_CONDITIONS) -> Tolerance:
    """The most specific entry: the target with its variant, the target, any target; of each, the one for what is
    coarse under these `conditions` of a run before the one for all. Raises `UsageError`."""
    coarse = conditions.get(COARSE, "")
    for name in (str(target.kind), target.name, "*"):
        for wanted in dict.fromkeys((coarse, "")):
            for entry in load_tolerances():
                if (entry.target, entry.precision, entry.coarse) == (name, precision, wanted):
                    return entry
    raise UsageError(
        f"no tolerance is stated for {precision} on {target}",
        why="without one a comparison would mean nothing",
        fix=f"Precisions with one: {', '.join(sorted({t.precision for t in load_tolerances()}))}.",
    )


@functools.cache
def rounding() -> Rounding:
    """What a comparison in half precision allows for rounding."""
    return Rounding(**tomllib.loads(_FILE.read_text(encoding="utf-8"))["rounding"])


def loosest_limit() -> float:
    """The largest limit in use: a fault must move outputs by more than this to be heard in any precision."""
    return max(entry.limit for entry in load_tolerances())


def too_wide() -> float:
    """The limit from which on a tolerance could hide a model that computes something else.

    A recipe is accepted only if attention scaled by 2 moves its output by at least twice the loosest tolerance: a
    check with this limit might pass such a model.
    """
    return 2 * loosest_limit()
