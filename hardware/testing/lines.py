"""Builds check lines: what a suite says of itself goes into each, whoever writes it."""

from __future__ import annotations

from typing import Any

from ..changes import CHANGED, current_changes
from ..evidence.record import EDITED, OUTDATED, CheckLine, Origin, Outcome
from ..evidence.writer import now
from .suite_file import SuiteFile


def line_for(suite: SuiteFile, run_id: str, check: str, outcome: Outcome, **facts: Any) -> CheckLine:
    """The line of one check of `suite`; `facts` are further fields of `CheckLine`, by name.

    A suite that was edited by hand is marked as such in the conditions of every line, and so is one made from other
    revisions of the templates. So is a changed condition: its lines measure nothing of the cell as it is.
    """
    changed = current_changes().text
    conditions = dict(facts.pop("conditions", {}))
    if suite.edited:
        conditions[EDITED] = "by hand"
    if suite.outdated:
        conditions[OUTDATED] = suite.outdated
    conditions |= {CHANGED: changed} if changed else {}
    given = {
        "subject": suite.subject,
        "requested_target": str(suite.cell.target),
        "actual_target": None,
        "started_at": now(),
        "duration_s": 0.0,
        **facts,
    }
    return CheckLine(
        run_id=run_id,
        cell_id=suite.cell.id,
        check_name=check,
        outcome=outcome,
        precision=suite.cell.precision,
        model=suite.cell.model,
        task=suite.cell.task,
        model_revision=suite.model_revision,
        config_hash=suite.config_hash,
        architecture=suite.architecture,
        suite_hash=suite.suite_hash,
        conditions=conditions,
        origin=Origin.CHANGED if changed else Origin.HWCOMPAT,
        **given,
    )
