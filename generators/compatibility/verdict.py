"""`Verdict`: the answer for a cell, predicted by rules, measured by a run or imported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from hwcompat.hardware.cell import Cell
from hwcompat.hardware.errors import BrokenInput, did_you_mean, echo
from hwcompat.hardware.plain_text import one_line

SCHEMA = Path(__file__).with_name("schemas") / "verdict.json"

Value = str | int | float | tuple[str, ...]
"""Types of a reason's parameter."""

_LONGEST = 1000
"""Maximum number of characters of a reason's parameter: output of software may have any length."""


class Level(StrEnum):
    """How well a model works on a target; `levels.toml` defines the words."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    UNSUPPORTED = "unsupported"
    UNKNOWN = "unknown"

    @property
    def rank(self) -> int | None:
        """Return 3 for high down to 0 for unsupported; `unknown` isn't on the scale and has no rank."""
        return _RANKS.get(self)

    @property
    def is_supported(self) -> bool:
        """Whether the model works there, if only in part: neither `unsupported` nor `unknown`."""
        return self in (Level.HIGH, Level.MEDIUM, Level.LOW)

    @classmethod
    def _missing_(cls, value: object) -> Level | None:
        return cls.UNSUPPORTED if value == "none" else None


_RANKS = {Level.HIGH: 3, Level.MEDIUM: 2, Level.LOW: 1, Level.UNSUPPORTED: 0}


def worst(levels: Iterable[Level]) -> Level:
    """Return the lowest level that is known; `unknown` if none is."""
    known = [level for level in levels if level.rank is not None]
    return min(known, key=lambda level: _RANKS[level]) if known else Level.UNKNOWN


class Basis(StrEnum):
    """What a level rests on, from the weakest to the strongest."""

    ASSUMED = "assumed"
    PREDICTED = "predicted"
    EXPIRED = "expired"
    IMPORTED = "imported"
    MEASURED = "measured"

    @property
    def rank(self) -> int:
        """Return 4 for measured down to 0 for assumed."""
        return list(Basis).index(self)

    @classmethod
    def _missing_(cls, value: object) -> Basis | None:
        return cls.ASSUMED if value == "declared" else None


class Fault(StrEnum):
    """Who is responsible for a level that isn't high."""

    MODEL = "model"
    ROUTE = "route"
    DEVICE = "device"
    HARNESS = "harness"


@dataclass(frozen=True)
class Reason:
    """A fact behind a verdict: a code and its parameters. The reporting layer makes it text.

    Create one with `Reason.of`, which flattens and shortens output of software.
    """

    code: str
    items: tuple[tuple[str, Value], ...] = ()

    @classmethod
    def of(cls, code: str, **parameters: Value | None) -> Reason:
        """Return the reason with these parameters; those that are None or empty are left out."""
        given = {name: value for name, value in parameters.items() if value not in (None, "", ())}
        return cls(code, tuple((name, _flat(value)) for name, value in given.items() if value is not None))

    @property
    def parameters(self) -> dict[str, Value]:
        """The parameters by name."""
        return dict(self.items)

    def text(self, name: str) -> str:
        """Return a parameter as text, lists with commas; an empty text if there is none of that name."""
        value = self.parameters.get(name, "")
        return ", ".join(value) if isinstance(value, tuple) else str(value)

    def on(self, accelerator: str) -> Reason:
        """Return the same reason for one of several accelerators."""
        return Reason.of(self.code, **{**self.parameters, "accelerator": accelerator})

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"code": self.code, "parameters": {name: _plain(value) for name, value in self.items}}

    @classmethod
    def from_json(cls, value: Any) -> Reason:
        """Return the reason that a JSON value describes; a text, as older files have it, becomes the code `text`.

        Raises `TypeError` for anything else.
        """
        if isinstance(value, str):
            return cls.of("text", text=value)
        parameters = value.get("parameters") if isinstance(value, Mapping) else None
        if not isinstance(parameters, Mapping) or not isinstance(value.get("code"), str):
            raise TypeError("a reason must have a code and parameters")
        return cls.of(value["code"], **{str(name): _value(one) for name, one in parameters.items()})


def _flat(value: Value) -> Value:
    if isinstance(value, str):
        return one_line(value, longest=_LONGEST)
    return tuple(one_line(one, longest=_LONGEST) for one in value) if isinstance(value, tuple) else value


def _plain(value: Value) -> Any:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def _value(value: Any) -> Value:
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return tuple(value)
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return value
    raise TypeError("a parameter of a reason must be a text, a number or a list of texts")


Words = Callable[[Reason], str]
"""A function of the reporting layer that makes text of a reason, for code that puts it into a message."""

