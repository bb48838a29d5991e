"""`--calibration`: how often stored predictions were right, and accepted failures that pass now."""

from __future__ import annotations

from datetime import date

import click

from generators.compatibility.calibration.scoring import score
from generators.options import Options
from generators.project.accepted import judge_accepted
from generators.project.finding import Kind, ProjectFinding
from generators.project.reading import read_project
from hardware.errors import NothingMatched, UsageError
from hardware.evidence.latest import read_latest
from hardware.evidence.record import CheckLine
from hardware.evidence.store import Evidence
from hardware.plain_text import json_text
from reports.wording import reason_text

from .calibration import Calibration, calibration_text


def report_calibration(asked: Options) -> int:
    """Print the report; returns the exit code. Raises `NothingMatched` where no prediction was ever settled."""
    if asked.format_ not in ("table", "text", "markdown", "json"):
        raise UsageError(f"a calibration has no form {asked.format_}", fix="Take table, markdown or json.")
    evidence = asked.read_evidence()
    found = Calibration(
        scores=score(evidence) if evidence else score(Evidence(runs=(), checks=(), ends=(), broken=())),
        passing=_passing(asked, evidence) if evidence else (),
    )
    if not found.scores.cells:
        raise NothingMatched(
            "no prediction can be scored",
            why=f"no run in {asked.evidence} settled a cell of which something was predicted",
            fix="For example: python run_test_generation.py --priority high --device cpu --run",
        )
    if asked.format_ == "json":
        click.echo(json_text(found.to_dict()))
    else:
        click.echo(calibration_text(found, asked.format_), nl=False)
    return 0


def _passing(asked: Options, evidence: Evidence) -> tuple[ProjectFinding, ...]:
    """The accepted failures of the project file that pass in the newest evidence."""
    if asked.config is None:
        return ()
    lines: dict[str, list[CheckLine]] = {}
    for line in read_latest(evidence).checks:
        lines.setdefault(line.cell_id, []).append(line)
    judged = judge_accepted(read_project(asked.config), lines, date.today(), {}, reason_text)
    return tuple(one for one in judged.findings if one.kind is Kind.PASSES_NOW)
