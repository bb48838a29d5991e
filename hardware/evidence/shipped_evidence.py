"""Evidence that is kept in the repository, `docs/evidence/<target>.jsonl.gz`, and the lines that count in any
evidence.

A kept file holds the lines of each cell's last run, without tracebacks, inventories and paths of the machine.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path

from ..errors import BrokenInput, HwCompatError, echo
from ..plain_text import size_text
from ..safe_read import opened, reason_of
from ..target import Target
from .columns import LONGEST_LINE
from .record import CheckLine, Line, Outcome
from .renamed import with_current_names
from .store import read_line

FOLDER = Path(__file__).parents[2] / "docs" / "evidence"
"""The folder in the repository; a package without documentation has none."""

LAST_CHECK = "runs_natively"
"""The last check of every suite: a cell without it was cut off."""

_MOST_LINES = 200_000
_LARGEST = 256 * 1024 * 1024
"""In bytes, decompressed. The largest file is 7 MB."""


def shipped_file(target: Target, folder: Path = FOLDER) -> Path | None:
    """Return the kept evidence of a target, or None."""
    path = folder / f"{target.name}.jsonl.gz"
    return path if path.is_file() else None


def read_shipped(path: Path) -> Sequence[Line]:
    """Return the lines of a kept file. Raises `BrokenInput` if a line is broken, or the file or a line is too
    long."""
    lines: list[Line] = []
    try:
        with opened(path) as packed, gzip.open(packed, "rb") as file:
            size = 0
            while data := file.readline(LONGEST_LINE + 1):
                size += len(data)
                if len(data) > LONGEST_LINE or len(lines) >= _MOST_LINES or size > _LARGEST:
                    raise ValueError(
                        f"it has more than {_MOST_LINES} lines, or more than {size_text(_LARGEST)} unpacked"
                    )
                lines.append(read_line(data))
    except (OSError, EOFError, ValueError, zlib.error, HwCompatError) as error:
        raise BrokenInput(f"{echo(path.name)} is not shipped evidence", why=reason_of(error)) from error
    return with_current_names(lines)


def last_checks(lines: Sequence[CheckLine], target: Target) -> dict[str, dict[str, CheckLine]]:
    """Return the last run of each check on a target, by cell and check name.

    A target without a variant includes all its variants. Cells that were cut off keep the run before; what ran
    elsewhere because the target was absent is left out.
    """
    runs: dict[str, dict[str, dict[str, CheckLine]]] = {}
    for line in sorted(lines, key=lambda one: one.started_at):
        asked = Target.parse(line.requested_target)
        is_meant = asked.name == target.name and target.variant in ("", asked.variant)
        if line.outcome is not Outcome.NOT_RUN and is_meant and not line.substitution_reason:
            cell = runs.setdefault(line.cell_id, {})
            cell.setdefault(line.run_id, {})[line.check_name] = line
    whole = {cell: [checks for checks in found.values() if LAST_CHECK in checks] for cell, found in runs.items()}
    return {cell: found[-1] for cell, found in sorted(whole.items()) if found}
