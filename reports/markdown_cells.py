"""The measured part of a Markdown report: a table of cells, or for single runs each cell with all its checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hardware.evidence.record import CheckLine, RunLine
from hardware.evidence.versions import library_versions

from .cells import CellReport
from .text import code, markdown, markdown_table
from .wording import FAULT_WORDS, explained, texts

_HEADINGS = ("cell", "verdict", "weights", "asked for", "ran on", "device", "checks", "because")
_CHECK_HEADINGS = ("check", "outcome", "asked for", "ran on", "error / tolerance", "time")


def cells_table(cells: Sequence[CellReport]) -> str:
    """One row for each cell; empty where there are none."""
    if not cells:
        return ""
    rows = [
        [
            markdown(cell.id),
            f"{cell.verdict.level} ({cell.basis})",
            *(_or_dash(text) for text in (cell.subjects, cell.requested, cell.actual, cell.device, cell.outcomes)),
            markdown("; ".join(explained(cell.verdict)[0]), longest=160) or "-",
        ]
        for cell in cells
    ]
    return "## Cells\n\n" + markdown_table(_HEADINGS, rows)


def cell_section(cell: CellReport) -> str:
    """A cell with its verdict, what that rests on, and the table of its checks."""
    return "\n\n".join([f"## {markdown(cell.id)}", "\n".join(_facts(cell)), _checks(cell.lines)])


def _facts(cell: CellReport) -> Iterator[str]:
    yield f"- verdict: **{cell.verdict.level}** ({cell.basis})"
    if cell.verdict.fault:
        yield f"- fault: {FAULT_WORDS[cell.verdict.fault]}"
    reasons, conditions = explained(cell.verdict)
    for reason in reasons:
        yield f"- because: {markdown(reason)}"
    for condition in conditions:
        yield f"- condition: {markdown(condition)}"
    yield f"- predicted before the run: {_or_dash(cell.prediction)}"
    yield f"- weights: {_or_dash(cell.subjects)}"
    device = f" ({markdown(cell.device)})" if cell.device else ""
    yield f"- asked for: {_or_dash(cell.requested)}; ran on: {_or_dash(cell.actual)}{device}"
    yield f"- from run: {_or_dash(', '.join(dict.fromkeys(line.run_id for line in cell.lines)))}"
    said = " ".join(texts(cell.verdict.reasons))
    for text in dict.fromkeys(line.substitution_reason for line in cell.lines if line.substitution_reason):
        if text not in said:
            yield f"- substituted: {markdown(text)}"


def _checks(lines: Sequence[CheckLine]) -> str:
    if not lines:
        return "No check left a line."
    return markdown_table(_CHECK_HEADINGS, [_row(line) for line in lines])


def _row(line: CheckLine) -> list[str]:
    error = "-"
    if line.max_rel_error is not None:
        allowed = "-" if line.tolerance is None else f"{line.tolerance:.0e}"
        error = f"{line.max_rel_error:.1e} / {allowed}"
    return [
        markdown(line.check_name),
        str(line.outcome),
        markdown(line.requested_target),
        _or_dash(line.actual_target),
        error,
        f"{line.duration_s:.2f} s",
    ]


def run_section(run: RunLine) -> str:
    """How a run was made: command, machine and versions."""
    cpu = run.inventory.get("cpu")
    model = cpu.get("model") if isinstance(cpu, dict) else None
    host = run.inventory.get("host")
    system = host.get("system") if isinstance(host, dict) else None
    machine = ", ".join(str(text) for text in (run.machine, system, model) if text)
    versions = ", ".join(f"{name} {version}" for name, version in sorted(library_versions(run.versions).items()))
    facts = [
        f"- run: {markdown(run.run_id)}, started {markdown(run.started_at)} UTC",
        f"- command: {code(run.command) if run.command else '-'}",
        f"- machine: {_or_dash(machine)}",
        f"- versions: {_or_dash(versions)}",
        f"- isolation: {_or_dash(run.isolation)}",
        f"- suites at a time: {run.jobs}",
        *([f"- goes on with: {markdown(', '.join(run.resumes))}"] if run.resumes else []),
    ]
    return "## Run\n\n" + "\n".join(facts)


def _or_dash(text: str | None) -> str:
    return markdown(text) if text else "-"
