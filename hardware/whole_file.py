"""Files that appear whole or not at all: a reader, and a process that is killed, never leave half of one behind.

Who reads a file to write it anew, or removes what others may have made, does so under `one_at_a_time`.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

_LOCK = ".lock"


def write_whole(path: Path, content: str | bytes, *, mode: int = 0o644) -> None:
    """Put `content` (text as UTF-8) into the place of whatever lies at `path`, in one step. Raises `OSError`."""
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        os.chmod(part, mode)
        os.replace(part, path)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Hold other processes that ask for the same folder until this block is over. The hold ends with its process,
    however that ends; where the system or the disk knows no locks, there is none. Raises `OSError`.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with (folder / _LOCK).open("ab") as file:
        with contextlib.suppress(OSError):  # a network's disk may refuse
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
