"""The tolerances of a target's numbers against the reference; values and reasons are in `tolerances.toml`."""

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
    """A `limit` on the error relative to the output's scale, and its reason.

    `coarse` names functions for which the target's standard allows less precision, or is empty.
    """

    target: str
    precision: str
    limit: float
    reason: str
    coarse: str = ""


@dataclass(frozen=True, kw_only=True)
class Rounding:
    """Limits for rounding: in half precision the multiples of the limit between which an error may be rounding, and
    its largest ratio to that of a float64 pass with rounded results; in float32 the error of right `sums`, as a
    multiple of that of such a pass. `reason` covers all four."""

    least: float
    most: float
    spread: float
    sums: float
    reason: str


@dataclass(frozen=True, kw_only=True)
class FileRule:
    """The limit of a trained file in float32: `factor` times what float32 alone costs it, at `most` so much of the
    scale. `reason` covers both."""

    factor: float
    most: float
    reason: str


@dataclass(frozen=True, kw_only=True)
class OwnTolerance:
    """A `limit` that a repository sets for itself, the reason, and the name of the file with it."""

    limit: float
    reason: str
    source: str

    @property
    def stated(self) -> str:
        """Source and reason on one line, as in suites and evidence."""
        return f"{self.source}: {self.reason}"


@functools.cache
def load_tolerances() -> tuple[Tolerance, ...]:
    """Return all entries of the data file."""
    entries = tomllib.loads(_FILE.read_text(encoding="utf-8"))["tolerance"]
    return tuple(Tolerance(**entry) for entry in entries)


def tolerance_for(target: Target, precision: str, conditions: Mapping[str, str] = NO_CONDITIONS) -> Tolerance:
    """Return the most specific entry: for the target with its variant, the target, or any target. Of each, an entry
    for functions that are coarse under these `conditions` precedes the general one. Raises `UsageError`."""
    coarse = conditions.get(COARSE, "")
    for name in (str(target.kind), target.name, "*"):
        for wanted in dict.fromkeys((coarse, "")):
            for entry in load_tolerances():
                if (entry.target, entry.precision, entry.coarse) == (name, precision, wanted):
                    return entry
    raise UsageError(
        f"no tolerance for {precision} on {target}",
        why="results can't be compared without one",
        fix=f"Precisions with one: {', '.join(sorted({t.precision for t in load_tolerances()}))}.",
    )


@functools.cache
def file_rule() -> FileRule:
    """Return by what the error of float32 is multiplied to give a file's limit, and the largest such limit."""
    return FileRule(**tomllib.loads(_FILE.read_text(encoding="utf-8"))["file"])


@functools.cache
def rounding() -> Rounding:
    """Return what a comparison allows for rounding."""
    return Rounding(**tomllib.loads(_FILE.read_text(encoding="utf-8"))["rounding"])


def loosest_limit() -> float:
    """Return the largest limit in use: a fault that moves outputs by more is detected in any precision."""
    return max(entry.limit for entry in load_tolerances())


def too_wide() -> float:
    """Return the limit above which a tolerance could hide a model that computes something else.

    A recipe is accepted only if attention scaled by 2 moves its output by at least twice the loosest tolerance: a
    check with this limit might pass such a model.
    """
    return 2 * loosest_limit()
