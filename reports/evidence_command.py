"""`hwcompat evidence merge`, `compact`, `publish` and `clear-flaky`: change a folder of evidence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from hwcompat.generators.compatibility.expiry import flaky_cells
from hwcompat.generators.options import Options
from hwcompat.generators.project.project_reader import read_project
from hwcompat.hardware.cell import parsed
from hwcompat.hardware.command_line import note
from hwcompat.hardware.command_names import own_command
from hwcompat.hardware.errors import UsageError, did_you_mean, echo
from hwcompat.hardware.evidence.address import Address
from hwcompat.hardware.evidence.bucket import publish
from hwcompat.hardware.evidence.compacted import compact
from hwcompat.hardware.evidence.evidence_location import fetch_remote
from hwcompat.hardware.evidence.latest import read_latest
from hwcompat.hardware.evidence.merge import merge_evidence
from hwcompat.hardware.evidence.record import Origin, RunLine
from hwcompat.hardware.evidence.writer import EvidenceWriter, machine_label, new_run_id, now
from hwcompat.hardware.plain_text import one_line


def merge_folder(source: Path | Address, folder: Path) -> None:
    """Merge the evidence of another folder or of object storage, and report the result for each file."""
    place = fetch_remote(source) if isinstance(source, Address) else source
    for one in merge_evidence(place, folder):
        cut = "; its last line was cut off and is left out" if one.cut else ""
        note(f"{one.name}: {one.state}, {one.lines} line(s){cut}")


def compact_folder(folder: Path) -> None:
    """Convert the finished files to Parquet, and report those that are left unchanged."""
    done = compact(folder)
    if not done.files and not done.joined:
        note(f"nothing in {folder} can be compacted")
    if done.files:
        months = ", ".join(sorted({path.parent.name for path in done.paths}))
        note(f"{folder}: {done.files} file(s), {done.lines} line(s), now in {len(done.paths)} of Parquet: {months}")
    if done.joined:
        note(f"{done.joined} small file(s) of Parquet were joined with others")
    for name, why in done.left:
        note(f"{name} is left as it is: {why}")


def publish_folder(folder: Path, address: Address) -> None:
    """Publish the evidence of finished runs to object storage, and report the result for each file."""
    done = publish(folder, address)
    for one in done:
        if one.state != "known":
            note(f"{one.name}: {one.state}{f', {one.why}' if one.why else ''}")
    known = sum(one.state == "known" for one in done)
    note(f"{address}: {sum(one.state in ('put', 'longer') for one in done)} file(s) put, {known} known there already")


def clear_flaky(asked: Options, names: Sequence[str], reason: str) -> int:
    """End the quarantine of flaky cells from now on, by a line in the evidence. Return the exit code.

    Raises `UsageError` for an empty reason, a cell without evidence, or one that isn't flaky.
    """
    reason = one_line(reason, longest=500)
    if not reason:
        raise UsageError("--reason is empty", fix="Say what made the cells flaky, and what fixed it.")
    latest = read_latest(asked.evidence)
    limits = read_project(asked.config).limits_of(latest.cells) if asked.config else {}
    cells = [cell.id if (cell := parsed(name)) else name for name in names]
    if unknown := [cell for cell in cells if cell not in latest.cells]:
        fix = did_you_mean(unknown[0], latest.cells) or "List its cells: hwcompat matrix --by model"
        raise UsageError(f"{asked.evidence} has no results of {echo(unknown[0])}", fix=fix)
    flaky = flaky_cells(latest, limits)
    if steady := [cell for cell in cells if cell not in flaky]:
        why = "none of its checks passed and failed without a recorded difference since its quarantine last ended"
        raise UsageError(f"{echo(steady[0])} isn't flaky", why=why)
    writer = EvidenceWriter(asked.evidence, new_run_id())
    run = RunLine(
        run_id=writer.run_id,
        started_at=now(),
        command=own_command(),
        machine=machine_label(),
        inventory={},
        versions={},
        plan=(),
        isolation="nothing was run",
        origin=Origin.CHANGED,
        cleared=dict.fromkeys(cells, reason),
    )
    writer.write(run)
    writer.end("finished", {})
    writer.close()
    click.echo("\n".join(f"{cell}: no longer quarantined ({reason})" for cell in run.cleared))
    return 0
