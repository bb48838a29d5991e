"""`--backlog TARGET`: what stands in the way of model types there, operator by operator."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from generators.compatibility.operators import known_tables
from generators.models.store import stored_recipes
from generators.options import Options
from hardware.backends.factory import known_targets
from hardware.errors import NothingMatched, UsageError, did_you_mean, echo
from hardware.evidence.kept import kept_file, read_kept
from hardware.evidence.record import CheckLine
from hardware.front_door import note, terminal_width
from hardware.target import Target

from .backlog import Backlog, Item, backlog
from .backlog_text import backlog_json, backlog_markdown, backlog_text

_SHOWN = 20
_REAL_MODELS = 12
"""Types that are looked at in their real size: each takes seconds."""


def report_backlog(asked: Options, name: str) -> int:
    """Print the list; returns the exit code. Raises `NothingMatched` where no table and no evidence speak of it."""
    target = _target(name)
    if asked.format_ in ("csv", "html"):
        raise UsageError(f"a backlog has no {asked.format_}", fix="Take table, markdown or json.")
    checks, sources = _checks(asked, target)
    if not checks and target.name not in known_tables():
        raise NothingMatched(
            f"nothing is known of operators on {target}",
            why="it has no table of operators, and there is no evidence",
            fix=f"Run some models: python run_test_generation.py --priority high --device {target} --run",
        )
    found = backlog(target, stored_recipes(), checks, precision=asked.precision, evidence=", ".join(sources))
    if asked.dims == "real":
        found = _at_real_size(found)
    if asked.format_ == "json":
        click.echo(backlog_json(found), nl=False)
    elif asked.format_ == "markdown":
        click.echo(backlog_markdown(found), nl=False)
    else:
        click.echo(backlog_text(found, width=terminal_width(), most=_SHOWN), nl=False)
    return 0


def _target(name: str) -> Target:
    target = Target.parse(name).kind
    known = sorted({*known_targets(), *known_tables()})
    if target.name not in known:
        raise UsageError(
            f"{echo(name)} is no target", why=did_you_mean(target.name, known), fix=f"Known: {', '.join(known)}."
        )
    return target


def _checks(asked: Options, target: Target) -> tuple[list[CheckLine], list[str]]:
    """The lines of what is kept, and of the folder that was named or is there; where both have a cell, the later."""
    checks: list[CheckLine] = []
    sources = []
    if (kept := kept_file(target)) is not None:
        checks += [line for line in read_kept(kept) if isinstance(line, CheckLine)]
        sources.append(f"docs/evidence/{kept.name}")
    if (evidence := asked.read_evidence()) is not None:
        checks += evidence.checks
        sources.append(Path(asked.evidence).name)
    return [line for line in checks if Target.parse(line.requested_target).name == target.name], sources


def _at_real_size(found: Backlog) -> Backlog:
    """The list with shapes at the size of defaults, of one type for each operator and of a dozen types at most."""
    from generators.derivation.child import real_calls_in_child
    from generators.derivation.operator_calls import Call

    looked: dict[str, tuple[Call, ...]] = {}

    def seen(item: Item) -> Item:
        if item.operator.startswith("onnx."):
            return item
        for model_type in (*item.unlocks, *item.part_in)[:2]:
            if model_type not in looked and len(looked) < _REAL_MODELS:
                try:
                    looked[model_type] = real_calls_in_child(model_type)
                except UsageError as error:
                    note(str(error))
                    looked[model_type] = ()
            shapes = [str(call) for call in looked.get(model_type, ()) if call.operator == item.operator]
            if shapes:
                return replace(item, real=tuple(f"{one} ({model_type})" for one in shapes[:2]))
        return item

    return replace(found, items=tuple(map(seen, found.items)))
