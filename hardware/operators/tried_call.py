"""`TriedCall`: what a check of one call of an operator gave, and which of several calls stands for all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

from ..backends.base import Runnable
from ..testing.measurement import Measurement, NotApplicable

FAILED_CALLS = "failed_calls"
"""The condition of a check that names the calls that failed or raised an exception."""
UNJUDGED_CALLS = "unjudged_calls"
"""The condition of a check that names the calls to which it doesn't apply."""
REMOVED = "the runtime removed the operator when it compiled the graph"


class Rank(IntEnum):
    """What a call gave; the highest of several stands for all."""

    PASSED = 0
    REMOVED = 1
    NOT_APPLICABLE = 2
    RAISED = 3
    BEYOND = 4
    """An error beyond its limit: a wrong number is worse than an exception."""


@dataclass(frozen=True, kw_only=True)
class TriedCall:
    """The error of a call and its limit, or the exception that it raised, with its measurements. `on_host` says
    whether it left work to the host that its target may not leave there."""

    name: str
    error: float
    limit: float
    raised: Exception | None
    on_host: bool
    measured: Measurement
    runnable: Runnable | None

    @property
    def share(self) -> float:
        """The error as a share of its limit, infinite for NaN; the error itself if nothing is allowed."""
        share = self.error / self.limit if self.limit else self.error
        return math.inf if math.isnan(share) else share

    @property
    def rank(self) -> Rank:
        """What the call gave."""
        if isinstance(self.raised, NotApplicable):
            return Rank.REMOVED if REMOVED in str(self.raised) else Rank.NOT_APPLICABLE
        if self.raised is not None:
            return Rank.RAISED
        return Rank.PASSED if self.error <= self.limit else Rank.BEYOND

    @property
    def is_failed(self) -> bool:
        """Whether the call fails, whatever others do."""
        return self.rank >= Rank.RAISED or self.on_host
