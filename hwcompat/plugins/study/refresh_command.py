"""`hwcompat evidence refresh`: run expired cells in the folder of evidence again, or list them with `--dry-run`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from hwcompat.generators.options import Options
from hwcompat.hardware.command_line import INTERRUPTED, note, terminal_width
from hwcompat.hardware.detection import detect
from hwcompat.hardware.errors import BackendUnavailable, NothingMatched
from hwcompat.hardware.evidence.store import read_folder
from hwcompat.hardware.evidence.writer import machine_label, now
from hwcompat.hardware.plain_text import json_text, obeyed_by_none, one_line
from hwcompat.reports.reason_text import texts
from hwcompat.reports.text import printable, text_table

from .refresh.refresh_plan import RefreshPlan, plan_refresh, still_expired, suites_of

SCHEMA_VERSION = 1
_SHOWN = 6
_NARROWEST = 30


def refresh(asked: Options, command: str) -> int:
    """Refresh, and return the exit code: 0 if nothing has expired or every expired cell was measured again without a
    failure; 1 for a failed check, and for a cell that stays expired though its model or device was named
    (`--allow-fallback` makes that 0); 2 after an interruption.

    Raises `NothingMatched` (5) if no cell was measured or matches, and if no expired cell can run here. `command` is
    written into the evidence.
    """
    evidence = asked.read_evidence()
    if evidence is None:
        raise NothingMatched(
            "no cell was measured yet", why=f"{asked.evidence} doesn't exist", fix="Run suites first: hwcompat run"
        )
    inventory = detect()
    machine = asked.machine or machine_label()
    project = None
    if asked.config is not None:
        from hwcompat.generators.project.project_plan import plan_asked

        project = plan_asked(asked, asked.config, inventory, read_list=sys.stdin.readlines)
    plan = plan_refresh(asked, evidence, inventory, machine, project, read_list=sys.stdin.readlines)
    if asked.dry_run:
        click.echo(refresh_json(plan, now()) if asked.format_ == "json" else refresh_table(plan, terminal_width()))
        return 0
    if not plan.cells:
        click.echo(_summary(plan))
        return 0
    note(_summary(plan))
    suites, refused = suites_of(plan, asked, inventory, project)
    left = {cell: "; ".join(texts(why)) for cell, why in plan.left.items()} | refused
    note(*(f"{cell} stays expired: {why}" for cell, why in left.items()))
    if not suites:
        kind = BackendUnavailable if plan.devices and not asked.allow_fallback else NothingMatched
        raise kind(
            f"none of {len(left)} expired cell(s) can be measured again here",
            why=next(iter(left.values())),
            fix="List them: hwcompat evidence refresh --dry-run",
        )

    from hwcompat.generators.run import write_suites
    from hwcompat.reports.run_command import run_suites

    written = write_suites(suites, asked.output_dir, force=asked.force)
    edited = [one for one in written if str(one.state) == "edited" and not asked.force]
    note(*(f"{one.path} was edited by hand and is not overwritten (--force overwrites it)" for one in edited))
    code = run_suites(
        asked, written, inventory, project and replace(project, kept=suites, left_by="refresh"), command
    )
    if code == INTERRUPTED:
        return code
    ran = [one.cell.id for one in suites]
    again = still_expired(ran, read_folder(asked.evidence), inventory, machine, project)
    left |= {cell: "; ".join(texts(why)) for cell, why in again.items()}
    click.echo(_result_text(len(plan.cells), len(ran) - len(again), left))
    was_named = bool(asked.models or plan.devices) and not asked.allow_fallback
    return 1 if code == 0 and left and was_named else code


def _result_text(expired: int, measured: int, left: Mapping[str, str]) -> str:
    lines = [f"Refreshed   {measured} of {expired} expired cell(s)"]
    lines += [f"Expired     {cell}: {why}" for cell, why in list(left.items())[:_SHOWN]]
    if len(left) > _SHOWN:
        lines.append(f"Expired     {len(left) - _SHOWN} more (list them: hwcompat evidence refresh --dry-run)")
    return "\n".join(map(printable, lines))


def refresh_table(plan: RefreshPlan, width: int) -> str:
    """Return tables of the cells that would run, with their time, and of the others, with the reason, and the sum."""
    room = max([len(one.cell.id) for one in plan.cells], default=0)
    words = max(_NARROWEST, width - room - 26)
    run: list[list[str]] = []
    stay: list[list[str]] = []
    for one in plan.cells:
        why = one.why_not or one.reasons
        row = [one.cell.id, str(one.level), "; ".join(texts(why))]
        (stay if one.why_not else run).append(row if one.why_not else [*row, _time(one.duration.seconds)])
    parts = []
    if run:
        headings = ("cell", "showed", "expired because", "time")
        parts.append(text_table(headings, run, widths=[None, None, words, None]))
    if stay:
        parts.append(text_table(("cell", "last level", "stays expired because"), stay, widths=[None, None, words]))
    return obeyed_by_none("\n\n".join([*parts, _summary(plan)]))


def _summary(plan: RefreshPlan) -> str:
    """Return how many cells have expired, and how long measuring them again takes."""
    if not plan.cells:
        return f"Nothing has expired: {plan.looked_at} measured cell(s) are valid."
    left = f"; {len(plan.left)} can't be measured again here" if plan.left else ""
    text = f"{len(plan.cells)} of {plan.looked_at} measured cell(s) have expired{left}."
    cells, total = len(plan.runnable), plan.total
    if not cells:
        return text
    jobs = f"{total.jobs} at a time" if total.jobs > 1 else "one after the other"
    if total.seconds is None:
        return f"{text} Time for {cells} cell(s), {jobs}: unknown."
    unknown = f", and {total.unknown} more whose time is unknown" if total.unknown else ""
    return f"{text} About {_time(total.seconds)} for {cells - total.unknown} cell(s), {jobs}{unknown}."


def _time(seconds: float | None) -> str:
    """Return a rounded time: in seconds below two minutes, then in minutes, then in hours."""
    if seconds is None:
        return "unknown"
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def refresh_json(plan: RefreshPlan, timestamp: str) -> str:
    """Return the plan as JSON; `schemas/refresh.json` describes it."""
    data: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "timestamp": timestamp,
        "measured_cells": plan.looked_at,
        "jobs": plan.total.jobs,
        "seconds": _rounded(plan.total.seconds),
        "unknown": plan.total.unknown,
        "cells": [
            {
                "cell": one.cell.id,
                "level": str(one.level),
                "reasons": list(texts(one.reasons)),
                "runs_here": not one.why_not,
                "why_not": "; ".join(texts(one.why_not)),
                "seconds": _rounded(one.duration.seconds),
                "checks_seconds": _rounded(one.duration.checks_s),
                "overhead_seconds": _rounded(one.duration.overhead_s),
                "told_by": one_line(one.duration.told_by),
            }
            for one in plan.cells
        ],
    }
    return json_text(data, indent=1, ascii_alone=True)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
