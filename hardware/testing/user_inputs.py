"""Inputs that a user gives for a graph file: `.npz` files, found again by the hash of their arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from ..compare import Array
from ..errors import BrokenInput, ModelMissing, echo
from ..safe_read import is_folder
from .checkpoints import CHECKPOINTS_VARIABLE, places_of
from .reference import digest_of

Arrays = Mapping[str, Array]


def read_inputs(path: Path) -> list[dict[str, Array]]:
    """Return the arrays by name of a `.npz` file, or of each one in a folder in the order of their names.

    Raises `BrokenInput` if there is none, or if one can't be read or holds objects.
    """
    files = sorted(path.glob("*.npz")) if is_folder(path) else [path]
    if not files:
        raise BrokenInput(f"{echo(path.name)} has no .npz file", fix="Write one with numpy.savez.")
    return [_read(file) for file in files]


def _read(file: Path) -> dict[str, Array]:
    try:
        with np.load(file, allow_pickle=False) as opened:
            return {name: opened[name] for name in opened.files}
    except (OSError, ValueError, BadZipFile, AttributeError) as error:
        raise BrokenInput(
            f"{echo(file.name)} can't be read as inputs",
            why=" ".join(str(error).split())[:200],
            fix="Write a .npz of arrays with numpy.savez.",
        ) from error


def inputs_hash(sets: Sequence[Arrays]) -> str:
    """Return the SHA-256 of all arrays, in their order."""
    return hashlib.sha256("".join(map(digest_of, sets)).encode()).hexdigest()


def given_inputs(digest: str, seed: int, *, suite: str = "", folder: str = "") -> dict[str, Array]:
    """Return the arrays number `seed` of those with this hash, from the first again after the last: of a `.npz` file,
    or of all in one of the folders `places_of`. Raises `ModelMissing` if there are none."""
    places = [place for place in places_of(suite, folder) if is_folder(place)]
    for sets in (found for place in places for found in _sets_in(place)):
        if inputs_hash(sets) == digest:
            return dict(sets[seed % len(sets)])
    raise ModelMissing(
        "the inputs of this suite weren't found",
        why=f"no .npz in {len(places)} folder(s) has the expected arrays",
        fix=f"Set {CHECKPOINTS_VARIABLE} to their folder, or generate the suite again if they changed.",
    )


def _sets_in(folder: Path) -> Iterator[list[dict[str, Array]]]:
    files = sorted(folder.glob("*.npz"))
    for path in ([folder] if len(files) > 1 else []) + files:
        try:
            yield read_inputs(path)
        except BrokenInput:  # another file in the folder
            continue
