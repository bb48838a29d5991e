"""A report for GitHub Actions: the summary of a job in Markdown, and annotations as workflow commands.

Limits: 1 MiB for a step's summary, or none of it is shown, and 10 annotations of a level in a step
(https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands,
https://docs.github.com/rest/checks/runs). The mildest findings are left out, with a note.
"""

from __future__ import annotations

from collections import Counter

from hwcompat.generators.compatibility.verdict import Level

from ..finding import Finding, FindingState, Severity
from ..report import Report
from ..source_places import place_of
from ..text import markdown, plain_paragraphs, working
from . import Format
from .markdown import cells_table, counts_line, finding_section, measured_line

LARGEST_SUMMARY = 1024 * 1024
MOST_ANNOTATIONS = 10
"""Of each level in a step."""

_RESERVED = 2_000
_MOST_CELLS = 200
_LONGEST_MESSAGE = 4_000
_COMMANDS = {
    Severity.CRITICAL: "error",
    Severity.ERROR: "error",
    Severity.WARNING: "warning",
    Severity.INFO: "notice",
}


def github_report(report: Report) -> str:
    """Return summary and annotations in one text."""
    return f"{github_summary(report)}\n{github_annotations(report)}"


def github_summary(report: Report, *, room: int = LARGEST_SUMMARY) -> str:
    """Return the job's summary, ending in a newline: at most `room` bytes of UTF-8, the worst findings first.

    Tracebacks are left to the other formats, because their lines could be commands to GitHub.
    """
    against = report.baseline
    head = [
        "# Hardware compatibility",
        f"{counts_line(report)}.",
        *([f"Against {markdown(against.name)}: {against.summary}."] if against else []),
        measured_line(report),
        *_shares(report),
    ]
    text = "\n\n".join(part for part in head if part)
    left = room - _RESERVED - _size(text)
    sections: list[str] = []
    for finding in report.findings:
        section = finding_section(finding, against, traceback=False)
        if _size(section) + 2 > left:
            said = f"{len(sections)} of {len(report.findings)} findings are shown here, worst first"
            sections.insert(
                0, f"**{said}, because a summary has a size limit. The reports of the run have all of them.**"
            )
            left = 0
            break
        sections.append(section)
        left -= _size(section) + 2
    return "\n\n".join(part for part in (text, *sections, *_cells(report, left)) if part) + "\n"


def _shares(report: Report) -> list[str]:
    """Return how many cells of each target work, and how many findings of each cause are errors."""
    levels: dict[str, list[Level]] = {}
    for cell in report.cells:
        levels.setdefault(cell.id.split("/")[2], []).append(cell.verdict.level)
    errors = [one.error_type for one in report.findings if one.severity.rank >= Severity.ERROR.rank]
    causes = [f"{markdown(name.replace('_', ' '))} ({number})" for name, number in Counter(errors).most_common()]
    shares = "\n".join(f"- {markdown(target)}: {working(own)}" for target, own in sorted(levels.items()))
    return [*filter(None, [shares, f"Causes: {', '.join(causes)}." if causes else ""])]


def _cells(report: Report, left: int) -> list[str]:
    """Return a table of the cells that aren't high, the worst first, as far as it fits."""
    order = {level: place for place, level in enumerate((Level.UNSUPPORTED, Level.LOW, Level.UNKNOWN, Level.MEDIUM))}
    cells = sorted((one for one in report.cells if one.verdict.level in order), key=lambda c: order[c.verdict.level])
    said = f"{working([one.verdict.level for one in report.cells])}."
    number = min(len(cells), _MOST_CELLS)
    while number and _size(cells_table(cells[:number])) > left:
        number //= 2
    cut = (
        f" The {number} worst of the {len(cells)} cells that aren't high are shown here."
        if number < len(cells)
        else ""
    )
    return [cells_table(cells[:number]), said + cut] if report.cells else []


def _size(text: str) -> int:
    return len(text.encode())


def github_annotations(report: Report) -> str:
    """Return a workflow command for each finding, the worst first, up to the limit of each level.

    The last annotation of a level says how many more there are. Findings known to the baseline have no annotation.
    """
    against = report.baseline
    findings = [f for f in report.findings if against is None or against.state(f) is not FindingState.KNOWN]
    lines = []
    for command in dict.fromkeys(_COMMANDS.values()):
        own = [finding for finding in findings if _COMMANDS[finding.severity] == command]
        shown = own if len(own) <= MOST_ANNOTATIONS else own[: MOST_ANNOTATIONS - 1]
        lines += [_annotation(command, finding, report) for finding in shown]
        if len(shown) < len(own):
            more = f"{len(own) - len(shown)} more of {len(own)} findings of this level are in the job's summary."
            lines.append(f"::{command} title=hwcompat::{_data(more)}")
    return "".join(f"{line}\n" for line in lines)


def _annotation(command: str, finding: Finding, report: Report) -> str:
    place = place_of(finding, report.suites)
    title = f"{finding.error_type.replace('_', ' ')} on {finding.hardware_type}"
    values = {"file": place.path, "line": str(place.line)} if place.is_file else {}
    parameters = ",".join(  # colons and commas end a parameter too
        f"{name}={_data(text).replace(':', '%3A').replace(',', '%2C')}"
        for name, text in {**values, "title": title}.items()
    )
    advice = [f"What to do: {text}" for text in finding.recommendations[:1]]
    quoted = "\n".join(filter(None, [finding.message, finding.where, *advice]))
    return f"::{command} {parameters}::{_data(quoted)}"


def _data(text: str) -> str:
    """Return text as the value of a workflow command, on one line, which the runner decodes."""
    shown = plain_paragraphs(text, longest=_LONGEST_MESSAGE)
    return shown.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


FORMAT = Format(suffix="github.md", render=github_report)
