"""Build the evidence lines of checks, and recognize errors of a full disk."""

from __future__ import annotations

import errno
from typing import Any

from ..applied_fix import CHANGED, current_changes
from ..errors import OutputError
from ..evidence.record import EDITED, OUTDATED, CheckLine, Origin, Outcome
from ..evidence.writer import now
from .suite_file import SuiteFile

DISK_FULL = "disk_full"
"""The error type if nothing could be written any more, which doesn't concern the model or the device."""

_NUMBERS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG}
_SIGNS = ("no space left on device", "disk quota exceeded", "read-only file system", "(os error 27)", "(os error 28)")
"""Messages of libraries with exceptions of their own; the last two are Rust's texts for these numbers."""


def line_for(suite: SuiteFile, run_id: str, check: str, outcome: Outcome, **facts: Any) -> CheckLine:
    """Return the line of one check of `suite`; `facts` are further fields of `CheckLine` by name.

    The conditions of every line mark a suite that was edited by hand, one made from other template revisions, and a
    changed condition, under which lines don't measure the cell.
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


def is_full_disk(error: BaseException | None) -> bool:
    """Whether an exception, or one that caused it, means that a disk is full or read-only.

    Assertions never do, whatever their text.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen and not isinstance(error, AssertionError):
        seen.add(id(error))
        if isinstance(error, OutputError) or (isinstance(error, OSError) and error.errno in _NUMBERS):
            return True
        if any(sign in str(error).lower() for sign in _SIGNS):
            return True
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return False
