"""`OperatorTable`: the operators of a target, read from `tables/<target>.json`, and which of a list it has or
lacks."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hwcompat.hardware.errors import BrokenInput, echo
from hwcompat.hardware.target import Target
from hwcompat.hardware.values import data_file

SCHEMA_VERSION = 1
FOLDER = Path(__file__).with_name("tables")
"""One file for each target, written by `python -m benchmarks.operator_tables`."""

KINDS = ("runs", "trial", "declared")
"""Kinds of sources, the strongest first: models that ran, graphs of one operator that ran, published lists."""

_NOTHING: Mapping[str, str] = MappingProxyType({})
EXPORTS = Path(__file__).with_name("onnx_types.json")
"""The ONNX types of each operator of torch, from exports of one operator."""
GRAPHS = Path(__file__).with_name("graphs.json")
"""How many graphs of whole models lack what an operator becomes by itself, counted in runs on qnn."""
REPLACED = Path(__file__).with_name("exports.toml")
"""Operators that exports have in place of others."""
_ENOUGH_GRAPHS = 5


@dataclass(frozen=True, kw_only=True)
class Section:
    """What one source says about operators.

    `names` is the prefix of the operators, `aten` or `onnx`. `supported` are those that run, `conditions` the
    conditions of some of them, and `missing` those that don't run, with the reason. `made_of_others` are those of
    `supported` that call other operators, which must be supported as well. If `complete`, an operator that isn't
    listed is missing. For other variants of the target than `variants`, only failures before the device
    (`before_device`) count. `on_host` are those of `missing` that the runtime computes on the host. `left_out` names
    the model types that nothing was derived from.
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
    on_host: tuple[str, ...] = ()
    complete: bool = False
    variants: tuple[str, ...] | None = None
    left_out: str = ""

    @functools.cached_property
    def known(self) -> frozenset[str]:
        """The operators that run."""
        return frozenset(self.supported)

    def says(self, operator: str, variant: str = "") -> tuple[bool | None, str]:
        """Return whether it runs, and the condition or the reason; None if this source doesn't know."""
        here = self.variants is None or variant in self.variants
        if operator in self.missing:
            return (False, self.missing[operator]) if here or operator in self.before_device else (None, "")
        if not here:
            return None, ""
        if operator in self.known:
            return True, self.conditions.get(operator, "")
        return (False, f"{self.source} doesn't list it") if self.complete else (None, "")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Section:
        """Return the section of a file. Raises `TypeError` for other fields."""
        given: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in data.items()}
        return cls(**given)


@dataclass(frozen=True, kw_only=True)
class OperatorTable:
    """Everything known about a target's operators, the strongest source first."""

    target: str
    sections: tuple[Section, ...]


@functools.cache
def table_of(target: str) -> OperatorTable | None:
    """Return the table of a target; None if there is none. Raises `BrokenInput`."""
    path = FOLDER / f"{target}.json"
    return read_table(path) if path.is_file() else None


def known_tables() -> tuple[str, ...]:
    """Return the targets that have a table."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


def read_table(path: Path) -> OperatorTable:
    """Read a table. Raises `BrokenInput` naming the file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"its schema_version is {data['schema_version']!r}, not {SCHEMA_VERSION}")
        sections = tuple(Section.from_dict(one) for one in data["sections"])
        return OperatorTable(target=data["target"], sections=sections)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BrokenInput(f"{echo(path.name)} isn't a table of operators", why=str(error)) from error


