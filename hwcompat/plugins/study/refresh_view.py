"""How a refresh is told: the expired cells with their reasons and times, as a table or as JSON."""

from __future__ import annotations

from typing import Any

from hardware.plain_text import json_text, obeyed_by_none, one_line
from hwcompat.plugins.study.refresh.duration import Duration, Total
from hwcompat.plugins.study.refresh.planning import Refreshed, RefreshPlan
from reports.text import text_table
from reports.wording import texts

SCHEMA_VERSION = 1
_HEADINGS = ("cell", "showed", "expired because", "time")
_NARROWEST = 30


def refresh_table(plan: RefreshPlan, width: int) -> str:
    """What would run with its time, what can't with its reason, and the sum."""
    parts = []
    room = max([len(one.expired.cell.id) for one in plan.cells], default=0)
    words = max(_NARROWEST, width - room - 26)
    if plan.runnable:
        rows = [(*_row(one), _time(one.duration.seconds)) for one in plan.runnable]
        parts.append(text_table(_HEADINGS, rows, widths=[None, None, words, None]))
    if plan.left:
        stay = [(*_row(one)[:2], "; ".join(texts(one.why_not))) for one in plan.cells if one.why_not]
        headings = (*_HEADINGS[:2], "stays expired because")
        parts.append(text_table(headings, stay, widths=[None, None, words]))
    parts.append(summary(plan))
    return obeyed_by_none("\n\n".join(parts))


def summary(plan: RefreshPlan) -> str:
    """How many cells have expired, and what measuring them again takes."""
    here = len(plan.runnable)
    if not plan.cells:
        return f"Nothing has expired: {plan.looked_at} measured cell(s) still hold."
    left = f"; {len(plan.left)} can't be measured again here" if plan.left else ""
    text = f"{len(plan.cells)} of {plan.looked_at} measured cell(s) have expired{left}."
    return f"{text} {_sum(plan.total, here)}" if here else text


def _sum(total: Total, cells: int) -> str:
    jobs = f"{total.jobs} at a time" if total.jobs > 1 else "one after the other"
    if total.seconds is None:
        return f"How long {cells} cell(s), {jobs}, take is unknown."
    unknown = f", and {total.unknown} more whose time is unknown" if total.unknown else ""
    return f"About {_time(total.seconds)} for {cells - total.unknown} cell(s), {jobs}{unknown}."


def _row(one: Refreshed) -> tuple[str, str, str]:
    return one.expired.cell.id, str(one.expired.level), "; ".join(texts(one.expired.reasons))


def _time(seconds: float | None) -> str:
    """Seconds below two minutes, else minutes, else hours: an estimate has no more digits."""
    if seconds is None:
        return "unknown"
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def refresh_json(plan: RefreshPlan, timestamp: str) -> str:
    """The same as data; `schemas/refresh.json` describes it."""
    data: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "timestamp": timestamp,
        "measured_cells": plan.looked_at,
        "jobs": plan.total.jobs,
        "seconds": _rounded(plan.total.seconds),
        "unknown": plan.total.unknown,
        "cells": [_cell(one, one.duration) for one in plan.cells],
    }
    return json_text(data, indent=1, ascii_alone=True)


def _cell(one: Refreshed, duration: Duration) -> dict[str, Any]:
    return {
        "cell": one.expired.cell.id,
        "level": str(one.expired.level),
        "reasons": list(texts(one.expired.reasons)),
        "runs_here": not one.why_not,
        "why_not": "; ".join(texts(one.why_not)),
        "seconds": _rounded(duration.seconds),
        "checks_seconds": _rounded(duration.checks_s),
        "overhead_seconds": _rounded(duration.overhead_s),
        "told_by": one_line(duration.told_by),
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
