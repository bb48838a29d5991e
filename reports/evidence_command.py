"""`hwcompat evidence merge`, `compact` and `publish`: change a folder of evidence before it is reported on."""

from __future__ import annotations

from pathlib import Path

from hwcompat.hardware.command_line import note
from hwcompat.hardware.evidence.address import Address
from hwcompat.hardware.evidence.bucket import publish
from hwcompat.hardware.evidence.compacted import compact
from hwcompat.hardware.evidence.evidence_location import fetch_remote
from hwcompat.hardware.evidence.merge import merge_evidence


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
