"""Files that appear whole or not at all: a reader, and a process that is killed, never leave half of one behind.

Who reads a file to write it anew, or removes what others may have made, does so under `one_at_a_time`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import OutputError

if TYPE_CHECKING:
    from filelock import FileLock

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
    however that ends; where the disk knows no locks, there is none. Raises `OSError`.
    """
    lock = _lock(folder, wait=True)
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def work_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """A new folder in `parent`, for what is renamed when it is whole; it is gone after the block. Those that killed
    processes left are removed first. Raises `OSError`."""
    with one_at_a_time(parent):
        for left in parent.glob(f"{prefix}*"):
            with contextlib.suppress(OSError):
                lock = _lock(left, wait=False)
                if lock.is_locked:
                    shutil.rmtree(left, ignore_errors=True)
                    lock.release()
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        held = _lock(folder, wait=False)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        held.release()


def mark_in_use(descriptor: int) -> None:
    """An open file is in use until it is closed, or its process ends, however that ends: `is_in_use` sees it. Where
    the system or the disk knows no locks, nobody does."""
    with contextlib.suppress(ImportError, OSError):
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_SH)


def is_in_use(path: Path) -> bool:
    """Whether some process has marked the file; False where there is none, or where it can't be told."""
    try:
        with path.open("rb") as file:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):
        return False
    return False


def _lock(folder: Path, *, wait: bool) -> FileLock:
    """The lock of a folder, held unless another process has it or the disk knows no locks. Raises `OSError` where the
    folder can't be written."""
    from filelock import FileLock

    lock = FileLock(folder / _LOCK)
    (folder / _LOCK).touch()
    with contextlib.suppress(OSError):  # `filelock.Timeout` is one
        lock.acquire(blocking=wait)
    return lock


OUTPUT = Path("hwcompat-out")
DEFAULT_SUITES = OUTPUT / "suites"
DEFAULT_EVIDENCE = OUTPUT / "evidence"
DEFAULT_REPORTS = OUTPUT / "reports"

CACHE_VARIABLE = "HWCOMPAT_CACHE"


def cache_folder(kind: str) -> Path:
    """The folder of one kind of cached thing (`exports`, `references`, `recipes`), made if it isn't there."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        root = Path(named)
    else:
        import platformdirs

        root = platformdirs.user_cache_path("hwcompat")
    folder = root / kind
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"the cache folder {root} cannot be written",
            why=error.strerror or "",
            fix=f"Name another in {CACHE_VARIABLE}.",
        ) from error
    return folder


SUFFIXES = frozenset({".py", ".toml", ".json", ".ini", ".html", ".css", ".js", ".mjs", ".typed"})
"""Kinds of files of this package. Whatever else lies in its folders (bytecode, an editor's copy) is none of it."""


def package_files(root: Path) -> dict[str, Path]:
    """The files of the package at `root` by their names below it, with slashes, in the order of these names.

    Empty where there is no such folder.
    """
    found = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.suffix in SUFFIXES}
    return {name: path for name, path in sorted(found.items()) if path.is_file()}
