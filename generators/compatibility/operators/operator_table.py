"""`OperatorTable`: what is known of one target's operators, read from `tables/<target>.json`; and of a list of
operators, which a target has, which it lacks, and of which nothing is known."""

from __future__ import annotations

import functools
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hardware.errors import BrokenInput, echo
from hardware.target import Target

SCHEMA_VERSION = 1
FOLDER = Path(__file__).with_name("tables")
"""One file for each target; `python -m benchmarks.operator_tables` writes them."""

KINDS = ("runs", "trial", "declared")
"""What a section rests on, the strongest first: models that ran, graphs of one operator that ran, what others say."""

_NOTHING: Mapping[str, str] = MappingProxyType({})
EXPORTS = Path(__file__).with_name("onnx_types.json")
"""The ONNX types that each operator of torch becomes, as graphs of one operator were exported."""
GRAPHS = Path(__file__).with_name("graphs.json")
"""How many graphs of whole models are without what an operator becomes by itself, as runs on qnn counted nodes."""
REPLACED = Path(__file__).with_name("exports.toml")
"""What exports ask for in the place of operators."""
_ENOUGH_GRAPHS = 5


@dataclass(frozen=True, kw_only=True)
class Section:
    """What one source says of operators.

    `names` is `aten`, `onnx`, or what else operators begin with. `supported` holds those that run, `conditions` under
    which some of them do, and `missing` those that don't, with the reason. `made_of_others` are those of `supported`
    that compute by calling other operators, which have to be there as well. Where `complete`, an operator that isn't
    listed is missing. Of another variant of the target than `variants` only what is missing in a stage before the
    device counts (`before_device`).
    `left_out` says which model types no part of it was derived from.
    """

    kind: str
    names: str
    source: str
    made_by: str
    made_on: str
    versions: Mapping[str, str]
    supported: tuple[str, ...]
    made_of_others: tuple[str, ...] = ()
    conditions: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    missing: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    before_device: tuple[str, ...] = ()
    complete: bool = False
    variants: tuple[str, ...] | None = None
    left_out: str = ""

    @functools.cached_property
    def known(self) -> frozenset[str]:
        """The operators that run."""
        return frozenset(self.supported)

    def says(self, operator: str, variant: str = "") -> tuple[bool | None, str]:
        """Whether it runs, and the condition or the reason; None where this source doesn't know."""
        here = self.variants is None or variant in self.variants
        if operator in self.missing:
            return (False, self.missing[operator]) if here or operator in self.before_device else (None, "")
        if not here:
            return None, ""
        if operator in self.known:
            return True, self.conditions.get(operator, "")
        return (False, f"not among those that {self.source} lists") if self.complete else (None, "")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Section:
        """The section that a file holds. Raises `TypeError` for other fields."""
        given: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in data.items()}
        return cls(**given)


@dataclass(frozen=True, kw_only=True)
class OperatorTable:
    """All that is known of a target's operators, the strongest source first."""

    target: str
    sections: tuple[Section, ...]


@functools.cache
def table_of(target: str) -> OperatorTable | None:
    """The table of a target by its name; None where there is none. Raises `BrokenInput`."""
    path = FOLDER / f"{target}.json"
    return read_table(path) if path.is_file() else None


def known_tables() -> tuple[str, ...]:
    """The targets that have a table."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


def read_table(path: Path) -> OperatorTable:
    """The table in a file. Raises `BrokenInput`, naming the file, where it can't be read."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"its schema_version is {data['schema_version']!r}, not {SCHEMA_VERSION}")
        sections = tuple(Section.from_dict(one) for one in data["sections"])
        return OperatorTable(target=data["target"], sections=sections)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BrokenInput(f"{echo(path.name)} is no table of operators", why=str(error)) from error


@dataclass(frozen=True, kw_only=True)
class OperatorCoverage:
    """What is known of some operators on a target, each in exactly one of three groups, in the order of the question.

    `reasons` says why operators are missing, `conditions` under which supported ones run. `source` says who says so,
    with versions; it is empty where the target has no table, and then everything is unknown.
    """

    target: str
    supported: tuple[str, ...]
    missing: tuple[str, ...]
    unknown: tuple[str, ...]
    reasons: Mapping[str, str]
    conditions: Mapping[str, str]
    source: str

    @property
    def is_known(self) -> bool:
        """Whether there is a table, and it speaks of every operator."""
        return bool(self.source) and not self.unknown


