"""A whole run of one cell on this machine, as files of evidence."""

from __future__ import annotations

from pathlib import Path

from evidence_lines import MEASURED, check_line, planned_cell, run_line, write_lines

from generators.compatibility.required_checks import required_checks
from generators.compatibility.verdict import Verdict
from hardware.cell import Cell
from hardware.detection import detect
from hardware.evidence.record import EndLine, Outcome
from hardware.evidence.versions import versions_of


def write_run(
    folder: Path,
    cell: str,
    *broken: str,
    run_id: str = "r1",
    versions: dict[str, str] | None = None,
    subject: str = "tiny",
    of_all: dict[str, object] | None = None,
    predicted: Verdict | None = None,
    **of_broken: object,
) -> None:
    """Write a run in which every required check passed except the `broken` ones: they failed, or did what `of_broken`
    says. All lines have the values `of_all`; `versions` replace those of this machine. `predicted` is stored with the
    plan."""
    parsed = Cell.parse(cell)
    checks = required_checks(parsed)
    verdict = predicted and predicted.to_dict()
    run = run_line(
        planned_cell(cell, checks, suite_hash=run_id, subject=subject, verdict=verdict),
        run_id=run_id,
        started_at=f"2026-01-01T00:00:00-{run_id}",
        machine="a-machine",
        versions={**versions_of(detect()), **(versions or {})},
    )
    lines = []
    for check in checks:
        values = {
            **MEASURED,
            "run_id": run_id,
            "cell_id": cell,
            "subject": subject,
            "native_ops": MEASURED["native_ops"] if check == "runs_natively" else {},
            "suite_hash": run_id,
            "started_at": f"2026-01-01T00:00:01-{run_id}",
        }
        failed = {"outcome": Outcome.FAILED, **of_broken} if check in broken else {}
        outcome = failed.pop("outcome", Outcome.PASSED)
        changes = {**values, **failed, **(of_all or {})}
        lines.append(check_line(check, changes.pop("outcome", outcome), **changes))
    end = EndLine(run_id=run_id, ended_at="2026-01-01T00:00:02", reason="finished", counts={})
    write_lines(folder / f"{run_id}-1.jsonl", run, *lines, end)
