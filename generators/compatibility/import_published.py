"""Import published results into a folder of evidence: all of a file or none of it."""

from __future__ import annotations

import functools
import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hwcompat.hardware.errors import BrokenInput, NothingMatched, UsageError, did_you_mean, echo
from hwcompat.hardware.evidence.latest import read_latest
from hwcompat.hardware.evidence.published import IMPORTERS, Row, read_rows
from hwcompat.hardware.evidence.record import (
    CheckLine,
    EndLine,
    Origin,
    PlannedCell,
    RunLine,
    WeightsKind,
    to_dict,
)
from hwcompat.hardware.evidence.seals import digests
from hwcompat.hardware.evidence.store import lines_by_cell
from hwcompat.hardware.evidence.writer import new_run_id, now
from hwcompat.hardware.files import work_folder, write_whole, writing
from hwcompat.hardware.redaction import redact, redact_all

from .imported import UNDECIDED, decides, newest, same_place
from .published_rows import Given, Mapped, lines_of

_FEWEST_COMPARED = 10
"""From this number of outcomes on, a file is compared with its last version."""


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What an import did: `rows` were read, and `mapped` has what became of them."""

    rows: int
    mapped: Mapped

    @property
    def undecided(self) -> int:
        """The number of lines that decide no level, because their type isn't certain or they are about training."""
        return sum(UNDECIDED in line.conditions for line in self.mapped.lines)


def import_published(format: str, path: Path, folder: Path, given: Given, command: str) -> Imported:
    """Read published results of a format and add them to a folder of evidence.

    Raises `UsageError` for an unknown format, `BrokenInput` for a file that isn't of the format or in which more than
    half of the outcomes flipped since its last import, `NothingMatched` if no row could be used, and `OutputError`.
    """
    if format not in IMPORTERS.names():
        fix = did_you_mean(format, IMPORTERS.names()) or f"Known: {', '.join(IMPORTERS.names())}."
        raise UsageError(f"{echo(format)} is not a format of published results", fix=fix)
    importer = IMPORTERS.load(format)
    rows = _redacted(read_rows(importer, path))
    given = replace(given, license=given.license or importer.license)
    run = new_run_id()
    mapped = lines_of(rows, run, moment := now(), given)
    if not mapped.lines:
        raise NothingMatched(
            f"no result in {echo(str(path))} could be used",
            why=f"{mapped.harness} failed in their set-up, and {sum(mapped.unmapped.values())} name no known model",
        )
    if folder.is_dir():
        _check_flips(mapped.lines, read_latest(folder).imported)
    with writing(f"evidence cannot be written to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        with work_folder(folder, ".import-") as work:
            written = _write(work, _run_line(run, moment, command, format, mapped.lines), mapped.lines)
            os.replace(written, folder / written.name)
    return Imported(rows=len(rows), mapped=mapped)


def _redacted(rows: Sequence[Row]) -> list[Row]:
    """Return rows whose details don't tell names of people and machines, as errors in test reports do."""
    once = functools.cache(redact)  # most details are those of other rows too
    return [replace(row, detail=once(row.detail)) for row in rows]


def _run_line(run: str, moment: str, command: str, format: str, lines: Sequence[CheckLine]) -> RunLine:
    plan = [
        PlannedCell(
            cell_id=cell,
            checks=tuple(line.check_name for line in own),
            suite=f"published:{format}",
            suite_hash="",
            subject=str(WeightsKind.CHECKPOINT),
        )
        for cell, own in lines_by_cell(lines).items()
    ]
    return RunLine(
        run_id=run,
        started_at=moment,
        command=command,
        machine="published",
        inventory={},
        versions={},
        plan=tuple(plan),
        isolation="nothing was run",
        origin=Origin.IMPORTED,
    )


def _write(folder: Path, run: RunLine, lines: Sequence[CheckLine]) -> Path:
    """Write a sealed file."""
    path = folder / f"{run.run_id}-{os.getpid()}.jsonl"
    text = "".join(
        f"{json.dumps(one, allow_nan=False)}\n" for one in (redact_all(to_dict(run)), *map(to_dict, lines))
    )
    write_whole(path, text)
    counts = Counter(str(line.outcome) for line in lines)
    files = digests(folder, [run.run_id])
    end = EndLine(run_id=run.run_id, ended_at=now(), reason="finished", counts=dict(counts), files=files)
    write_whole(path, f"{text}{json.dumps(to_dict(end), allow_nan=False)}\n")
    return path


def _check_flips(lines: Sequence[CheckLine], before: Sequence[CheckLine]) -> None:
    """Raise `BrokenInput` for a file of which more than half of the outcomes differ from its last import."""
    last = {same_place(line): line.outcome.is_failure for line in newest(before) if decides(line)}
    compared: Counter[str] = Counter()
    flipped: Counter[str] = Counter()
    for line in lines:
        if decides(line) and (place := same_place(line)) in last:
            compared[place[0]] += 1
            flipped[place[0]] += last[place] is not line.outcome.is_failure
    for file, number in compared.items():
        if number >= _FEWEST_COMPARED and 2 * flipped[file] > number:
            raise BrokenInput(
                f"{echo(file)} is refused",
                why=f"{flipped[file]} of {number} outcomes flipped since it was last imported",
                fix="Look at the source: such a file is more often broken than right.",
            )
