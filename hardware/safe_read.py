"""Reading what comes from elsewhere: regular files alone, no longer than a limit, and JSON that fools no reader.

A name may be that of a pipe that nobody writes to, of a device that never ends, or of a file with holes that says it
is a terabyte. Whatever is refused here is an `OSError` or a `ValueError` whose text says why.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

from .plain_text import one_line, size_text

DEEPEST = 100
"""How deep lists and tables may lie in each other. What we write comes to ten; readers that recurse fail at 1,000."""

_LONG_KEY = re.compile(rf"""(?:(?:(?<![\w-])[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{DEEPEST}}}""")
_SMALL = 1 << 30
"""Holes in a file of less are no trick: reading them takes seconds."""


def is_plain_file(path: Path) -> bool:
    """Whether a path leads to a regular file: no folder, pipe, socket or device, and no link to nowhere. No error is
    raised for a name that no file can have."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def is_folder(path: Path) -> bool:
    """Whether a path leads to a folder. No error is raised for a name that none can have."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (OSError, ValueError):
        return False


@contextmanager
def opened(path: Path, *, longest: int | None = None) -> Iterator[BufferedReader]:
    """The file at `path`, open for reading bytes. Raises `OSError` where it isn't a regular file, or is longer than
    `longest` bytes; a pipe is never waited for."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        told = os.fstat(descriptor)
        if not stat.S_ISREG(told.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        if longest is not None and told.st_size > longest:
            raise _too_long(path, longest)
        file = os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise
    with file:
        yield file


def read_bytes(path: Path, *, longest: int) -> bytes:
    """The bytes of a regular file, at most `longest`. Raises `OSError`."""
    with opened(path, longest=longest) as file:
        data = file.read(longest + 1)
    if len(data) > longest:  # it has grown since it was asked, or its system tells no sizes
        raise _too_long(path, longest)
    return data


def read_text(path: Path, *, longest: int, errors: str = "strict") -> str:
    """The same as text in UTF-8. Raises `OSError`, and `ValueError` for what is no UTF-8."""
    return read_bytes(path, longest=longest).decode("utf-8", errors=errors)


def _too_long(path: Path, longest: int) -> OSError:
    return OSError(errno.EFBIG, f"it is larger than {size_text(longest)}", str(path))


def check_not_sparse(file: IO[bytes]) -> None:
    """Raise `OSError` for a large file that is mostly holes: it names a size that nobody ever wrote.

    A file system that doesn't tell of holes says that there are none.
    """
    size = os.fstat(file.fileno()).st_size
    if size < _SMALL or not hasattr(os, "SEEK_HOLE"):
        return
    written, place = 0, 0
    try:
        while place < size and written <= size // 2:
            try:
                start = os.lseek(file.fileno(), place, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # nothing but a hole from here to the end
                    break
                return
            place = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            written += place - start
    finally:
        file.seek(0)
    if written <= size // 2:
        raise OSError(
            errno.EINVAL, f"of its {size_text(size)} only {size_text(written)} were ever written", file.name
        )


def parsed_json(data: bytes | str, *, finite: bool = True) -> Any:
    """What a JSON text holds. Raises `ValueError`: for what is no JSON, for lists and tables that lie more than
    `DEEPEST` deep in each other and, unless they may be there, for NaN and infinity."""
    try:
        found = json.loads(data, parse_constant=no_number, parse_float=finite_number) if finite else json.loads(data)
    except RecursionError as error:
        raise _too_deep() from error
    # What has few brackets can't be deep; looking through all of it takes as long as parsing.
    brackets = data.count(b"[") + data.count(b"{") if isinstance(data, bytes) else data.count("[") + data.count("{")
    if brackets > DEEPEST or (isinstance(data, bytes) and b"\0" in data):  # UTF-16 and UTF-32 hold other bytes
        check_depth(found)
    return found


def read_json(path: Path, *, longest: int, finite: bool = True) -> Any:
    """What a file of JSON holds. Raises `OSError`, and `ValueError` as `parsed_json` does."""
    return parsed_json(read_bytes(path, longest=longest), finite=finite)


def shape_problem(data: Any, schema: Mapping[str, Any]) -> str:
    """Which part of `data` hasn't the shape that a JSON schema describes; empty where all of it has."""
    import jsonschema

    error = next(jsonschema.Draft202012Validator(schema).iter_errors(data), None)
    if error is None:
        return ""
    part = next(iter(error.absolute_path), None)
    return one_line(error.message, longest=160) if part is None else f"its {part} can't be what a machine has"


def reason_of(error: Exception) -> str:
    """Why something couldn't be read, in one line of at most 160 characters, without the path."""
    told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return one_line(told, longest=160)


def parsed_toml(text: str) -> dict[str, Any]:
    """What a TOML text holds. Raises `ValueError`: for what is no TOML, what is nested too deeply, and for numbers
    and keys whose length is a trick (the library takes the square of a key's parts in memory). A text of so many
    words with dots between them is refused too."""
    if _LONG_KEY.search(text):
        raise ValueError(f"a key has more than {DEEPEST} parts")
    try:
        found = tomllib.loads(text)
        check_depth(found)
    except RecursionError as error:
        raise _too_deep() from error
    return found


def check_depth(value: Any) -> None:
    """Raise `ValueError` where lists and tables lie more than `DEEPEST` deep in each other."""
    level = [value]
    for _ in range(DEEPEST):
        level = [inner for one in level for inner in _inside(one)]
        if not level:
            return
    raise _too_deep()


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from (one for one in value.values() if isinstance(one, Mapping | list | tuple))
    elif isinstance(value, list | tuple):
        yield from (one for one in value if isinstance(one, Mapping | list | tuple))


def _too_deep() -> ValueError:
    return ValueError(f"its lists and tables lie more than {DEEPEST} deep in each other")


def no_number(text: str) -> None:
    """What isn't JSON (`NaN`, `Infinity`) is refused, though Python reads it."""
    raise ValueError(f"{text} is no number of JSON")


def finite_number(text: str) -> float:
    """A number that JSON has and floating point hasn't would be read as infinite."""
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text[:40]} is beyond what a number can be")
    return number


def is_inside(path: Path, folder: Path) -> bool:
    """Whether a path lies in a folder, wherever links lead. A name that no file can have lies nowhere."""
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):  # too long, NUL, links in a circle
        return False