_REASONS = ("reasons", "conditions")
_IDS = ("rule_ids", "evidence_ids")
_TEXTS = ("route", "weights_asked", "weights_run")
_FIELDS = ("cell", "level", "basis", "fault", *_TEXTS, *_REASONS, *_IDS)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The answer for one cell, with what it rests on.

    `cell` is the cell's id. `fault` says who is responsible if the level isn't high, None if that isn't known.
    `route` is how the model got to the target, empty if nothing ran. `weights_asked` and `weights_run` are `tiny`,
    `config` or `checkpoint`. `reasons` say why the level isn't higher or where it comes from, `conditions` what must
    hold for it; `rule_ids` and `evidence_ids` name what was used, to be looked up.
    """

    cell: str
    level: Level
    basis: Basis
    fault: Fault | None = None
    route: str = ""
    weights_asked: str = ""
    weights_run: str = ""
    reasons: tuple[Reason, ...] = ()
    conditions: tuple[Reason, ...] = ()
    rule_ids: tuple[str, ...] = ()
    evidence_ids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.level is not Level.UNKNOWN and not (self.rule_ids or self.evidence_ids):
            raise ValueError(f"{self.cell}: level {self.level} has no rule and no evidence")

    @property
    def strength(self) -> tuple[bool, int, int]:
        """Sort key of verdicts of one cell: a known level first, then the stronger basis, then the worse level."""
        return self.level.rank is not None, self.basis.rank, -(self.level.rank or 0)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that `schemas/verdict.json` describes."""
        return {
            "cell": self.cell,
            "level": str(self.level),
            "basis": str(self.basis),
            "fault": None if self.fault is None else str(self.fault),
            **{name: getattr(self, name) for name in _TEXTS},
            **{name: [reason.to_dict() for reason in getattr(self, name)] for name in _REASONS},
            **{name: list(getattr(self, name)) for name in _IDS},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Verdict:
        """Return the verdict that a JSON object describes; the words of older files are read too.

        Raises `BrokenInput` naming the field that is wrong.
        """
        for name in data:
            if name not in _FIELDS:
                raise _broken(name, "verdicts have no such field", did_you_mean(str(name), _FIELDS))
        for name in ("cell", "level", "basis"):
            if not isinstance(data.get(name), str):
                raise _broken(name, f"it must be text, not {type(data.get(name)).__name__}")
        for name in _TEXTS:
            if not isinstance(data.get(name, ""), str):
                raise _broken(name, "it must be text")
        given: dict[str, Any] = {name: data.get(name, "") for name in _TEXTS}
        given |= {name: _reasons(name, data.get(name, [])) for name in _REASONS}
        given |= {name: _names(name, data.get(name, [])) for name in _IDS}
        fault = data.get("fault")
        cell = Cell.parse(data["cell"]).id
        try:
            return cls(
                cell=cell,
                level=_member(Level, "level", data),
                basis=_member(Basis, "basis", data),
                fault=None if fault is None else _member(Fault, "fault", data),
                **given,
            )
        except ValueError as error:
            raise _broken("level", str(error)) from error


_Word = TypeVar("_Word", bound=StrEnum)


def _member(kind: type[_Word], name: str, data: Mapping[str, Any]) -> _Word:
    try:
        return kind(data[name])
    except ValueError as error:
        raise _broken(name, f"{echo(str(data[name]))} is not one of {', '.join(kind)}") from error


def once(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """Return the reasons in their order, each once."""
    return tuple(dict.fromkeys(reasons))


def _reasons(name: str, value: Any) -> tuple[Reason, ...]:
    if not isinstance(value, list | tuple):
        raise _broken(name, "it must be a list")
    try:
        return tuple(Reason.from_json(one) for one in value)
    except TypeError as error:
        raise _broken(name, str(error)) from error


def _names(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise _broken(name, "it must be a list of texts")
    return tuple(value)


def _broken(name: str, why: str, fix: str = "") -> BrokenInput:
    return BrokenInput(f"the field {echo(str(name))} of a verdict is invalid", why=why, fix=fix)


def strongest(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict that counts of several for one cell."""
    return max(verdicts, key=lambda verdict: verdict.strength)


_FINAL = frozenset({"flaky", "suite_edited", "modified_checker", "evidence_damaged"})
"""Codes of reasons that no weaker basis hides: the results can't be trusted, and no prediction replaces them."""


def is_final(verdict: Verdict) -> bool:
    """Whether a verdict is unknown for a reason that no prediction may hide: its results can't be trusted."""
    return verdict.level is Level.UNKNOWN and any(reason.code in _FINAL for reason in verdict.reasons)


def is_fault_of_model(cell: str, level: str, fault: str | None) -> bool:
    """Whether a model fails on the target of `cell` by its own code, which the CPU shows too: this doesn't count
    against the target."""
    fails = level in (Level.LOW, Level.UNSUPPORTED)
    return fails and fault == Fault.MODEL and cell.split("/")[2:3] != ["cpu"]


def is_failing(verdict: Verdict) -> bool:
    """Whether a verdict fails a build: a measured `unsupported`, or results that can't be trusted."""
    return is_final(verdict) or (verdict.level is Level.UNSUPPORTED and verdict.basis is Basis.MEASURED)