@dataclass(frozen=True, kw_only=True)
class OperatorCoverage:
    """What is known about some operators on a target, each in one of three groups, in the order of the question.

    `reasons` says why operators are missing, `conditions` under which supported ones run. `source` names the sources
    with versions; it is empty if the target has no table, and then everything is unknown.
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
        """Whether there is a table, and it covers every operator."""
        return bool(self.source) and not self.unknown


def coverage(target: Target, operators: Sequence[str]) -> OperatorCoverage:
    """Return what the tables say about `operators` (`aten.addmm`) on a target. Takes milliseconds: only files are
    read.

    Sources are used in order: models that ran, graphs of one operator that ran, published lists; operators of torch
    before ONNX types, which only say what they become. The first that knows an operator decides.
    """
    table = table_of(target.name)
    sections = table.sections if table else ()
    around = _replacements(target.name, operators)
    said = {name: _replacement_answer(sections, name, around, target.variant) for name in dict.fromkeys(operators)}
    return OperatorCoverage(
        target=str(target),
        supported=tuple(name for name, (has, _) in said.items() if has),
        missing=tuple(name for name, (has, _) in said.items() if has is False),
        unknown=tuple(name for name, (has, _) in said.items() if has is None),
        reasons=MappingProxyType({name: why for name, (has, why) in said.items() if has is False}),
        conditions=MappingProxyType({name: why for name, (has, why) in said.items() if has and why}),
        source="; ".join(dict.fromkeys(f"{one.source} ({_versions(one.versions)})" for one in sections)),
    )


@dataclass(frozen=True, kw_only=True)
class Registration:
    """Which of some operators of torch have no kernel on a device, which its runtime computes on the host, and which
    its list doesn't know."""

    missing: tuple[str, ...]
    on_host: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def answer(self) -> str | None:
        """`all` if every operator has a kernel on the device, `some` if one has none; None if it isn't known."""
        return "some" if self.missing or self.on_host else None if self.unknown else "all"


def registration(target: Target, operators: Sequence[str]) -> Registration | None:
    """Return what a target's list of kernels says about operators of torch (`aten.addmm`).

    None if the target's table isn't only a list of torch's kernels, or if there are no operators.
    """
    table = table_of(target.name)
    if not (operators and table and {(one.kind, one.names) for one in table.sections} == {("declared", "aten")}):
        return None
    found = coverage(target, operators)
    host = frozenset(name for section in table.sections for name in section.on_host)
    return Registration(
        missing=tuple(name for name in found.missing if name not in host),
        on_host=tuple(name for name in found.missing if name in host),
        unknown=found.unknown,
    )


def _replacements(target: str, operators: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Return what graphs have in place of these operators, if the target gets models as graphs."""
    listed = data_file(REPLACED)
    if target not in listed["targets"]:
        return {}
    return {
        name: tuple(one["becomes"])
        for name, one in listed["operator"].items()
        if name in operators and one.get("only_with", name) in operators
    }


def _replacement_answer(
    sections: Sequence[Section], operator: str, around: Mapping[str, tuple[str, ...]], variant: str
) -> tuple[bool | None, str]:
    """Return what is known about an operator, or about everything that a graph has in its place."""
    if operator not in around:
        return _first_answer(sections, operator, variant)
    said = [(_first_answer(sections, name, variant), name) for name in around[operator]]
    for (has, why), name in said:
        if not has:
            return has, f"graphs contain {name} instead: {why}"
    return True, f"graphs contain {', '.join(around[operator]) or 'no operator'} instead"


def _first_answer(sections: Sequence[Section], operator: str, variant: str) -> tuple[bool | None, str]:
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
    """Return what a section of ONNX types says about an operator of torch: all that it becomes must be supported."""
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
            return True, f"the graphs of all {graphs} tested models with this operator don't contain it"
        # If most graphs lack an operator (masks, for example), what it becomes says nothing.
        return (None, "") if 2 * gone > graphs else (False, f"it is exported as {', '.join(lacking)}")
    if any(has is None for has, _ in said.values()):
        return None, ""
    return True, "; ".join(f"{name}: {why}" for name, (_, why) in said.items() if why)


@functools.cache
def left_out_of_graphs() -> Mapping[str, tuple[int, int]]:
    """Return, by operator of torch, how many graphs of models that have it lack what it becomes, and of how many."""
    if not GRAPHS.is_file():
        return {}
    listed = json.loads(GRAPHS.read_text(encoding="utf-8"))["operators"]
    return {name: (gone, graphs) for name, (gone, graphs) in listed.items()}


@functools.cache
def onnx_types() -> Mapping[str, tuple[str, ...] | str]:
    """Return the ONNX types by operator of torch, or why torch's exporter refuses it."""
    if not EXPORTS.is_file():
        return {}
    listed = json.loads(EXPORTS.read_text(encoding="utf-8"))
    types: dict[str, tuple[str, ...] | str] = {name: tuple(found) for name, found in listed["types"].items()}
    types.update(listed["refused"])
    return types


def _versions(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())
