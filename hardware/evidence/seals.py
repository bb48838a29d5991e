"""What a finished run wrote is sealed: its end names each file with a digest, so that what was changed later shows.

A seal is no signature: whoever can write the folder can make a new one. It tells that lines were edited, added or
taken out by hand, and that a file was cut off or mixed up on its way.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..untrusted import is_plain_file, opened

_LONGEST_END = 16 * 1024 * 1024
_PIECE = 1 << 20
_LARGEST = 1 << 32
"""In bytes. A million lines are a quarter of it; a file with holes may say that it has any size."""
_MOST_BRACKETS = 8
"""An end has three: the line, its counts and its files."""
CHANGED = "it was changed after its run had ended"
"""Why the lines of a file don't count whose digest isn't the one that its run's end names."""


def digests(folder: Path, run_ids: Iterable[str]) -> dict[str, str]:
    """The SHA-256 of each file of some runs, in hexadecimal, by name: what an end that is written next seals."""
    paths = (path for run_id in run_ids for path in folder.glob(f"{run_id}-*.jsonl"))
    return {path.name: _digest(path) for path in sorted(paths)}


def altered_files(paths: Sequence[Path]) -> dict[Path, str]:
    """Of some files of one folder, those that aren't what the end of a run sealed, each with the reason.

    An end stands last in its file and seals what is before it there. Files that no end names can't be told: their
    run was killed, goes on, or ended before there were seals.
    """
    by_name = {path.name: path for path in paths if is_plain_file(path)}
    found: dict[Path, str] = {}
    for path in by_name.values():
        start, end = end_of(path)
        for name, digest in _sealed(end).items():
            other = by_name.get(name)
            if other is not None and _digest(other, start if other == path else None) != digest:
                found[other] = CHANGED
    return found


def altered_texts(texts: Mapping[str, bytes]) -> list[str]:
    """The same of files by name whose bytes are at hand; the names of those that aren't what was sealed."""
    found = []
    for name, data in texts.items():
        start = data[:-1].rfind(b"\n") + 1
        for other, digest in _sealed(_as_end(data[start:])).items():
            sealed = texts.get(other, b"")[: start if other == name else None]
            if other in texts and hashlib.sha256(sealed).hexdigest() != digest:
                found.append(other)
    return found


def _sealed(end: Mapping[str, Any]) -> dict[str, str]:
    files = end.get("files")
    return {str(name): str(digest) for name, digest in files.items()} if isinstance(files, dict) else {}


def end_of(path: Path) -> tuple[int, Mapping[str, Any]]:
    """Where the last line of a file starts, in bytes, and what it says if it is a run's end; else nothing."""
    with opened(path) as file:
        size = file.seek(0, 2)
        tail, start = b"", size
        while start and b"\n" not in tail[:-1] and size - start < _LONGEST_END:
            start = max(0, start - _PIECE)
            file.seek(start)
            tail = file.read(size - start)
    begin = tail[:-1].rfind(b"\n") + 1
    return start + begin, _as_end(tail[begin:])


def _as_end(last: bytes) -> Mapping[str, Any]:
    """What a line says if it is a run's end; else nothing."""
    if b'"end"' not in last or last.count(b"{") + last.count(b"[") > _MOST_BRACKETS:
        return {}
    try:
        end = json.loads(last)
    except (ValueError, RecursionError):
        return {}
    return end if isinstance(end, dict) and end.get("kind") == "end" else {}


def _digest(path: Path, length: int | None = None) -> str:
    """The SHA-256 of a file, or of so many bytes at its beginning."""
    found = hashlib.sha256()
    try:
        with opened(path, longest=_LARGEST) as file:
            left = length
            while data := file.read(_PIECE if left is None else min(_PIECE, left)):
                found.update(data)
                left = None if left is None else left - len(data)
    except OSError:
        return ""  # no file that a run wrote
    return found.hexdigest()
