"""Evidence that comes from a lab machine as it grows there: taken into the folder here by the checks of `--merge`,
and told as progress."""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hardware.errors import BrokenInput, OutputError
from hardware.evidence.merge import LARGEST_MERGE, merge_evidence
from hardware.evidence.record import CheckLine, Outcome, RunLine, from_dict
from hardware.plain_text import size_text
from hardware.testing.progress import Progress
from hardware.testing.suite_file import SuiteFile
from hardware.whole_file import work_folder

from .lab_answers import Look

_SHARE = 10
"""Each merge looks at every line again: ten times as long as one took passes before the next."""


class LabEvidence:
    """The files of a run as far as they came; `folder` is where evidence lies here, `spool` holds what came."""

    def __init__(self, host: str, folder: Path, spool: Path, suites: Sequence[SuiteFile], progress: Progress) -> None:
        self._host = host
        self._folder = folder
        self._spool = spool
        self._suites = {suite.cell.id: suite for suite in suites}
        self._progress = progress
        self._not_before = 0.0
        self._told: dict[str, int] = {}
        self._planned: set[str] = set()
        self._over: set[str] = set()
        self._lines: dict[tuple[str, str], list[CheckLine]] = {}
        self.run_lines: dict[str, RunLine] = {}

    def sizes(self) -> dict[str, int]:
        """How much of each file has come, in bytes."""
        return {path.name: path.stat().st_size for path in self._spool.glob("*.jsonl")}

    def take(self, look: Look) -> None:
        """Keep what came, and where it is whole, take it in. Raises `BrokenInput` where it fits nothing."""
        sizes = self.sizes()
        if sum(sizes.values()) + sum(len(data) for _, _, data in look.parts) > LARGEST_MERGE:
            raise BrokenInput(
                f"the evidence of {self._host} is refused",
                why=f"it is more than {size_text(LARGEST_MERGE)}",
            )
        for name, at, data in look.parts:
            if at != sizes.get(name, 0):
                raise BrokenInput(f"the evidence of {self._host} is refused", why=f"{name} has a gap")
            with (self._spool / name).open("ab") as file:
                file.write(data)
        if look.whole:
            self._merge(at_once=not look.is_running)

    def _merge(self, *, at_once: bool) -> None:
        started = time.monotonic()
        if not any(self._spool.glob("*.jsonl")) or (started < self._not_before and not at_once):
            return
        merge_evidence(self._spool, self._folder)
        self._not_before = time.monotonic() + _SHARE * (time.monotonic() - started)
        lines = [line for path in sorted(self._spool.glob("*.jsonl")) for line in self._new_lines(path)]
        for line in sorted(lines, key=lambda one: one.started_at):
            self._tell(line)

    def _new_lines(self, path: Path) -> Iterator[RunLine | CheckLine]:
        """The lines that were taken in since the last time; the merge has held each against the schema."""
        with path.open("rb") as file:
            file.seek(self._told.get(path.name, 0))
            whole, middle, _ = file.read().rpartition(b"\n")
        self._told[path.name] = self._told.get(path.name, 0) + len(whole) + len(middle)
        for text in whole.splitlines() if middle else ():
            line = from_dict(json.loads(text))
            if isinstance(line, RunLine | CheckLine):
                yield line

    def _tell(self, line: RunLine | CheckLine) -> None:
        if isinstance(line, RunLine):
            self.run_lines[line.run_id] = line
            new = {one.cell_id for one in line.plan if one.cell_id in self._suites} - self._planned
            self._planned |= new
            if new:
                self._progress.planned(len(new))
            return
        suite = self._suites.get(line.cell_id)
        if suite is None or line.cell_id in self._over:
            return
        lines = self._lines.setdefault((line.run_id, line.cell_id), [])
        lines.append(line)
        left = [check for check in suite.checks if check not in {one.check_name for one in lines}]
        if left:
            self._progress.began(suite, left[0])
        else:
            self._over.add(line.cell_id)
            self._progress.ended(suite, Counter(Outcome(one.outcome) for one in lines))

    def runs(self, told: Mapping[str, str]) -> dict[str, str]:
        """By cell the run that speaks for it: the one that the lab named, else the newest that planned it. Cells that
        no run planned aren't in it. Raises `BrokenInput` for a run of another suite than the one that was sent."""
        found: dict[str, str] = {}
        runs = sorted(self.run_lines.values(), key=lambda run: (run.started_at, run.run_id))
        for id_, suite in self._suites.items():
            hashes = {run.run_id: one.suite_hash for run in runs for one in run.plan if one.cell_id == id_}
            if not hashes:
                continue
            run_id = told[id_] if told.get(id_) in hashes else list(hashes)[-1]
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
    """Evidence that is to come into `folder`. Raises `OutputError` where it can't be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with work_folder(folder, ".lab-") as spool:
            yield LabEvidence(host, folder, spool, suites, progress)
    except OSError as error:
        raise OutputError(f"evidence cannot be written to {folder}", why=error.strerror or str(error)) from error
