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
    """Put the finished files into one, and say which are left as they are."""
    done = compact(folder)
    if done.path is None:
        note(f"nothing in {folder} can be compacted")
    else:
        note(f"{done.path}: {done.files} file(s), {done.lines} line(s)")
    for name, why in done.left:
        note(f"{name} is left as it is: {why}")
