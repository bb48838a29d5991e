"""What a finished run wrote is sealed: its end names each file with a digest, so that what was changed later shows.

A seal is no signature: whoever can write the folder can make a new one. It tells that lines were edited, added or
taken out by hand, and that a file was cut off, mixed up or lost on its way.
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
"""In bytes. A million lines are a quarter of it; a file with holes may say that it has any size."""
_MOST_BRACKETS = 8
"""An end has three: the line, its counts and its files."""
_EMPTY = hashlib.sha256().hexdigest()

CHANGED = "it was changed after its run had ended"
"""Why the lines of a file don't count whose digest isn't the one that its run's end names."""
ADDED = "it was added after its run had ended"
"""Why the lines of a file don't count that its run's end doesn't name."""
MISSING = "it is missing, and the end of its run names it"

_NAME = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{6}-[0-9]+\.jsonl")


def is_evidence_name(name: str) -> bool:
    """Whether files of evidence are called so."""
    return _NAME.fullmatch(name) is not None


def run_of(name: str) -> str:
    """The id of the run that a file is named after."""
    return name.rpartition("-")[0]


def _moment_of(run_id: str) -> str:
    """When a run started, as its id says; empty if it doesn't."""
    try:
        return datetime.datetime.strptime(run_id[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.UTC).isoformat()
    except ValueError:
        return ""


@dataclass(frozen=True, kw_only=True)
class Seal:
    """What a run's end says of files: their SHA-256 by name. The end is in `file`, after so many bytes (None if that
    file is compacted). `resumes` and `began` are what the run's line says, as far as it was asked for."""

    run_id: str
    file: str
    ended_at: str
    files: Mapping[str, str]
    start: int | None = None
    resumes: tuple[str, ...] = ()
    began: str = ""

    @classmethod
    def of(cls, file: str, end: Mapping[str, Any], start: int | None = None) -> Seal | None:
        """The seal in an end; None if it seals nothing, or if it isn't in a file of its own run."""
        files = end.get("files")
        if not isinstance(files, dict) or not files or end.get("run_id") != run_of(file):
            return None
        names = {str(name): str(digest) for name, digest in files.items()}
        ended_at = str(end.get("ended_at", ""))
        return cls(run_id=run_of(file), file=file, ended_at=ended_at, files=names, start=start)

    def until(self, run_id: str) -> str:
        """No earlier than when a run's files were complete: a run that was resumed had been cut off before. An end
        doesn't seal its own moment, so that the run's id is asked as well."""
        moment = self.ended_at if run_id == self.run_id else self.began or self.ended_at
        return max(moment, _moment_of(run_id))


@dataclass(frozen=True, kw_only=True)
class Examined:
    """What ends say of the files of a folder: those that were changed, those that are missing, each with a seal that
    tells, and those that were `added` to a run after its end."""

    changed: Mapping[str, Seal] = field(default_factory=lambda: MappingProxyType({}))
    missing: Mapping[str, Seal] = field(default_factory=lambda: MappingProxyType({}))
    added: frozenset[str] = frozenset()

    @property
    def refused(self) -> dict[str, str]:
        """The files of which no line counts, by name, with the reason."""
        return dict.fromkeys(self.added, ADDED) | dict.fromkeys(self.changed, CHANGED)

    @property
    def reasons(self) -> dict[str, str]:
        """All files that something is wrong with, by name, with the reason."""
        return self.refused | dict.fromkeys(self.missing, MISSING)

    @property
    def runs(self) -> frozenset[str]:
        """The runs of those files."""
        return frozenset(run_of(name) for name in self.reasons)


def digests(folder: Path, run_ids: Iterable[str]) -> dict[str, str]:
    """The SHA-256 of each file of some runs, in hexadecimal, by name: what an end that is written next seals."""
    paths = (path for run_id in run_ids for path in folder.glob(f"{run_id}-*.jsonl"))
    return {path.name: _digest(path) for path in sorted(paths)}


def examine(
    files: Mapping[str, Path | bytes], *, packed: Collection[str] = (), packed_seals: Iterable[Seal] = ()
) -> Examined:
    """Hold files of one folder, by name, against the ends of their runs.

    An end is the last line of its file and seals what is before it there. It holds for its own run and for those
    that its run resumes, and names all of their files. Nothing is known of the other files: their run was killed,
    goes on, or ended before there were seals. `packed` are the names of the files that are compacted, and
    `packed_seals` the seals in them.
    """
    files = {name: file for name, file in files.items() if isinstance(file, bytes) or is_plain_file(file)}
    own = [seal for name, file in files.items() if (seal := _seal_in(name, file))]
    seals = [_allowed(seal, files) for seal in (*own, *packed_seals)]
    about: dict[str, list[Seal]] = {}
    for seal in seals:
        for run_id in {run_of(name) for name in seal.files} | {seal.run_id}:
            about.setdefault(run_id, []).append(seal)
    ends = {seal.file for seal in own}
    alone = {seal.file for seal in own if seal.start == 0}  # the end of a run that was killed before it wrote one
    changed: dict[str, Seal] = {}
    added = set()
    for name, file in files.items():
        whole = ""
        for seal in about.get(run_of(name), ()):
            if name not in seal.files:
                if name in ends and seal.run_id == run_of(name):  # a run has one end: one of two is false
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
    """The seal without files of runs that its own run doesn't resume."""
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
    """The object in the first line of a file; empty if there is none."""
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
    """Where the last line of a file starts, in bytes, and what it says if it is a run's end; else nothing."""
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
    """What a line says if it is a run's end; else nothing."""
    if b'"end"' not in last or last.count(b"{") + last.count(b"[") > _MOST_BRACKETS:
        return {}
    try:
        end = json.loads(last)
    except (ValueError, RecursionError):
        return {}
    return end if isinstance(end, dict) and end.get("kind") == "end" else {}


def _digest(file: Path | bytes, length: int | None = None) -> str:
    """The SHA-256 of a file, or of so many bytes at its beginning."""
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
        return ""  # no file that a run wrote
    return found.hexdigest()
