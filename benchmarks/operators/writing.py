"""Write a target's table of operators; a section replaces the one of the same kind and names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from generators.compatibility.operators.operator_table import FOLDER, KINDS, SCHEMA_VERSION, OperatorTable, Section
from hardware.files import write_whole


def with_section(table: OperatorTable, section: Section) -> OperatorTable:
    """Return the table with a section that replaces the one of the same kind and names."""
    others = [one for one in table.sections if (one.kind, one.names) != (section.kind, section.names)]
    ordered = sorted([*others, section], key=lambda one: (KINDS.index(one.kind), one.names))
    return OperatorTable(target=table.target, sections=tuple(ordered))


def text_of(table: OperatorTable) -> str:
    """Return the text of a table's file; the same table gives the same bytes."""
    sections = [_plain(section) for section in table.sections]
    plain = {"schema_version": SCHEMA_VERSION, "target": table.target, "sections": sections}
    return json.dumps(plain, indent=1, ensure_ascii=False) + "\n"


def _plain(section: Section) -> dict[str, Any]:
    plain = {one.name: getattr(section, one.name) for one in fields(section)}
    listed = {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}
    return {name: dict(sorted(v.items())) if isinstance(v, Mapping) else v for name, v in listed.items()}


def write_table(table: OperatorTable) -> None:
    """Write a target's table into the product's data."""
    write_whole(FOLDER / f"{table.target}.json", text_of(table))
