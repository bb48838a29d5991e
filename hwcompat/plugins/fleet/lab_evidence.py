"""Evidence of a lab machine as it grows there: merged into the folder here with the checks of `hwcompat evidence
merge`, and shown as progress."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hwcompat.hardware.errors import BrokenInput
from hwcompat.hardware.evidence.merge import LARGEST_MERGE, merge_evidence
from hwcompat.hardware.evidence.record import CheckLine, RunLine
from hwcompat.hardware.evidence.store import read_folder
from hwcompat.hardware.files import work_folder, writing
from hwcompat.hardware.plain_text import size_text
from hwcompat.hardware.testing.progress import Progress
from hwcompat.hardware.testing.suite_file import SuiteFile

from .lab_line import Answer

_SHARE = 10
"""Each merge reads every line again, so the pause before the next is ten times the duration of a merge."""


class LabEvidence:
    """The received files of a run; `folder` is that of the evidence here, `spool` holds the received files."""

    def __init__(self, host: str, folder: Path, spool: Path, suites: Sequence[SuiteFile], progress: Progress) -> None:
        self._host = host
        self._folder = folder
        self._spool = spool
        self._suites = {suite.cell.id: suite for suite in suites}
        self._progress = progress
        self._not_before = 0.0
        self._planned: set[str] = set()
        self._began: dict[str, str] = {}
        self._over: set[str] = set()
        self.run_lines: dict[str, RunLine] = {}

    def sizes(self) -> dict[str, int]:
        """Return the received size of each file in bytes."""
        return {path.name: path.stat().st_size for path in self._spool.glob("*.jsonl")}

    def take(self, look: Answer) -> None:
        """Store received data, and merge it if it is complete. Raises `BrokenInput` if it doesn't fit."""
        sizes = self.sizes()
        if sum(sizes.values()) + sum(len(data) for _, _, data in look["parts"]) > LARGEST_MERGE:
            raise BrokenInput(
                f"the evidence of {self._host} is refused",
                why=f"it is larger than {size_text(LARGEST_MERGE)}",
            )
        for name, at, data in look["parts"]:
            if at != sizes.get(name, 0):
                raise BrokenInput(f"the evidence of {self._host} is refused", why=f"{name} has a gap")
            with (self._spool / name).open("ab") as file:
                file.write(data)
        if look["whole"]:
            self._merge(at_once=look["state"] != "running")
        self._progress.waiting()

    def _merge(self, *, at_once: bool) -> None:
        started = time.monotonic()
        if not any(self._spool.glob("*.jsonl")) or (started < self._not_before and not at_once):
            return
        merge_evidence(self._spool, self._folder)
        self._not_before = time.monotonic() + _SHARE * (time.monotonic() - started)
        self._report_progress()

    def _report_progress(self) -> None:
        """Report new progress; the merge has validated each line by the schema."""
        found = read_folder(self._spool)
        self.run_lines = {run.run_id: run for run in found.runs}
        planned = {one.cell_id for run in found.runs for one in run.plan if one.cell_id in self._suites}
        if new := planned - self._planned:
            self._progress.planned(len(new))
        self._planned = planned
        by_run: dict[tuple[str, str], list[CheckLine]] = {}
        for line in sorted(found.checks, key=lambda one: one.started_at):
            by_run.setdefault((line.run_id, line.cell_id), []).append(line)
        for (_, cell), lines in by_run.items():
            suite = self._suites.get(cell)
            if suite is None or cell in self._over:
                continue
            done = {one.check_name for one in lines}
            left = next((check for check in suite.checks if check not in done), None)
            if left is None:
                self._over.add(cell)
                self._progress.ended(suite, Counter(one.outcome for one in lines))
            elif self._began.get(cell) != left:
                self._began[cell] = left
                self._progress.began(suite, left)

    def runs(self, named: Mapping[str, str]) -> dict[str, str]:
        """Return by cell the run with its latest results, if there is one: the one that the lab named, otherwise the
        newest that planned it. Raises `BrokenInput` for a run of another suite than the one that was sent."""
        found: dict[str, str] = {}
        runs = sorted(self.run_lines.values(), key=lambda run: (run.started_at, run.run_id))
        for id_, suite in self._suites.items():
            hashes = {run.run_id: one.suite_hash for run in runs for one in run.plan if one.cell_id == id_}
            if not hashes:
                continue
            run_id = named[id_] if named.get(id_) in hashes else list(hashes)[-1]
            if hashes[run_id] != suite.suite_hash:
                raise BrokenInput(
                    f"the evidence of {self._host} is refused",
                    why=f"its run {run_id} measured another suite of {id_} than the one that was sent",
                )
            found[id_] = run_id
        return found


@contextlib.contextmanager
def opened_evidence(
    host: str, folder: Path, suites: Sequence[SuiteFile], progress: Progress
) -> Iterator[LabEvidence]:
    """Prepare `folder` for evidence. Raises `OutputError` if it can't be written."""
    with writing(f"evidence cannot be written to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        with work_folder(folder, ".lab-") as spool:
            yield LabEvidence(host, folder, spool, suites, progress)
