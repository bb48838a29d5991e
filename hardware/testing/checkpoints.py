"""Finds real weights by name and hash, so that a suite holds no path and never runs on other weights."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from ..cell import Cell
from ..errors import BrokenInput, echo

CHECKPOINTS_VARIABLE = "HWCOMPAT_CHECKPOINTS"
"""Folders of checkpoints, separated as in PATH."""


def weights_hash(folder: Path) -> str:
    """SHA-256 over the bytes of the safetensors files of a folder, in the order of their names."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def checkpoint_folder(cell: str, revision: str) -> Path:
    """The folder, among those that `HWCOMPAT_CHECKPOINTS` names, whose weights have the hash `revision`.

    Raises `BrokenInput` where there is none.
    """
    named = [Path(text) for text in os.environ.get(CHECKPOINTS_VARIABLE, "").split(os.pathsep) if text]
    for folder in named:
        if folder.is_dir() and weights_hash(folder) == revision:
            return folder
    looked = f"{len(named)} folder(s) of {CHECKPOINTS_VARIABLE} hold other weights" if named else "none was named"
    raise BrokenInput(
        f"the checkpoint {echo(Cell.parse(cell).model)} wasn't found",
        why=looked,
        fix=f"Name its folder in {CHECKPOINTS_VARIABLE}, or generate the suite again if its weights have changed.",
    )
