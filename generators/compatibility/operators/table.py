"""`Table`: what is known of one target's operators, read from `tables/<target>.json`."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hardware.errors import BrokenInput, OutputError, echo
from hardware.whole_file import write_whole

SCHEMA_VERSION = 1
FOLDER = Path(__file__).with_name("tables")
"""One file for each target; `python -m benchmarks.operator_tables` writes them."""

KINDS = ("runs", "trial", "declared")
"""What a section rests on, the strongest first: models that ran, graphs of one operator that ran, what others say."""

_NOTHING: Mapping[str, str] = MappingProxyType({})


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

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        plain = {one.name: getattr(self, one.name) for one in fields(self)}
        listed = {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}
        return {name: dict(sorted(v.items())) if isinstance(v, Mapping) else v for name, v in listed.items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Section:
        """The section that `to_dict` wrote. Raises `TypeError` for other fields."""
        given: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in data.items()}
        return cls(**given)


@dataclass(frozen=True, kw_only=True)
class Table:
    """All that is known of a target's operators, the strongest source first."""

    target: str
    sections: tuple[Section, ...]

    def to_json(self) -> str:
        """The text of a table's file: the same bytes for the same table."""
        plain = {
            "schema_version": SCHEMA_VERSION,
            "target": self.target,
            "sections": [section.to_dict() for section in self.sections],
        }
        return json.dumps(plain, indent=1, ensure_ascii=False) + "\n"

    def with_section(self, section: Section) -> Table:
        """The same table with one section in the place of that of its kind and names."""
        others = [one for one in self.sections if (one.kind, one.names) != (section.kind, section.names)]
        ordered = sorted([*others, section], key=lambda one: (KINDS.index(one.kind), one.names))
        return Table(target=self.target, sections=tuple(ordered))


@functools.cache
def table_of(target: str) -> Table | None:
    """The table of a target by its name; None where there is none. Raises `BrokenInput`."""
    path = FOLDER / f"{target}.json"
    return read_table(path) if path.is_file() else None


def known_tables() -> tuple[str, ...]:
    """The targets that have a table."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


def read_table(path: Path) -> Table:
    """The table in a file. Raises `BrokenInput`, naming the file, where it can't be read."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"its schema_version is {data['schema_version']!r}, not {SCHEMA_VERSION}")
        sections = tuple(Section.from_dict(one) for one in data["sections"])
        return Table(target=data["target"], sections=sections)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BrokenInput(f"{echo(path.name)} is no table of operators", why=str(error)) from error


def write_table(table: Table) -> Path:
    """Write a target's table. Raises `OutputError`."""
    path = FOLDER / f"{table.target}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, table.to_json())
    except OSError as error:
        raise OutputError(f"{echo(path.name)} cannot be written", why=str(error)) from error
    return path
