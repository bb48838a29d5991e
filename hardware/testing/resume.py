"""Find the results of an interrupted run that still hold: all other suites run again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..evidence.latest import missing_since
from ..evidence.modeling_files import modeling_moved
from ..evidence.record import EDITED, CheckLine, Outcome, PlannedCell, RunLine
from ..evidence.store import Evidence, read_folder, read_run
from ..evidence.versions import expiry_reasons, modified_for
from ..evidence.writer import EvidenceWriter
from ..redaction import redact
from .pytest_environment import requested_device
from .suite_file import SuiteFile

_ISOLATED = "process"


@dataclass(frozen=True, kw_only=True)
class Resumable:
    """The results to reuse: `run_ids` are the newest run and those that it resumes, newest first, possibly none.

    `done` is the run whose lines hold for a cell, `again` the reason why a cell has to run.
    """

    run_ids: tuple[str, ...] = ()
    done: Mapping[str, str] = field(default_factory=dict)
    again: Mapping[str, str] = field(default_factory=dict)

    def notes(self) -> tuple[str, ...]:
        """Return the notes for the user before anything runs."""
        if not self.run_ids:
            return ("no run to resume; running everything",)
        newest = self.run_ids[0]
        if not self.again:
            return (f"nothing to resume: run {newest} is complete",)
        reasons = (f"{cell} runs again: {reason}" for cell, reason in self.again.items())
        return (f"resuming run {newest}: {len(self.done)} cell(s) are done, {len(self.again)} run", *reasons)


def find_resumable(folder: Path, suites: Sequence[SuiteFile], versions: Mapping[str, str], machine: str) -> Resumable:
    """Return the results of the newest isolated run of `suites` in a folder of evidence that still hold.

    A run of this machine precedes one of another, whose evidence is never reused, and one that planned any of the
    suites precedes one of other cells. `versions` are today's. Without a folder or a run the result is empty.
    """
    evidence = read_folder(folder) if folder.is_dir() else None
    chain = _chain(evidence, redact(machine), {suite.cell.id for suite in suites}) if evidence else ()
    if not chain or evidence is None:
        return Resumable()
    done: dict[str, str] = {}
    again: dict[str, str] = {}
    missing = missing_since(evidence.checks)
    for suite in suites:
        found = next(((run, one) for run in chain for one in run.plan if one.cell_id == suite.cell.id), None)
        if found is None:
            again[suite.cell.id] = "it was not part of that run"
            continue
        run, planned = found
        lines = [line for line in evidence.checks if (line.run_id, line.cell_id) == (run.run_id, suite.cell.id)]
        reason = next(_reasons(suite, run, planned, lines, versions, redact(machine)), "")
        asked = replace(suite.cell, model=suite.cell.label)
        if reason:
            again[suite.cell.id] = reason
        elif missing.get(asked, "") > max((line.started_at for line in lines), default=""):
            again[suite.cell.id] = "its weights were missing in a later run"
        else:
            done[suite.cell.id] = run.run_id
    return Resumable(run_ids=tuple(run.run_id for run in chain), done=done, again=again)


def close_run(folder: Path, run_id: str) -> None:
    """Write the end of a run that has none though all planned checks have lines: it was killed after the last one.

    Raises `OutputError`.
    """
    own = read_run(folder, run_id)
    lines = (*own.checks, *own.other_checks)
    planned = {
        (cell.cell_id, check) for run in (*own.runs, *own.other_runs) for cell in run.plan for check in cell.checks
    }
    if own.ends or not planned or planned - {(line.cell_id, line.check_name) for line in lines}:
        return
    writer = EvidenceWriter(folder, run_id)
    counts = Counter(str(line.outcome) for line in lines)
    writer.end("finished", counts, [earlier for run in (*own.runs, *own.other_runs) for earlier in run.resumes])
    writer.close()


def _chain(evidence: Evidence, machine: str, cells: Set[str]) -> tuple[RunLine, ...]:
    """Return the newest run and those that it resumes, newest first. Missing runs are left out."""
    isolated = [run for run in evidence.runs if run.isolation == _ISOLATED]
    if not isolated:
        return ()

    def worth(run: RunLine) -> tuple[bool, bool, str, str]:
        shared = any(one.cell_id in cells for one in run.plan)
        return run.machine == machine, shared, run.started_at, run.run_id

    newest = max(isolated, key=worth)
    wanted = {newest.run_id}
    found: list[RunLine] = []
    for run in sorted(isolated, key=lambda run: (run.started_at, run.run_id), reverse=True):
        if run.run_id in wanted:
            found.append(run)
            wanted |= set(run.resumes)
    return tuple(found)


def _reasons(
    suite: SuiteFile,
    run: RunLine,
    planned: PlannedCell,
    lines: Sequence[CheckLine],
    versions: Mapping[str, str],
    machine: str,
) -> Iterator[str]:
    """Yield why the lines of a run don't hold for `suite` now."""
    if run.machine != machine:
        yield "it ran on another machine"
    if suite.edited or any(EDITED in line.conditions for line in lines):
        yield "its suite was edited by hand"
    if {planned.suite_hash, *(line.suite_hash for line in lines)} != {suite.suite_hash}:
        yield "its suite has changed"
    if moved := expiry_reasons(suite.cell, run.versions, versions, suite.checks):
        yield f"it ran with {'; '.join(moved)}"
    if modeling_moved(planned, suite.cell):
        yield "the installed modeling files of its type have changed"
    if modified := modified_for(suite.cell, run.versions, suite.checks):
        yield f"it ran with a modified checker: {', '.join(modified)}"
    wanted = str(requested_device(suite.cell.target))
    if others := sorted({line.requested_target for line in lines} - {wanted}):
        yield f"it was requested on {', '.join(others)}, now on {wanted}"
    there = {line.check_name for line in lines}
    if missing := [check for check in suite.checks if check not in there]:
        yield f"it was interrupted before {_listed(missing)}"
    if not_run := [line.check_name for line in lines if line.outcome is Outcome.NOT_RUN]:
        yield f"{_listed(not_run)} did not run"


def why_again(
    suite: SuiteFile, run: RunLine, lines: Sequence[CheckLine], versions: Mapping[str, str], machine: str
) -> str:
    """Return why the lines of a run that planned `suite` don't hold on `machine` with `versions`, or an empty
    text."""
    planned = next(one for one in run.plan if one.cell_id == suite.cell.id)
    return next(_reasons(suite, run, planned, lines, versions, machine), "")


def _listed(names: Sequence[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
