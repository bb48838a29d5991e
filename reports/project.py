"""What a project file says about a run: as text for a terminal, as a section of Markdown, and as findings."""

from __future__ import annotations

from hwcompat.generators.project.project_finding import ProjectFindingKind, ProjectOutcome
from hwcompat.hardware.cell import Cell
from hwcompat.hardware.plain_text import wrapped

from .finding import Finding, Remedy, Severity
from .text import escaped_table, fenced, listed, markdown, printable

COMPONENT = "project_file"

_ACCEPTANCE = (
    ProjectFindingKind.ACCEPTED,
    ProjectFindingKind.RAN_OUT,
    ProjectFindingKind.PASSES_NOW,
    ProjectFindingKind.NOT_SHOWN,
)
_ONE_BY_ONE = tuple(
    kind
    for kind in ProjectFindingKind
    if kind not in (ProjectFindingKind.MET, ProjectFindingKind.NOT_LOCKED, ProjectFindingKind.LEFT_OUT)
)
_INDENT = 12
_SHOWN_CELLS = 6


def project_text(outcome: ProjectOutcome, *, width: int = 100) -> str:
    """Return what breaks the build first, each with what to change; met expectations are only counted."""
    parts = [_labelled("Project", f"{outcome.file}: {outcome.summary}", width)]
    resting = [finding for finding in outcome.of_kind(ProjectFindingKind.MET) if finding.rests]
    for finding in (*outcome.of_kind(*_ONE_BY_ONE), *resting):
        label = str(finding.kind).replace("_", " ").capitalize()
        parts.append(_labelled(label, f"{finding.cell}: {finding.message}", width))
        if finding.fix:
            parts.append(_labelled("", finding.fix, width))
        parts += [f"{' ' * (_INDENT + 4)}{printable(line)}" for line in finding.quote.splitlines()]
    for kind, words in (
        (ProjectFindingKind.LEFT_OUT, "not judged"),
        (ProjectFindingKind.NOT_LOCKED, "run, but not in the lock"),
    ):
        if cells := dict.fromkeys(finding.cell for finding in outcome.of_kind(kind)):
            named = listed(tuple(cells), _SHOWN_CELLS)
            parts.append(_labelled("Note", f"{len(cells)} {words}: {named}", width))
    verdict = "the build fails (exit code 1)" if outcome.exit_code else "the build passes"
    parts.append(_labelled("Result", verdict, width))
    return "\n".join(parts) + "\n"


def _labelled(label: str, text: str, width: int) -> str:
    start = f"{label:<{_INDENT - 1}} "
    flat = " ".join(text.split())
    return "\n".join(wrapped(flat, width=width, start=start, indent=" " * _INDENT, break_long_words=False))


def project_markdown(outcome: ProjectOutcome) -> str:
    """Return a section with a row for each finding, followed by the entries to remove."""
    rows = [
        (
            str(finding.kind).replace("_", " "),
            "yes" if finding.kind.breaks else "no",
            finding.cell,
            finding.message,
            finding.fix,
        )
        for finding in outcome.findings
    ]
    table = escaped_table(("what", "fails the build", "cell", "why", "what to do"), rows, longest=600)
    quotes = [f"{markdown(finding.fix)}\n\n{fenced(finding.quote)}" for finding in outcome.findings if finding.quote]
    head = f"## Project file\n\n{markdown(outcome.file)}: {markdown(outcome.summary)}."
    return "\n\n".join([head, table, *quotes])


def project_findings(outcome: ProjectOutcome, timestamp: str) -> tuple[Finding, ...]:
    """Return as findings what is neither met nor only noted: errors if they break the build, else remarks.

    They name no evidence, so that they don't hide the findings of the checks.
    """
    return tuple(
        Finding(
            hardware_type=str(Cell.parse(finding.cell).target),
            error_type="accepted_failure" if finding.kind in _ACCEPTANCE else "expectation",
            severity=Severity.ERROR if finding.kind.breaks else Severity.INFO,
            message=f"{str(finding.kind).replace('_', ' ')}: {finding.message}",
            component=COMPONENT,
            timestamp=timestamp,
            model_name=Cell.parse(finding.cell).model,
            remedies=tuple(
                Remedy(do=text) for text in [" ".join([finding.fix, *finding.quote.split()]).strip()] if text
            ),
            cells=(finding.cell,),
            checks=finding.checks,
        )
        for finding in outcome.findings
        if finding.kind.breaks or finding.kind is ProjectFindingKind.ACCEPTED
    )
