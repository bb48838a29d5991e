"""Seals of finished runs: the end of a run names each of its files with a digest, so that changes show.

A seal isn't a signature: anyone who can write the folder can make a new one. It detects lines that were edited, added
or removed by hand, and files that were cut off, mixed up or lost.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..safe_read import is_plain_file, opened

_LONGEST_END = 16 * 1024 * 1024
_PIECE = 1 << 20
_LARGEST = 1 << 32
"""In bytes. A million lines have a quarter of it; a sparse file may claim any size."""
_MOST_BRACKETS = 8
"""An end has three: the line, its counts and its files."""
_EMPTY = hashlib.sha256().hexdigest()

CHANGED = "it was changed after its run ended"
"""The reason if a file's digest isn't the one in the end of its run."""
ADDED = "it was added after its run ended"
"""The reason if the end of a run doesn't name the file."""
MISSING = "it is listed in the end line of its run, but missing"

_NAME = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{6}-[0-9]+\.jsonl")


def is_evidence_name(name: str) -> bool:
    """Whether a file has the name of an evidence file."""
    return _NAME.fullmatch(name) is not None


def run_of(name: str) -> str:
    """Return the id of the run that a file is named after."""
    return name.rpartition("-")[0]


def _moment_of(run_id: str) -> str:
    """Return when a run started according to its id, or an empty text."""
    try:
        return datetime.datetime.strptime(run_id[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.UTC).isoformat()
    except ValueError:
        return ""


@dataclass(frozen=True, kw_only=True)
class Seal:
    """The end of a run as a seal: SHA-256 of its files by name. The end is in `file` at the byte offset `start` (None
    if compacted). `resumes` and `began` are from the run's line, as far as it was read."""

    run_id: str
    file: str
    ended_at: str
    files: Mapping[str, str]
    start: int | None = None
    resumes: tuple[str, ...] = ()
    began: str = ""

    @classmethod
    def of(cls, file: str, end: Mapping[str, Any], start: int | None = None) -> Seal | None:
        """Return the seal in an end, or None if it seals nothing or isn't in a file of its own run."""
        files = end.get("files")
        if not isinstance(files, dict) or not files or end.get("run_id") != run_of(file):
            return None
        names = {str(name): str(digest) for name, digest in files.items()}
        ended_at = str(end.get("ended_at", ""))
        return cls(run_id=run_of(file), file=file, ended_at=ended_at, files=names, start=start)

    def until(self, run_id: str) -> str:
        """Return a moment no earlier than when a run's files were complete; a resumed run was cut off before. An end
        doesn't seal its own moment, so that the run's id is used as well."""
        moment = self.ended_at if run_id == self.run_id else self.began or self.ended_at
        return max(moment, _moment_of(run_id))


@dataclass(frozen=True, kw_only=True)
class Examined:
    """The result of `examine`: files that were changed or are missing, each with its seal, and files that were
    `added` to a run after its end."""

    changed: Mapping[str, Seal] = field(default_factory=lambda: MappingProxyType({}))
    missing: Mapping[str, Seal] = field(default_factory=lambda: MappingProxyType({}))
    added: frozenset[str] = frozenset()

    @property
    def refused(self) -> dict[str, str]:
        """The files of which no line counts, by name, with the reason."""
        return dict.fromkeys(self.added, ADDED) | dict.fromkeys(self.changed, CHANGED)

    @property
    def reasons(self) -> dict[str, str]:
        """All files with a problem, by name, with the reason."""
        return self.refused | dict.fromkeys(self.missing, MISSING)

    @property
    def runs(self) -> frozenset[str]:
        """The runs of those files."""
        return frozenset(run_of(name) for name in self.reasons)


def digests(folder: Path, run_ids: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of each file of some runs by name, in hexadecimal, for the end that seals them."""
    paths = (path for run_id in run_ids for path in folder.glob(f"{run_id}-*.jsonl"))
    return {path.name: _digest(path) for path in sorted(paths)}


def examine(
    files: Mapping[str, Path | bytes], *, packed: Collection[str] = (), packed_seals: Iterable[Seal] = ()
) -> Examined:
    """Check files of one folder, by name, against the ends of their runs.

    An end is the last line of its file and seals the lines before it. It names all files of its own run and of those
    that the run resumes. Other files aren't sealed: their run was killed, is running, or is older than seals.
    `packed` are the names of compacted files, and `packed_seals` the seals in them.
    """
    files = {name: file for name, file in files.items() if isinstance(file, bytes) or is_plain_file(file)}
    own = [seal for name, file in files.items() if (seal := _seal_in(name, file))]
    seals = [_allowed(seal, files) for seal in (*own, *packed_seals)]
    about: dict[str, list[Seal]] = {}
    for seal in seals:
        for run_id in {run_of(name) for name in seal.files} | {seal.run_id}:
            about.setdefault(run_id, []).append(seal)
    ends = {seal.file for seal in own}
    alone = {seal.file for seal in own if seal.start == 0}  # added to a run that was killed before its end
    changed: dict[str, Seal] = {}
    added = set()
    for name, file in files.items():
        whole = ""
        for seal in about.get(run_of(name), ()):
            if name not in seal.files:
                if name in ends and seal.run_id == run_of(name):  # a run has one end: of two, one is forged
                    changed |= {name: seal} if seal.file != name else {}
                elif name not in alone:
                    added.add(name)
                continue
            if seal.file == name:
                digest = _digest(file, seal.start)
            else:
                whole = digest = whole or _digest(file)
            if digest != seal.files[name]:
                changed[name] = seal
    missing = {
        name: seal
        for seal in seals
        for name, digest in seal.files.items()
        if name not in files and name not in packed and digest != _EMPTY
    }
    return Examined(changed=changed, missing=missing, added=frozenset(added - changed.keys()))


def _seal_in(name: str, file: Path | bytes) -> Seal | None:
    start, end = end_of(file)
    return Seal.of(name, end, start)


def _allowed(seal: Seal, files: Mapping[str, Path | bytes]) -> Seal:
    """Return the seal without files of runs that its own run doesn't resume."""
    if all(run_of(name) == seal.run_id for name in seal.files):
        return seal
    if not seal.began:
        own = (file for name, file in files.items() if run_of(name) == seal.run_id)
        lines = (line for file in own if (line := _first_line(file)).get("run_id") == seal.run_id)
        run = next((line for line in lines if line.get("kind") == "run"), {})
        resumes = run.get("resumes", ())
        resumes = tuple(map(str, resumes)) if isinstance(resumes, list | tuple) else ()
        seal = replace(seal, resumes=resumes, began=str(run.get("started_at", "")))
    runs = {seal.run_id, *seal.resumes}
    return replace(seal, files={name: digest for name, digest in seal.files.items() if run_of(name) in runs})


def _first_line(file: Path | bytes) -> Mapping[str, Any]:
    """Return the object in the first line of a file, or an empty mapping."""
    if isinstance(file, bytes):
        data = file.partition(b"\n")[0]
    else:
        with opened(file) as read:
            data = read.readline(_LONGEST_END)
    try:
        line = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return line if isinstance(line, dict) else {}


def end_of(file: Path | bytes) -> tuple[int, Mapping[str, Any]]:
    """Return the byte offset of the last line of a file, and its content if it is the end of a run, else an empty
    mapping."""
    if isinstance(file, bytes):
        start, tail = 0, file
    else:
        with opened(file) as read:
            size = read.seek(0, 2)
            tail, start = b"", size
            while start and b"\n" not in tail.rstrip() and size - start < _LONGEST_END:
                start = max(0, start - _PIECE)
                read.seek(start)
                tail = read.read(size - start)
    begin = tail.rstrip().rfind(b"\n") + 1
    return start + begin, as_end(tail[begin:])


def as_end(last: bytes) -> Mapping[str, Any]:
    """Return the content of a line if it is the end of a run, else an empty mapping."""
    if b'"end"' not in last or last.count(b"{") + last.count(b"[") > _MOST_BRACKETS:
        return {}
    try:
        end = json.loads(last)
    except (ValueError, RecursionError):
        return {}
    return end if isinstance(end, dict) and end.get("kind") == "end" else {}


def _digest(file: Path | bytes, length: int | None = None) -> str:
    """Return the SHA-256 of a file or of its first `length` bytes."""
    if isinstance(file, bytes):
        return hashlib.sha256(file[:length]).hexdigest()
    found = hashlib.sha256()
    try:
        with opened(file, longest=_LARGEST) as read:
            left = length
            while data := read.read(_PIECE if left is None else min(_PIECE, left)):
                found.update(data)
                left = None if left is None else left - len(data)
    except OSError:
        return ""  # no run wrote it
    return found.hexdigest()
