"""Merge the evidence of nodes, run by run, and find the results of an earlier start of the same command."""

from __future__ import annotations

import re
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hwcompat.hardware.errors import BrokenInput
from hwcompat.hardware.evidence.merge import merge_evidence
from hwcompat.hardware.evidence.record import CheckLine, RunLine
from hwcompat.hardware.evidence.store import Evidence, lines_by_cell, read_folder
from hwcompat.hardware.redaction import redact
from hwcompat.hardware.safe_read import is_folder
from hwcompat.hardware.testing.resume import why_again
from hwcompat.hardware.testing.suite_file import SuiteFile

_OF_ONE_START = re.compile(r" --(resume|run|address[= ][^ ]+)(?= |$)|^(hwcompat run|python run_test_generation\.py)")
"""Words of a command that differ between starts, or between the earlier script and the program."""


def take_in(
    answer: Mapping[str, Any],
    suites: Sequence[SuiteFile],
    predictions: Mapping[str, Mapping[str, Any]],
    evidence: Path,
) -> tuple[str, dict[str, tuple[CheckLine, ...]]]:
    """Merge the evidence in a node's answer into the folder, with all checks of `hwcompat evidence merge`; return
    the run's id, and its lines by cell.

    Raises `BrokenInput` unless it is one finished run of the `suites` that were sent, with the `predictions` stored
    before the start.
    """
    if "error" in answer:
        raise BrokenInput("the node failed", why=str(answer["error"]))
    with tempfile.TemporaryDirectory(prefix="hwcompat-fleet-") as folder:
        for name, data in dict(answer["files"]).items():
            (Path(folder) / Path(str(name)).name).write_bytes(bytes(data))
        found = read_folder(Path(folder))
        run_id, lines = _checked(found, suites, predictions, str(answer["node"]))
        merge_evidence(Path(folder), evidence)
    return run_id, lines


def longest_first(keys: Sequence[Sequence[str]], evidence: Path) -> list[int]:
    """Return the order in which tasks are submitted to Ray: by the duration of the checks in their cells' last runs,
    the longest first. A task with cells that never ran counts as the longest, since a long task at the end delays the
    whole run."""
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    for line in read_folder(evidence).checks if is_folder(evidence) else ():
        seconds[line.cell_id, line.run_id] += line.duration_s
    newest = {cell: took for (cell, _), took in sorted(seconds.items())}
    seen = [sum(newest.get(cell, float("inf")) for cell in key) for key in keys]
    return sorted(range(len(keys)), key=lambda place: -seen[place])


def _checked(
    found: Evidence, suites: Sequence[SuiteFile], predictions: Mapping[str, Mapping[str, Any]], node: str
) -> tuple[str, dict[str, tuple[CheckLine, ...]]]:
    if len(found.runs) != 1 or len(found.ends) != 1 or found.broken or found.other_checks:
        raise BrokenInput("the node's evidence is refused", why="it isn't one finished run")
    (run,) = found.runs
    planned = {one.cell_id: one for one in run.plan}
    if set(planned) != {one.cell.id for one in suites} or run.node != node:
        raise BrokenInput("the node's evidence is refused", why="it belongs to other cells or to another node")
    lines = {cell: tuple(own) for cell, own in lines_by_cell(found.checks).items()}
    for suite in suites:
        cell = suite.cell.id
        if planned[cell].suite_hash != suite.suite_hash or planned[cell].checks != suite.checks:
            raise BrokenInput(
                f"the node's evidence of {cell} is refused", why="its suite isn't the one that was sent"
            )
        if planned[cell].verdict != predictions[cell]:
            raise BrokenInput(f"the node's evidence of {cell} is refused", why="its prediction isn't the stored one")
        if {line.check_name for line in lines.get(cell, ())} != set(suite.checks):
            raise BrokenInput(f"the node's evidence of {cell} is refused", why="not every check has a line")
    return run.run_id, lines


def done_before(
    evidence: Path,
    suites: Sequence[SuiteFile],
    command: str,
    versions_there: Mapping[str, Mapping[str, str]],
    versions_here: Mapping[str, str],
) -> dict[str, str]:
    """Return by cell the newest complete run of the same command (except for the address of the cluster) that still
    holds. `versions_there` are the current ones by label of the machine; for other machines `versions_here` count."""
    if not is_folder(evidence):
        return {}
    found = read_folder(evidence)
    lines = lines_by_cell(found.checks)
    wanted = _OF_ONE_START.sub("", redact(command))
    runs = [run for run in found.runs if run.node and _OF_ONE_START.sub("", run.command) == wanted]
    newest: dict[str, RunLine] = {}
    for run in sorted(runs, key=lambda one: (one.started_at, one.run_id)):
        newest |= {one.cell_id: run for one in run.plan}
    done = {}
    for suite in suites:
        if (last := newest.get(suite.cell.id)) is None:
            continue
        own = [line for line in lines.get(suite.cell.id, ()) if line.run_id == last.run_id]
        if not why_again(suite, last, own, versions_there.get(last.machine, versions_here), last.machine):
            done[suite.cell.id] = last.run_id
    return done
