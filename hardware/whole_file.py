"""Files that appear whole or not at all: a reader, and a process that is killed, never leave half of one behind."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


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
