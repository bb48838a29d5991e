"""`python -m benchmarks.mutants.forgeries`: check that verdicts don't accept tampered evidence."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from generators.compatibility.judge import judge
from generators.compatibility.verdict import Basis, Level, Verdict
from hardware.command_line import run_command_line
from hardware.detection import detect
from hardware.evidence.latest import read_latest
from reports.reason_text import texts

from .operators import FORGERIES
from .victims import Files, Victim, copied, victims, without_seals, written

_WORKS = (Level.HIGH, Level.MEDIUM)


@click.command()
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write one line of JSON for each here.")
def main(out: Path | None) -> int:
    """Change honest evidence of failing cells in every way, and judge it.

    Simple changes must also be detected in folders without checksums, as earlier versions wrote them.
    Exit code 1 if a change is accepted, or if an honest folder has another verdict than expected.
    """
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="hwcompat-forgeries-") as name:
        found = victims(Path(name))
        for victim in found:
            honest = _verdict(victim.files, victim, Path(name))
            results.append(_row("nothing", victim, honest, "false alarm" if _is_green(honest) else "clean"))
            for forgery in FORGERIES.values():
                files = copied(victim.files)
                if victim.state in forgery.states and forgery.apply(files, victim):
                    verdict = _verdict(files, victim, Path(name))
                    if not forgery.needs_skill and not _is_green(verdict):
                        verdict = _verdict(without_seals(files), victim, Path(name))
                    status = "survived" if _is_green(verdict) else "killed"
                    results.append(_row(forgery.name, victim, verdict, status))
    for row in results:
        if row["status"] in ("survived", "false alarm"):
            click.echo(f"{row['status']}: {row['operator']} of {row['state']} {row['cell_id']}: {row['reasons'][:1]}")
    forged = [row for row in results if row["operator"] != "nothing"]
    killed = sum(row["status"] == "killed" for row in forged)
    click.echo(f"{killed} of {len(forged)} forgeries aren't believed")
    if out is not None:
        out.write_text("".join(json.dumps(row) + "\n" for row in results), encoding="utf-8")
    return 0 if all(row["status"] in ("killed", "clean") for row in results) else 1


def _verdict(files: Files, victim: Victim, folder: Path) -> Verdict | None:
    with tempfile.TemporaryDirectory(dir=folder) as own:
        for name, lines in files.items():
            (Path(own) / name).write_bytes(written(lines))
        found = judge(read_latest(Path(own)), detect())
    return next((one for one in found if one.cell == victim.cell_id), None)


def _is_green(verdict: Verdict | None) -> bool:
    return verdict is not None and verdict.level in _WORKS and verdict.basis is Basis.MEASURED


def _row(operator: str, victim: Victim, verdict: Verdict | None, status: str) -> dict[str, Any]:
    return {
        "operator": operator,
        "state": victim.state,
        "cell_id": victim.cell_id,
        "status": status,
        "level": str(verdict.level) if verdict else None,
        "basis": str(verdict.basis) if verdict else None,
        "reasons": list(texts(verdict.reasons)) if verdict else [],
    }


if __name__ == "__main__":
    sys.exit(run_command_line(main, sys.argv[1:], program="python -m benchmarks.mutants.forgeries"))
