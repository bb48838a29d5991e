"""Judges a run by a project file: the lock of expected levels, accepted failures, and every other failure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType

from generators.compatibility.verdict import Basis, Level, Verdict, Words
from generators.job import JobResult
from hardware.evidence.record import CheckLine, Outcome
from hardware.plain_text import one_line

from .accepted import judge_accepted, shown_by
from .finding import Kind, ProjectFinding, ProjectOutcome
from .project_file import Expectation, Project

_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class CellRun:
    """What a run says of one cell. `missing` is why a device that had to be there wasn't; empty where it was.

    The verdict rests on all evidence of the folder, `lines` are the results of this run, which planned `checks`.
    """

    verdict: Verdict
    lines: tuple[CheckLine, ...]
    missing: str = ""
    checks: tuple[str, ...] = ()

    @property
    def is_measured(self) -> bool:
        """Whether this run measured the cell's level: each of its checks ran, and on the cell's own target."""
        ran = {line.check_name for line in self.lines} >= set(self.checks) and not any(
            line.outcome is Outcome.NOT_RUN or line.substitution_reason for line in self.lines
        )
        own = {line.evidence_id for line in self.lines} & set(self.verdict.evidence_ids)
        known = self.verdict.basis is Basis.MEASURED and self.verdict.level is not Level.UNKNOWN
        return known and ran and bool(own) and not self.missing


def runs_of(result: JobResult, *, allow_fallback: bool) -> dict[str, CellRun]:
    """A finished run as `judge_project` takes it, by cell id."""
    return {
        cell.written.planned.cell.id: CellRun(
            verdict=cell.verdict,
            lines=cell.lines,
            checks=cell.checks,
            missing=cell.substituted if cell.written.planned.required and not allow_fallback else "",
        )
        for cell in result.cells
    }


def judge_project(
    project: Project,
    runs: Mapping[str, CellRun],
    today: date,
    *,
    words: Words,
    left_out: Mapping[str, str] = _NOTHING,
) -> ProjectOutcome:
    """What the results of one run, by cell id, mean to the project on the day `today`.

    A cell of the lock has to have exactly its level; what was expected and not shown is not met, unless the command
    line left it out (`left_out`: the options by cell id). A failure breaks the build unless it is accepted, or its
    cell has the low level that the lock expects.
    """
    lines = {cell: run.lines for cell, run in runs.items()}
    acceptance = judge_accepted(project, lines, today, left_out, words)
    findings: list[ProjectFinding] = []
    for cell, run in runs.items():
        failing = [line for line in run.lines if _fails(line) and line.evidence_id not in acceptance.accepted]
        has_accepted = any(line.evidence_id in acceptance.accepted for line in run.lines)
        expectation = project.expected.get(cell)
        if expectation is None:
            findings += _unlocked(cell, run, failing, words)
        else:
            findings.append(_locked(project, expectation, run, failing, has_accepted, words))
    for cell, expectation in project.expected.items():
        if cell not in runs:
            findings.append(_absent(project, expectation, left_out.get(cell, "")))
    judged = (*acceptance.findings, *findings)
    order = list(Kind)
    return ProjectOutcome(
        file=project.name,
        findings=tuple(sorted(judged, key=lambda f: (not f.kind.breaks, order.index(f.kind), f.cell, f.line))),
        accepted=acceptance.accepted,
    )


def _fails(line: CheckLine) -> bool:
    """A failure, or a check that wasn't run although nobody left it out with arguments for pytest."""
    return line.outcome.is_failure or (line.outcome is Outcome.NOT_RUN and line.error_type != "deselected")


def _locked(
    project: Project,
    expectation: Expectation,
    run: CellRun,
    failing: Sequence[CheckLine],
    has_accepted: bool,
    words: Words,
) -> ProjectFinding:
    expected, measured = expectation.level, run.verdict.level
    rank, wanted = measured.rank, expected.rank
    known = run.is_measured and wanted is not None
    cause = shown_by(failing, words) or one_line("; ".join(map(words, run.verdict.reasons[:2])))
    compared = f"expected {expected}, measured {measured}"
    if has_accepted and not failing and (not known or (rank or 0) < (wanted or 0)):
        return _finding(
            expectation, Kind.MET, f"{compared}; the lock rests while a failure of the cell is accepted", rests=True
        )
    if not known:
        why = run.missing and f"the device isn't here: {one_line(run.missing)}"
        if run.verdict.basis is Basis.MEASURED and run.verdict.level is not Level.UNKNOWN and not failing:
            why = why or "this run didn't measure it; an earlier one did"
        return _finding(
            expectation,
            Kind.NOT_MET,
            f"expected {expected}, and nothing shows it: {why or cause or 'nothing was measured'}",
            "Run it where it can run; what was expected and not shown is not met.",
            failing,
        )
    if rank == wanted:
        return _finding(expectation, Kind.MET, f"{measured}, as expected", lines=failing)
    if (rank or 0) < (wanted or 0):
        other = "accept the failure" if failing else f"change line {expectation.line} of {project.name}"
        return _finding(expectation, Kind.WORSE, f"{compared}: {cause}", f"Fix it, or {other}.", failing)
    return _finding(
        expectation,
        Kind.BETTER,
        f"{compared}: it is better than the lock says",
        f'Change line {expectation.line} of {project.name} to "{expectation.cell}" = "{measured}" '
        "(--update-expected does it).",
        failing,
    )


def _unlocked(cell: str, run: CellRun, failing: Sequence[CheckLine], words: Words) -> list[ProjectFinding]:
    measured = str(run.verdict.level)
    note = ProjectFinding(
        kind=Kind.NOT_LOCKED,
        cell=cell,
        message=f"{measured}, and the lock says nothing of it",
        fix="" if run.verdict.level is Level.UNKNOWN else "--update-expected adds its line.",
    )
    if not failing and not run.missing:
        return [note]
    missing = f"the device isn't here: {one_line(run.missing)}" if run.missing else ""
    broken = ProjectFinding(
        kind=Kind.FAILED,
        cell=cell,
        message="; ".join(filter(None, [missing, shown_by(failing, words)])),
        checks=tuple(dict.fromkeys(line.check_name for line in failing)),
        evidence_ids=tuple(line.evidence_id for line in failing),
    )
    return [broken, note]


def _absent(project: Project, expectation: Expectation, left_out_by: str) -> ProjectFinding:
    if left_out_by:
        return _finding(
            expectation, Kind.LEFT_OUT, f"expected {expectation.level}; not judged: {left_out_by} left it out"
        )
    return _finding(
        expectation,
        Kind.NOT_MET,
        f"expected {expectation.level}, and it was not run",
        f"Add what it names to [[model]], or remove line {expectation.line} of {project.name}.",
    )


def _finding(
    expectation: Expectation,
    kind: Kind,
    message: str,
    fix: str = "",
    lines: Sequence[CheckLine] = (),
    *,
    rests: bool = False,
) -> ProjectFinding:
    return ProjectFinding(
        kind=kind,
        cell=expectation.cell,
        message=message,
        fix=fix,
        line=expectation.line,
        rests=rests,
        checks=tuple(dict.fromkeys(line.check_name for line in lines)),
        evidence_ids=tuple(line.evidence_id for line in lines),
    )
