"""What a localization found, as data: places with their errors, and the one that is named."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self


class Finding(StrEnum):
    """What a localization comes to."""

    AGREES = "agrees"
    """The outputs are within tolerance, and so is every place."""

    NAMED = "named"
    """One place is wrong by itself: given the reference's values, it gives others."""

    PRECISION = "precision"
    """A place is beyond tolerance, and as far in the same precision on the CPU: rounding, no fault of a device."""

    GROWS = "grows"
    """No place is wrong by itself, and the outputs are: `place` is where errors first add up beyond tolerance."""

    UNNAMED = "unnamed"
    """The outputs are wrong, and no place that can be watched is."""

    BROKE = "broke"
    """The device crashed, hung or raised; `place` is what was computing, where that is known."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """One module call or node.

    `name` is its path in the model (the empty string is the model itself), `kind` its class or operator, `call`
    counts its calls from 0. `tensor` says which of its results is meant. Errors are relative to the scale of that
    tensor in the reference: `own_error` where it was given the reference's values, `error` and `input_error` in the
    run as it was; None where nothing could be compared. `within` lists nodes of a graph that can't be told apart.
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

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; an error that isn't finite is the text `inf`."""
        return {name: _plain(value) for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """What `to_dict` gave."""
        read = dict(values)
        for name in ("own_error", "error", "input_error"):
            read[name] = None if read[name] is None else float(read[name])
        for name in ("shape", "expected_shape", "within"):
            read[name] = tuple(read[name])
        return cls(**read)


@dataclass(frozen=True, kw_only=True)
class Localization:
    """The answer for one cell.

    `granularity` is `module` or `node`; `reference` says in words what places were held against. `outputs_error` is
    that of the model's outputs in an ordinary run, unwatched; `compared` counts the places that were compared and
    `left_out` those that couldn't be. `others` are further places that are wrong by themselves, in their order.
    """

    cell: str
    finding: Finding
    granularity: str
    reference: str
    tolerance: float
    outputs_error: float | None
    place: Place | None = None
    others: tuple[Place, ...] = ()
    largest: Place | None = None
    compared: int = 0
    left_out: int = 0
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            **{name: _plain(getattr(self, name)) for name in ("cell", "granularity", "reference", "tolerance")},
            "finding": str(self.finding),
            "outputs_error": _plain(self.outputs_error),
            "place": self.place.to_dict() if self.place else None,
            "others": [one.to_dict() for one in self.others],
            "largest": self.largest.to_dict() if self.largest else None,
            "compared": self.compared,
            "left_out": self.left_out,
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """What `to_dict` gave."""
        read = dict(values)
        read["finding"] = Finding(read["finding"])
        read["outputs_error"] = None if read["outputs_error"] is None else float(read["outputs_error"])
        for name in ("place", "largest"):
            read[name] = None if read[name] is None else Place.from_dict(read[name])
        read["others"] = tuple(Place.from_dict(one) for one in read["others"])
        read["notes"] = tuple(read["notes"])
        return cls(**read)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "inf"
    return list(value) if isinstance(value, tuple) else value
