"""The result of a localization, as data: places with their errors, and the one that is named."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

MOST_OTHERS = 20
"""The largest number of further places listed, and of nodes that can't be distinguished from one."""


class LocalizationOutcome(StrEnum):
    """The finding of a localization."""

    AGREES = "agrees"
    """The outputs are within tolerance, and so is every place."""

    NAMED = "named"
    """One place is wrong by itself: with the reference's inputs its result differs from the reference."""

    PRECISION = "precision"
    """A place exceeds the tolerance, and by as much in the same precision on the CPU: rounding, no device fault."""

    GROWS = "grows"
    """The outputs are wrong, no place by itself is: `place` is where the errors first add up beyond tolerance."""

    UNNAMED = "unnamed"
    """The outputs are wrong, and no place that can be observed is."""

    BROKE = "broke"
    """The device crashed, hung or raised; `place` is what was being computed, if known."""


@dataclass(frozen=True, kw_only=True)
class ErrorPlace:
    """One module call or node.

    `name` is its path in the model (the empty string is the model itself), `kind` its class or operator, `call`
    counts its calls from 0. `tensor` names one of its results. Errors are relative to the scale of that tensor in the
    reference: `own_error` with the reference's values as inputs, `error` and `input_error` in the ordinary run; None
    if nothing could be compared. `within` lists nodes of a graph that can't be distinguished from it.
    """

    name: str
    kind: str
    call: int = 0
    tensor: str = "output"
    own_error: float | None = None
    error: float | None = None
    input_error: float | None = None
    shape: tuple[int, ...] = ()
    dtype: str = ""
    expected_shape: tuple[int, ...] = ()
    expected_dtype: str = ""
    module: str = ""
    within: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Localization:
    """The localization of one cell.

    `granularity` is `module` or `node`; `reference` describes the reference. `outputs_error` is that of the model's
    outputs in an ordinary run without hooks; `compared` counts the places that were compared and `left_out` those
    that couldn't be. `others` are further places that are wrong by themselves, in their order.
    """

    cell: str
    finding: LocalizationOutcome
    granularity: str
    reference: str
    tolerance: float
    outputs_error: float | None
    place: ErrorPlace | None = None
    others: tuple[ErrorPlace, ...] = ()
    largest: ErrorPlace | None = None
    compared: int = 0
    left_out: int = 0
    notes: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether the model's outputs are within tolerance."""
        return self.outputs_error is not None and self.outputs_error <= self.tolerance

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; an error that isn't finite is the text `inf`."""
        values: dict[str, Any] = json.loads(json.dumps(asdict(self)), parse_constant=lambda _: "inf")
        return values
