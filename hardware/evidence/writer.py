"""Append evidence lines to the file of this process, each whole and flushed before the next.

A line is kept once `write` has returned: other processes can read it, even if this one dies. After `make_durable`
it is kept through a loss of power too, if the disk obeys fsync.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
import secrets
import socket
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..errors import OutputError
from ..files import is_in_use, mark_in_use
from ..redaction import redact_all
from .record import EndLine, Line, to_dict
from .seals import digests

_IDS = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))


_DURABLE = "HWCOMPAT_DURABLE"
"""The variable that makes each line wait for the disk if it is `1`. Child processes inherit it."""


def make_durable() -> None:
    """Let each line that this process and its children write from now on wait until the disk has it."""
    os.environ[_DURABLE] = "1"


def now() -> str:
    """Return the present moment in UTC, ISO 8601 with microseconds."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")


def new_run_id() -> str:
    """Return a unique name for a run that sorts by time."""
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    return f"{stamp}-{secrets.token_hex(3)}"


def machine_label() -> str:
    """Return an anonymous name for this machine: `machine-` and eight digits, a salted hash of the system's id and
    host name, the same in every run."""
    found = [str(uuid.getnode()), socket.gethostname()]
    for path in _IDS:
        try:
            found.append(path.read_text(encoding="ascii").strip())
        except (OSError, UnicodeDecodeError):  # other systems, and containers, have none
            continue
    return f"machine-{hashlib.sha256(('hwcompat/' + '/'.join(found)).encode()).hexdigest()[:8]}"


class EvidenceWriter:
    """Write to `<folder>/<run_id>-<pid>.jsonl`. A forked child needs a writer of its own."""

    def __init__(self, folder: Path, run_id: str) -> None:
        self.folder = folder
        self.run_id = run_id
        self.path = folder / f"{run_id}-{os.getpid()}.jsonl"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            mark_in_use(self._descriptor)
            self._is_torn = _ends_in_half_a_line(self._descriptor)
            self._is_durable = os.environ.get(_DURABLE) == "1"
            if self._is_durable:
                _sync_entries(self.path)
        except OSError as error:
            raise OutputError(
                f"evidence cannot be written to {folder}",
                why=error.strerror or str(error),
                fix="Give a writable folder with --evidence.",
            ) from error

    def write(self, line: Line) -> None:
        """Append one line. Either it is whole in the file or `OutputError` is raised; later lines aren't affected."""
        self._append(b"\n" * self._is_torn + _data_of(line))

    def _append(self, data: bytes) -> None:
        try:
            written = os.write(self._descriptor, data)
        except OSError as error:
            raise self._unwritable(error) from error
        if written != len(data):
            self._take_back(written)
            raise OutputError(f"writing evidence to {self.path} failed", why="the disk is full")
        self._is_torn = False
        if self._is_durable:
            try:
                os.fsync(self._descriptor)
            except OSError as error:
                raise self._unwritable(error) from error

    def _take_back(self, written: int) -> None:
        """Cut off a partly written line; if that fails, the next line starts on a new line."""
        torn_before, self._is_torn = self._is_torn, True
        with contextlib.suppress(OSError):
            end = os.lseek(self._descriptor, 0, os.SEEK_CUR)
            if os.fstat(self._descriptor).st_size == end:
                os.ftruncate(self._descriptor, end - written)
                self._is_torn = torn_before

    def end(self, reason: str, counts: Mapping[str, int], resumes: Iterable[str] = ()) -> None:
        """Write that the run is over, and seal its files and those of the runs that it `resumes`. A resumed run that
        is still running isn't sealed: it seals its own files."""
        if self._is_torn:  # a sealed file ends with a whole line
            self._append(b"\n")
        files = digests(self.folder, [self.run_id, *(one for one in resumes if not self._is_running(one))])
        self.write(EndLine(run_id=self.run_id, ended_at=now(), reason=reason, counts=dict(counts), files=files))

    def _is_running(self, run_id: str) -> bool:
        return any(is_in_use(path) for path in self.folder.glob(f"{run_id}-*.jsonl"))

    def close(self) -> None:
        """Flush to the disk and close. A second call does nothing. Raises `OutputError`."""
        if self._descriptor < 0:
            return
        descriptor, self._descriptor = self._descriptor, -1
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise self._unwritable(error) from error
        finally:
            os.close(descriptor)

    def _unwritable(self, error: OSError) -> OutputError:
        return OutputError(f"evidence cannot be written to {self.path}", why=error.strerror or str(error))


def _data_of(line: Line) -> bytes:
    return json.dumps(redact_all(to_dict(line)), ensure_ascii=True, allow_nan=False).encode() + b"\n"


def _sync_entries(path: Path) -> None:
    """Write the names of a new file and of its folders to the disk: fsync of the file doesn't (man 2 fsync)."""
    if os.name == "nt":  # folders can't be opened
        return
    for folder in path.resolve().parents:
        try:
            descriptor = os.open(folder, os.O_RDONLY)
        except PermissionError:  # not ours, so nothing in it is new
            return
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _ends_in_half_a_line(descriptor: int) -> bool:
    """Whether a process with the same number was killed in the middle of a line."""
    size = os.fstat(descriptor).st_size
    return size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
