"""`hwcompat backlog TARGET`: list the operators that block model types on a target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import click

from hwcompat.generators.compatibility.operators import known_tables
from hwcompat.generators.models.recipe_store import stored_recipes
from hwcompat.generators.options import Options
from hwcompat.hardware.backends.factory import known_targets
from hwcompat.hardware.command_line import note, terminal_width
from hwcompat.hardware.errors import NothingMatched, UsageError, did_you_mean, echo
from hwcompat.hardware.evidence.record import CheckLine
from hwcompat.hardware.evidence.shipped_evidence import read_shipped, shipped_file
from hwcompat.hardware.plain_text import folded, json_text, one_line
from hwcompat.hardware.target import Target
from hwcompat.reports.text import listed, markdown, markdown_table

from .backlog import Backlog, Item, backlog

SCHEMA_VERSION = 1

_SHOWN = 20
_SHOWN_TYPES = 6
_SHOWN_OTHERS = 12
_SHOWN_GROUPS = 12
_NONE = "0"
_LABELS = ("state", "unlocks", "part in", "because", "seen", "real size")
_REAL_MODELS = 12
"""The largest number of types built at their real size, since each takes seconds."""


def report_backlog(options: Options, name: str) -> int:
    """Print the list; return the exit code. Raises `NothingMatched` if nothing is known of the target."""
    target = _target(name)
    checks, sources = _checks(options, target)
    if not checks and target.name not in known_tables():
        raise NothingMatched(
            f"the operators of {target} are unknown",
            why="there is no table of its operators and no evidence",
            fix=f"Run some models: hwcompat run --priority high --device {target}",
        )
    found = backlog(target, stored_recipes(), checks, precision=options.precision, evidence=", ".join(sources))
    if options.dims == "real":
        found = _at_real_size(found)
    if options.format_ == "json":
        text = backlog_json(found)
    elif options.format_ == "markdown":
        text = backlog_markdown(found)
    else:
        text = backlog_text(found, width=terminal_width(), most=_SHOWN)
    click.echo(text, nl=False)
    return 0


def _target(name: str) -> Target:
    target = Target.parse(name).kind
    known = sorted({*known_targets(), *known_tables()})
    if target.name not in known:
        raise UsageError(
            f"{echo(name)} isn't a target", why=did_you_mean(target.name, known), fix=f"Known: {', '.join(known)}."
        )
    return target


def _checks(options: Options, target: Target) -> tuple[list[CheckLine], list[str]]:
    """Return the lines of the stored evidence and of the folder; for a cell in both, the later ones."""
    checks: list[CheckLine] = []
    sources = []
    if (kept := shipped_file(target)) is not None:
        checks += [line for line in read_shipped(kept) if isinstance(line, CheckLine)]
        sources.append(f"docs/evidence/{kept.name}")
    if (evidence := options.read_evidence()) is not None:
        checks += evidence.checks
        sources.append(Path(options.evidence).name)
    return [line for line in checks if Target.parse(line.requested_target).name == target.name], sources


def _at_real_size(found: Backlog) -> Backlog:
    """Return the list with shapes at default size, of one type for each operator and of a dozen types at most."""
    from hwcompat.generators.recipes.on_demand import real_calls_of
    from hwcompat.generators.recipes.operator_calls import OperatorCall

    looked: dict[str, tuple[OperatorCall, ...]] = {}

    def seen(item: Item) -> Item:
        if item.operator.startswith("onnx."):
            return item
        for model_type in (*item.unlocks, *item.part_in)[:2]:
            if model_type not in looked and len(looked) < _REAL_MODELS:
                try:
                    looked[model_type] = real_calls_of(model_type)
                except UsageError as error:
                    note(str(error))
                    looked[model_type] = ()
            shapes = [str(call) for call in looked.get(model_type, ()) if call.operator == item.operator]
            if shapes:
                return replace(item, real=tuple(f"{one} ({model_type})" for one in shapes[:2]))
        return item

    return replace(found, items=tuple(map(seen, found.items)))


def backlog_json(found: Backlog) -> str:
    """Return the list as the schema `schemas/backlog.json` describes it."""
    return json_text({"schema_version": SCHEMA_VERSION, **asdict(found)}) + "\n"


def backlog_text(found: Backlog, *, width: int = 80, most: int | None = None) -> str:
    """Return the list for a terminal: one operator a paragraph, `most` of them at most."""
    parts = [[_title(found)], [line for one in _counts_text(found) for line in _folded("", one, width)]]
    for number, item in enumerate(found.items[:most], start=1):
        facts = {label: text for label, text in _facts(item).items() if text not in ("", _NONE)}
        parts.append([f"{number}. {one_line(item.operator)}"])
        parts[-1] += [line for label, text in facts.items() for line in _folded(f"   {label}: ", text, width, 5)]
    if most is not None and len(found.items) > most:
        parts.append([f"and {len(found.items) - most} more (list all: --format markdown or json)"])
    parts += [_folded("", text, width, 3) for text in _appendix(found)]
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def backlog_markdown(found: Backlog, *, level: int = 1) -> str:
    """Return the list as one table."""
    facts = [_facts(item) for item in found.items]
    labels = [label for label in _LABELS if label != "real size" or any(one[label] for one in facts)]
    rows = [
        [str(number), markdown(item.operator), *(markdown(one[label], longest=300) or "-" for label in labels)]
        for number, (item, one) in enumerate(zip(found.items, facts, strict=True), start=1)
    ]
    parts = [f"{'#' * level} {markdown(_title(found))}"]
    parts += [markdown(line, longest=3000) for line in _counts_text(found)]
    parts.append(markdown_table(["", "operator", *labels], rows) if rows else "No known obstacles.")
    parts += [markdown(line, longest=3000) for line in _appendix(found)]
    return "\n\n".join(parts) + "\n"


def _folded(start: str, text: str, width: int, indent: int = 0) -> list[str]:
    return folded(start, one_line(text, longest=3000), indent=indent, width=width)


def _title(found: Backlog) -> str:
    return f"Operators to add for {found.target} ({found.precision})"


def _counts_text(found: Backlog) -> Iterator[str]:
    never = f", {found.predicted} never ran ({found.clear} of them have no known obstacle)" if found.predicted else ""
    yield f"{found.types} model types: {found.passing} pass, {found.failing} fail{never}."
    yield f"Tables: {found.source or 'none for this target'}."
    yield f"Evidence: {found.evidence or 'none'}."
    if found.unknown:
        named = [f"{name} (types: {count})" for name, count in found.unknown.items()]
        yield f"Operators in no table: {listed(named, _SHOWN_OTHERS)}."


def _facts(item: Item) -> dict[str, str]:
    """Return the facts of an operator, by their labels in a list."""
    states = ", ".join(f"{state} ({count})" for state, count in item.states.items())
    types = [
        f"{len(names)} ({listed(names, _SHOWN_TYPES)})" if names else _NONE for names in (item.unlocks, item.part_in)
    ]
    return dict(
        zip(_LABELS, [states, *types, item.reason, "; ".join(item.shapes), "; ".join(item.real)], strict=True)
    )


def _appendix(found: Backlog) -> Iterator[str]:
    """Return the text after the list: operators that must be added together, and failures that name none."""
    for group in found.groups[:_SHOWN_GROUPS]:
        yield f"together {', '.join(group.operators)}: unlock {listed(group.unlocks, _SHOWN_TYPES)}"
    if found.other:
        others = "; ".join(f"{kind}: {listed(names, _SHOWN_TYPES)}" for kind, names in found.other.items())
        yield f"Failures that name no operator: {others}."
