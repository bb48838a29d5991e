"""Judge a run by a project file: the lock of expected levels, accepted failures, and all other failures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from types import MappingProxyType

from hwcompat.generators.compatibility.verdict import Basis, Level, Verdict, Words
from hwcompat.generators.run import JobResult
from hwcompat.hardware.evidence.record import CheckLine, Outcome
from hwcompat.hardware.plain_text import one_line

from .expected_results import PASS, word_of
from .project_file import Expectation, Project
from .project_finding import ProjectFinding, ProjectFindingKind, ProjectOutcome, judge_accepted, shown_by

_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class CellRun:
    """The results of a run for one cell. `missing` is why a required device wasn't there; empty if it was.

    The verdict uses all evidence of the folder; `lines` are the results of this run, which planned `checks`.
    """

    verdict: Verdict
    lines: tuple[CheckLine, ...]
    missing: str = ""
    checks: tuple[str, ...] = ()

    @property
    def is_measured(self) -> bool:
        """Whether this run measured the cell's level: each of its checks ran, on the cell's own target."""
        ran = {line.check_name for line in self.lines} >= set(self.checks) and not any(
            line.outcome is Outcome.NOT_RUN or line.substitution_reason for line in self.lines
        )
        own = {line.evidence_id for line in self.lines} & set(self.verdict.evidence_ids)
        known = self.verdict.basis is Basis.MEASURED and self.verdict.level is not Level.UNKNOWN
        return known and ran and bool(own) and not self.missing


def runs_of(result: JobResult, *, allow_fallback: bool) -> dict[str, CellRun]:
    """Return a finished run in the form that `judge_project` takes, by cell id."""
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
    """Return the findings for the results of one run, by cell id, on the day `today`.

    A cell of the lock must have exactly its level. An expected level that wasn't shown is not met, unless the command
    line left the cell out (`left_out`: the options by cell id). A failure breaks the build unless it is accepted, or
    its cell has the low level that the lock expects.
    """
    lines = {cell: run.lines for cell, run in runs.items()}
    findings, accepted = judge_accepted(project, lines, today, left_out, words)
    for cell, run in runs.items():
        failing = [line for line in run.lines if _fails(line) and line.evidence_id not in accepted]
        has_accepted = any(line.evidence_id in accepted for line in run.lines)
        expectation = project.expected.get(cell)
        if expectation is None:
            findings += _unlocked(cell, run, failing, words)
        else:
            findings.append(_locked(project, expectation, run, failing, has_accepted, words))
    for cell, expectation in project.expected.items():
        if cell not in runs:
            findings.append(_absent(project, expectation, left_out.get(cell, "")))
    order = list(ProjectFindingKind)
    return ProjectOutcome(
        file=project.name,
        findings=tuple(sorted(findings, key=lambda f: (not f.kind.breaks, order.index(f.kind), f.cell, f.line))),
        accepted=accepted,
    )


def _fails(line: CheckLine) -> bool:
    """Return whether a check failed, or wasn't run although no argument for pytest left it out."""
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
    made = partial(ProjectFinding.shown, cell=expectation.cell, line=expectation.line, lines=failing)
    if has_accepted and not failing and (not known or (rank or 0) < (wanted or 0)):
        return made(
            ProjectFindingKind.MET,
            message=f"{compared}; the lock doesn't apply while a failure of this cell is accepted",
            rests=True,
        )
    if not known:
        why = run.missing and f"the device isn't available: {one_line(run.missing)}"
        if run.verdict.basis is Basis.MEASURED and run.verdict.level is not Level.UNKNOWN and not failing:
            why = why or "this run didn't measure it, only an earlier one"
        wish = expectation.word or expected
        message = f"expected {wish}, but not measured: {why or cause or 'no check ran'}"
        fix = "Run it on a machine with this target; an expected level counts only if it is measured."
        return made(ProjectFindingKind.NOT_MET, message=message, fix=fix)
    if expectation.word:
        return _by_word(expectation, word_of(measured, run.lines), made, cause)
    if rank == wanted:
        return made(ProjectFindingKind.MET, message=f"{measured}, as expected")
    if (rank or 0) < (wanted or 0):
        other = "add an accepted failure" if failing else f"change line {expectation.line} of {project.name}"
        return made(ProjectFindingKind.WORSE, message=f"{compared}: {cause}", fix=f"Fix it, or {other}.")
    fix = f'Change line {expectation.line} of {project.name} to "{expectation.cell}" = "{measured}" '
    message = f"{compared}: better than the lock"
    return made(ProjectFindingKind.BETTER, message=message, fix=f"{fix}(or use --update-expected).")


def _by_word(
    expectation: Expectation, measured: str, made: Callable[..., ProjectFinding], cause: str
) -> ProjectFinding:
    """Return the finding for a cell of a CSV: a pass in place of a failure, and another failure, break the build."""
    compared, place = (
        f"expected {expectation.word}, measured {measured}",
        f"line {expectation.line} of {expectation.file}",
    )
    if measured == expectation.word:
        return made(ProjectFindingKind.MET, message=f"{measured}, as expected")
    if measured == PASS:
        return made(ProjectFindingKind.BETTER, message=f"{compared}: it passes now", fix=f"Change {place} to {PASS}.")
    return made(ProjectFindingKind.WORSE, message=f"{compared}: {cause}", fix=f"Fix it, or change {place}.")


def _unlocked(cell: str, run: CellRun, failing: Sequence[CheckLine], words: Words) -> list[ProjectFinding]:
    measured = str(run.verdict.level)
    note = ProjectFinding(
        kind=ProjectFindingKind.NOT_LOCKED,
        cell=cell,
        message=f"{measured}, not in the lock",
        fix="" if run.verdict.level is Level.UNKNOWN else "Use --update-expected to add it.",
    )
    if not failing and not run.missing:
        return [note]
    missing = f"the device isn't available: {one_line(run.missing)}" if run.missing else ""
    message = "; ".join(filter(None, [missing, shown_by(failing, words)]))
    broken = ProjectFinding.shown(ProjectFindingKind.FAILED, cell, message, lines=failing)
    return [broken, note]


def _absent(project: Project, expectation: Expectation, left_out_by: str) -> ProjectFinding:
    made = partial(ProjectFinding.shown, cell=expectation.cell, line=expectation.line)
    expected = expectation.word or expectation.level
    if left_out_by:
        message = f"expected {expected}; not judged, because {left_out_by} excluded it"
        return made(ProjectFindingKind.LEFT_OUT, message=message)
    fix = f"Add it to the models of the run, or remove line {expectation.line} of {expectation.file or project.name}."
    return made(ProjectFindingKind.NOT_MET, message=f"expected {expected}, but it was not run", fix=fix)
