"""Sees to it that every planned check of a suite has a true line: what a child left open, its parent writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..evidence.error_types import current_name
from ..evidence.record import CheckLine, Outcome, Stage
from ..evidence.store import lines_by_cell, read_file, read_run
from ..evidence.writer import EvidenceWriter
from . import full_disk
from .device_state import DeviceState, Probed
from .lines import line_for
from .suite_file import SuiteFile
from .watch import Ending


def account_for(
    suite: SuiteFile,
    pid: int,
    ending: Ending,
    device: Probed,
    writer: EvidenceWriter,
    *,
    selected: bool,
) -> list[CheckLine]:
    """Write what the child `pid` left open of a suite, and return all its lines.

    `device` is what became of the device where the suite broke down; `selected` where arguments for pytest may have
    left checks out.
    """
    path = writer.folder / f"{writer.run_id}-{pid}.jsonl"
    lines = [one for one in read_file(path)[0] if isinstance(one, CheckLine) and one.cell_id == suite.cell.id]
    if ending.outcome is Outcome.NOT_RUN:
        return [*lines, *close(suite, lines, writer, full_disk.ERROR_TYPE, ending.message)]
    if ending.outcome is not None and suite.checks:
        lines = [*lines, _victim(suite, lines, ending, device, writer)]
    if ending.outcome is not None:
        error_type, reason = "not_reached", f"{ending.message} before it"
    elif selected and ending.pytest_ran:
        error_type, reason = "deselected", "the arguments for pytest left it out"
    else:
        error_type, reason = "not_reached", f"pytest did not run it: {ending.log[-300:]}"
    return [*lines, *close(suite, lines, writer, error_type, reason)]


def _victim(
    suite: SuiteFile, lines: Sequence[CheckLine], ending: Ending, device: Probed, writer: EvidenceWriter
) -> CheckLine:
    """Write the line of the check that a child was at when it broke down.

    Where every check has its line already, the last one is said to have ended badly as well.
    """
    done = {line.check_name for line in lines}
    left = [check for check in suite.checks if check not in done]
    victim = ending.running if ending.running in left or not left else left[0]
    outcome = ending.outcome or Outcome.CRASHED
    message = f"{ending.message}; {device.reason}" if device.reason else ending.message
    line = line_for(
        suite,
        writer.run_id,
        victim or suite.checks[-1],
        outcome,
        stage=Stage.RUN,
        error_type=current_name(str(outcome)),
        error_message=message,
        traceback=ending.log,
        actual_target=None if device.state is DeviceState.ABSENT else str(suite.cell.target),
    )
    writer.write(line)
    return line


def close(
    suite: SuiteFile, lines: Sequence[CheckLine], writer: EvidenceWriter, error_type: str, reason: str
) -> list[CheckLine]:
    """Write `not_run` for each planned check that has no line among `lines`; returns what was written."""
    done = {line.check_name for line in lines}
    written = [
        line_for(suite, writer.run_id, check, Outcome.NOT_RUN, error_type=error_type, error_message=reason)
        for check in suite.checks
        if check not in done
    ]
    for line in written:
        writer.write(line)
    return written


def settle(writer: EvidenceWriter, suites: Sequence[SuiteFile], reason: str) -> Counter[str]:
    """Outcomes of all checks of this run; planned ones that have no line yet are closed with the reason."""
    written = read_run(writer.folder, writer.run_id)
    lines = [*written.checks, *written.other_checks]  # under a changed condition they are no measurement, and written
    by_cell = lines_by_cell(lines)
    error_type = "not_reached" if reason == "finished" else "interrupted"
    for suite in suites:
        lines += close(suite, by_cell.get(suite.cell.id, ()), writer, error_type, f"the run was {reason}")
    return Counter(line.outcome for line in lines)
