"""`Verdict`: the one type of every answer: a prediction, a matrix cell, a measured level, the final word."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from hardware.cell import Cell
from hardware.errors import BrokenInput, did_you_mean, echo

SCHEMA = Path(__file__).with_name("schemas") / "verdict.json"

_FIELDS = ("cell", "level", "basis", "reasons", "conditions", "rule_ids", "evidence_ids")


class Level(StrEnum):
    """How well a model works on a target; what each word means is written in `levels.toml`."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    NONE = "none"
    UNKNOWN = "unknown"

    @property
    def rank(self) -> int | None:
        """3 for high down to 0 for none; `unknown` isn't on the scale and has no rank."""
        return _RANKS.get(self)

    @property
    def is_supported(self) -> bool:
        """Whether the model works there, if only in part: neither `none` nor `unknown`."""
        return self in (Level.HIGH, Level.MEDIUM, Level.LOW)


_RANKS = {Level.HIGH: 3, Level.MEDIUM: 2, Level.LOW: 1, Level.NONE: 0}


def worst(levels: Sequence[Level]) -> Level:
    """The lowest level that is known; `unknown` where none is."""
    known = [level for level in levels if level.rank is not None]
    return min(known, key=lambda level: _RANKS[level]) if known else Level.UNKNOWN


class Basis(StrEnum):
    """What a level rests on, from the weakest to the strongest; `expired` is measured on other versions."""

    DECLARED = "declared"
    PREDICTED = "predicted"
    EXPIRED = "expired"
    MEASURED = "measured"

    @property
    def words(self) -> str:
        """What it means to a reader who sees a mark."""
        return _BASIS_WORDS[self]


_BASIS_WORDS = {
    Basis.DECLARED: "declared of the family, nobody ran it",
    Basis.PREDICTED: "predicted by rules",
    Basis.EXPIRED: "measured with other versions",
    Basis.MEASURED: "measured",
}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The answer for one cell, with what it rests on.

    `cell` is the cell's id. `reasons` say why the level isn't higher or where it comes from,
    `conditions` what must hold for it; `rule_ids` and `evidence_ids` name what was used, to be looked up.
    """

    cell: str
    level: Level
    basis: Basis
    reasons: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    rule_ids: tuple[str, ...] = ()
    evidence_ids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.level is not Level.UNKNOWN and not (self.rule_ids or self.evidence_ids):
            raise ValueError(f"{self.cell}: level {self.level} rests on no rule and no evidence")

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that `schemas/verdict.json` describes."""
        return {
            "cell": self.cell,
            "level": str(self.level),
            "basis": str(self.basis),
            "reasons": list(self.reasons),
            "conditions": list(self.conditions),
            "rule_ids": list(self.rule_ids),
            "evidence_ids": list(self.evidence_ids),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Verdict:
        """The verdict that a JSON object describes. Raises `BrokenInput` naming the field that is wrong."""
        for name in data:
            if name not in _FIELDS:
                raise _broken(name, "it is no field of a verdict", did_you_mean(str(name), _FIELDS))
        for name in ("cell", "level", "basis"):
            if not isinstance(data.get(name), str):
                raise _broken(name, f"text was expected, not {type(data.get(name)).__name__}")
        if data["level"] not in list(Level):
            raise _broken("level", f"{echo(data['level'])} is not one of {', '.join(Level)}")
        if data["basis"] not in list(Basis):
            raise _broken("basis", f"{echo(data['basis'])} is not one of {', '.join(Basis)}")
        lists = {name: _texts(name, data.get(name, [])) for name in _FIELDS[3:]}
        cell = Cell.parse(data["cell"]).id
        try:
            return cls(cell=cell, level=Level(data["level"]), basis=Basis(data["basis"]), **lists)
        except ValueError as error:
            raise _broken("level", str(error)) from error


def schema() -> dict[str, Any]:
    """The published JSON Schema of `Verdict.to_dict()`."""
    loaded: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return loaded


def _texts(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise _broken(name, "a list of texts was expected")
    return tuple(value)


def _broken(name: str, why: str, fix: str = "") -> BrokenInput:
    return BrokenInput(f"the field {echo(str(name))} of a verdict is broken", why=why, fix=fix)
