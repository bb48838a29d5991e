"""Log each acknowledged line of evidence, and end a process by SIGKILL at a named write operation.

A line is acknowledged when `EvidenceWriter.write` has returned: then the SHA-256 of the bytes passed to the operating
system is written to `<log>/<process>.ack`. A kill before that leaves no note, so that the log never claims too much.

A point is `<what>:<which>:<where>`: `line:<kind or cell/check>:<where>` for a line of evidence, or
`replace:<role>/<number>:<where>` for the n-th file that a process of that role (`parent`, `child`) renames into
place. `where` is `before`, `half` (of a line alone), `after` (the call was made and hasn't returned) or `returned`.
"""

import hashlib
import json
import os
import signal
import threading

_OF_PARENTS = ("run", "end")
"""Lines that the parent writes; children write those of checks, except for checks that they left open."""

FOLDERS = ("suites", "reports", "cache")
"""Path components of counted files: those that a run stores."""


class Plant:
    """The plant of one process and of its forks."""

    def __init__(self, log: str, at: str) -> None:
        self.log = log
        self.what, self.which, self.where = at.split(":") if at else ("", "", "")
        self.root = os.getpid()
        self.writing = threading.local()
        self.replaced: dict[int, int] = {}
        self.real_write, self.real_replace = os.write, os.replace

    @property
    def role(self) -> str:
        """Whether this is the process that was started, or one of its children."""
        return "parent" if os.getpid() == self.root else "child"

    def die(self) -> None:
        """End this process as `kill -9` does."""
        os.kill(os.getpid(), signal.SIGKILL)

    def write(self, descriptor: int, data: bytes) -> int:
        """Call `os.write`, and die at the planted point."""
        if not getattr(self.writing, "line", False):
            return self.real_write(descriptor, data)
        self.writing.sent = data
        meant = self.what == "line" and self.which in self.names(data)
        meant = meant and self.role == ("parent" if self.which in _OF_PARENTS else "child")
        if meant and self.where == "before":
            self.die()
        if meant and self.where == "half":
            self.real_write(descriptor, data[: len(data) // 2])
            self.die()
        written = self.real_write(descriptor, data)
        if meant and self.where == "after":
            self.die()
        self.writing.meant = meant
        return written

    def names(self, data: bytes) -> tuple[str, ...]:
        """Return the names of a line: its kind, and for a check its cell and name."""
        line = json.loads(data)
        return line["kind"], f"{line.get('cell_id')}/{line.get('check_name')}"

    def replace(self, source: object, target: object, **named: object) -> None:
        """Call `os.replace`, and die at the planted point."""
        meant = False
        if any(f"{os.sep}{name}{os.sep}" in str(target) for name in FOLDERS):
            number = self.replaced[os.getpid()] = self.replaced.get(os.getpid(), 0) + 1
            meant = self.what == "replace" and self.which == f"{self.role}/{number}"
        if meant and self.where == "before":
            self.die()
        self.real_replace(source, target, **named)
        if meant:
            self.die()

    def note(self, path: object, data: bytes) -> None:
        """Log an acknowledged line by one system call."""
        text = f"{hashlib.sha256(data.strip(bytes([10]))).hexdigest()} {os.path.basename(str(path))}\n"
        name = os.path.join(self.log, f"{os.getpid()}.ack")
        note = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.real_write(note, text.encode())
        os.close(note)


def plant(log: str, at: str) -> None:
    """Wrap the functions that write evidence and rename files, in this process and its forks."""
    from hardware.evidence.writer import EvidenceWriter

    planted = Plant(log, at)
    os.write, os.replace = planted.write, planted.replace
    real = EvidenceWriter.write

    def write(self: EvidenceWriter, line: object) -> None:
        planted.writing.line, planted.writing.sent, planted.writing.meant = True, b"", False
        try:
            real(self, line)
        finally:
            planted.writing.line = False
        planted.note(self.path, planted.writing.sent)
        if planted.writing.meant and planted.where == "returned":
            planted.die()

    EvidenceWriter.write = write
