"""Files that are written completely or not at all, locks between processes, and the cache folder.

Processes that read a file to rewrite it, or remove files of others, do so under `one_at_a_time`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hwcompat

from .errors import OutputError

if TYPE_CHECKING:
    from filelock import FileLock

PRODUCT = Path(__file__).parents[1]
"""The folder of `hardware`, `generators`, `reports` and `templates`: the checkout, or the installed package."""

ROOT = Path(str(hwcompat.__file__)).parents[1]
"""The folder from which the package `hwcompat` is imported."""

_LOCK = ".lock"


def write_whole(path: Path, content: str | bytes, *, mode: int = 0o644) -> None:
    """Replace the file at `path` with `content` (text as UTF-8) in one step. Raises `OSError` on failure."""
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
def writing(what: str, fix: str = "") -> Iterator[None]:
    """Raise `OutputError`, which says `what` failed and why, for an `OSError` of this block."""
    try:
        yield
    except OSError as error:
        raise OutputError(what, why=error.strerror or str(error), fix=fix) from error


@contextlib.contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Exclude other processes that use the same folder during this block. The lock ends with its process; on a
    disk without locks there is none. Raises `OSError` if the folder can't be written."""
    lock = _lock(folder, wait=True)
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def work_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Yield a new folder in `parent` for files that are renamed when complete, and remove it after the block.
    Folders of killed processes are removed first. Raises `OSError` if it can't be made."""
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
    """Mark an open file as in use until it is closed or its process ends, for `is_in_use`. On a system or disk
    without locks this does nothing."""
    with contextlib.suppress(ImportError, OSError):
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_SH)


def is_in_use(path: Path) -> bool:
    """Return whether a process has marked the file; False if there is no such file or it can't be determined."""
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
    """Return the lock of a folder, acquired unless another process holds it or the disk has no locks. Raises
    `OSError` if the folder can't be written."""
    from filelock import FileLock

    lock = FileLock(folder / _LOCK)
    (folder / _LOCK).touch()
    with contextlib.suppress(OSError):  # `filelock.Timeout` is an OSError
        lock.acquire(blocking=wait)
    return lock


OUTPUT = Path("hwcompat-out")
PROJECT_FILE = Path("hwcompat.toml")
DEFAULT_SUITES = OUTPUT / "suites"
DEFAULT_EVIDENCE = OUTPUT / "evidence"
DEFAULT_REPORTS = OUTPUT / "reports"

CACHE_VARIABLE = "HWCOMPAT_CACHE"


def cache_folder(kind: str) -> Path:
    """Return the cache folder of one kind (`exports`, `references`, `recipes`), created if necessary."""
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
            fix=f"Set {CACHE_VARIABLE} to another folder.",
        ) from error
    return folder


SUFFIXES = frozenset({".py", ".toml", ".json", ".ini", ".html", ".css", ".js", ".mjs", ".typed"})
"""Suffixes of the files of this package. Other files in its folders, such as bytecode, aren't part of it."""


def package_files(root: Path) -> dict[str, Path]:
    """Return the files of the package at `root` by their relative names with slashes, sorted by name.

    Return an empty table if there is no such folder.
    """
    found = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.suffix in SUFFIXES}
    return {name: path for name, path in sorted(found.items()) if path.is_file()}