def coverage(target: Target, operators: Sequence[str]) -> OperatorCoverage:
    """What the tables say of `operators` (`aten.addmm`) on a target. Milliseconds: nothing but a file is read.

    Sources are asked in order: models that ran, graphs of one operator that ran, published lists; what speaks of
    operators of torch before what speaks of ONNX types, which only tells what they become. The first that knows an
    operator decides.
    """
    table = table_of(target.name)
    sections = table.sections if table else ()
    around = _around(target.name, operators)
    said = {name: _instead(sections, name, around, target.variant) for name in dict.fromkeys(operators)}
    return OperatorCoverage(
        target=str(target),
        supported=tuple(name for name, (has, _) in said.items() if has),
        missing=tuple(name for name, (has, _) in said.items() if has is False),
        unknown=tuple(name for name, (has, _) in said.items() if has is None),
        reasons=MappingProxyType({name: why for name, (has, why) in said.items() if has is False}),
        conditions=MappingProxyType({name: why for name, (has, why) in said.items() if has and why}),
        source="; ".join(dict.fromkeys(f"{one.source} ({_versions(one.versions)})" for one in sections)),
    )


def _around(target: str, operators: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """What graphs have in the place of some of these operators, where the target gets models as graphs."""
    listed = _replaced()
    if target not in listed["targets"]:
        return {}
    return {
        name: tuple(one["becomes"])
        for name, one in listed["operator"].items()
        if name in operators and one.get("only_with", name) in operators
    }


@functools.cache
def _replaced() -> Mapping[str, Any]:
    return tomllib.loads(REPLACED.read_text(encoding="utf-8"))


def _instead(
    sections: Sequence[Section], operator: str, around: Mapping[str, tuple[str, ...]], variant: str
) -> tuple[bool | None, str]:
    """What is said of an operator, or of all that a graph has in its place."""
    if operator not in around:
        return _asked(sections, operator, variant)
    said = [(_asked(sections, name, variant), name) for name in around[operator]]
    for (has, why), name in said:
        if not has:
            return has, f"graphs have {name} in its place: {why}"
    return True, f"graphs have {', '.join(around[operator]) or 'nothing'} in its place"


def _asked(sections: Sequence[Section], operator: str, variant: str) -> tuple[bool | None, str]:
    for section in sections:
        if section.names == operator.partition(".")[0]:
            has, why = section.says(operator, variant)
            if has is not None:
                return has, why
    for section in sections if operator.startswith("aten.") else ():
        if section.names == "onnx":
            has, why = _translated(section, operator, variant)
            if has is not None:
                return has, why
    return None, ""


def _translated(section: Section, operator: str, variant: str) -> tuple[bool | None, str]:
    """What a section that speaks of ONNX types says of an operator of torch: all that it becomes have to be there."""
    exported = onnx_types().get(operator)
    if exported is None:
        return None, ""
    if isinstance(exported, str):
        return False, exported
    said = {name: section.says(f"onnx.{name}", variant) for name in exported}
    lacking = [f"{name} ({why})" for name, (has, why) in said.items() if has is False]
    if lacking:
        gone, graphs = left_out_of_graphs().get(operator, (0, 0))
        if gone == graphs >= _ENOUGH_GRAPHS:
            return True, f"none of {graphs} graphs of models that have it has it"
        # Masks are sums in graphs: where most graphs are without an operator, what it becomes tells nothing.
        return (None, "") if 2 * gone > graphs else (False, f"it becomes {', '.join(lacking)}")
    if any(has is None for has, _ in said.values()):
        return None, ""
    return True, "; ".join(f"{name}: {why}" for name, (_, why) in said.items() if why)


@functools.cache
def left_out_of_graphs() -> Mapping[str, tuple[int, int]]:
    """By operator of torch, how many graphs of models that have it are without what it becomes, and of how many."""
    if not GRAPHS.is_file():
        return {}
    listed = json.loads(GRAPHS.read_text(encoding="utf-8"))["operators"]
    return {name: (gone, graphs) for name, (gone, graphs) in listed.items()}


@functools.cache
def onnx_types() -> Mapping[str, tuple[str, ...] | str]:
    """The ONNX types by operator of torch, or why torch's exporter doesn't take it."""
    if not EXPORTS.is_file():
        return {}
    listed = json.loads(EXPORTS.read_text(encoding="utf-8"))
    types: dict[str, tuple[str, ...] | str] = {name: tuple(found) for name, found in listed["types"].items()}
    types.update(listed["refused"])
    return types


def _versions(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())
