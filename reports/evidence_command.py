"""`--merge` and `--compact`: what is done to a folder of evidence before it is reported on."""

from __future__ import annotations

from pathlib import Path

from hardware.evidence.compacted import compact
from hardware.evidence.merge import merge_evidence
from hardware.front_door import note


def merge_folder(source: Path, folder: Path) -> None:
    """Take the evidence of another folder in, and say what became of each file."""
    for one in merge_evidence(source, folder):
        cut = "; its last line was cut off and is left out" if one.cut else ""
        note(f"{one.name}: {one.state}, {one.lines} line(s){cut}")


def compact_folder(folder: Path) -> None:
    """Put the finished files into Parquet, and say which are left as they are."""
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
