"""Appends evidence lines to the file of this process, each whole and flushed before the next begins."""

from __future__ import annotations

import datetime
import json
import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..errors import OutputError
from .record import EndLine, Line, to_dict
from .redaction import redact_all
from .seals import digests


def now() -> str:
    """The present moment in UTC, ISO 8601 with microseconds."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")


def new_run_id() -> str:
    """A name for a run that sorts by time and that no other run has."""
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    return f"{stamp}-{secrets.token_hex(3)}"


class EvidenceWriter:
    """Writes to `<folder>/<run_id>-<pid>.jsonl`. A child that was forked makes a writer of its own."""

    def __init__(self, folder: Path, run_id: str) -> None:
        self.folder = folder
        self.run_id = run_id
        self.path = folder / f"{run_id}-{os.getpid()}.jsonl"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise OutputError(
                f"evidence cannot be written to {folder}",
                why=error.strerror or str(error),
                fix="Give a folder that can be written with --evidence.",
            ) from error

    def write(self, line: Line) -> None:
        """Append one line. It is whole in the file, or an `OutputError` is raised."""
        text = json.dumps(redact_all(to_dict(line)), ensure_ascii=True, allow_nan=False)
        data = text.encode() + b"\n"
        try:
            written = os.write(self._descriptor, data)
        except OSError as error:
            raise OutputError(f"evidence cannot be written to {self.path}", why=error.strerror or "") from error
        if written != len(data):
            raise OutputError(f"evidence in {self.path} was cut short", why="the disk is full")

    def end(self, reason: str, counts: Mapping[str, int], resumes: Iterable[str] = ()) -> None:
        """Write that the run is over, and seal its files and those of the runs that it `resumes`."""
        files = digests(self.folder, [self.run_id, *resumes])
        self.write(EndLine(run_id=self.run_id, ended_at=now(), reason=reason, counts=dict(counts), files=files))

    def close(self) -> None:
        """Flush to the disk and close. A second call does nothing."""
        if self._descriptor >= 0:
            os.fsync(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
