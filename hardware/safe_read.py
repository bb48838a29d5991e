"""Reading untrusted files: only regular files up to a limit of size, and JSON and TOML up to a limit of depth.

A name may be that of a pipe without a writer, of an endless device, or of a sparse file of a terabyte. Whatever is
refused raises `OSError` or `ValueError` with the reason.
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
"""The maximum depth of nested lists and tables. Our own files need 10; recursive readers fail at 1,000."""

_LONG_KEY = re.compile(rf"""(?:(?:(?<![\w-])[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{DEEPEST}}}""")
_SMALL = 1 << 30
"""The size in bytes up to which sparse files are accepted: reading them takes seconds."""


def is_plain_file(path: Path) -> bool:
    """Return whether a path leads to a regular file, not a folder, pipe, socket, device or broken link. Doesn't
    raise for an invalid name."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def is_folder(path: Path) -> bool:
    """Return whether a path leads to a folder. Doesn't raise for an invalid name."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (OSError, ValueError):
        return False


@contextmanager
def opened(path: Path, *, longest: int | None = None) -> Iterator[BufferedReader]:
    """Open the regular file at `path` for reading bytes, without waiting for a pipe. Raises `OSError` if it isn't
    regular or has more than `longest` bytes."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        if longest is not None and status.st_size > longest:
            raise _too_long(path, longest)
        file = os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise
    with file:
        yield file


def read_bytes(path: Path, *, longest: int) -> bytes:
    """Return the bytes of a regular file. Raises `OSError` if it has more than `longest`."""
    with opened(path, longest=longest) as file:
        data = file.read(longest + 1)
    if len(data) > longest:  # it has grown, or its file system reports no sizes
        raise _too_long(path, longest)
    return data


def read_text(path: Path, *, longest: int, errors: str = "strict") -> str:
    """Return the text of a UTF-8 file. Raises `OSError`, or `ValueError` for invalid UTF-8."""
    return read_bytes(path, longest=longest).decode("utf-8", errors=errors)


def _too_long(path: Path, longest: int) -> OSError:
    return OSError(errno.EFBIG, f"it is larger than {size_text(longest)}", str(path))


def check_not_sparse(file: IO[bytes]) -> None:
    """Raise `OSError` for a large file that is mostly holes.

    File systems without support for holes report none.
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
                if error.errno == errno.ENXIO:  # the rest of the file is a hole
                    break
                return
            place = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            written += place - start
    finally:
        file.seek(0)
    if written <= size // 2:
        raise OSError(errno.EINVAL, f"only {size_text(written)} of its {size_text(size)} were written", file.name)


def parsed_json(data: bytes | str, *, finite: bool = True) -> Any:
    """Return the value of a JSON text. Raises `ValueError` for invalid JSON, for nesting deeper than `DEEPEST` and,
    with `finite`, for NaN and infinity."""
    try:
        found = json.loads(data, parse_constant=no_number, parse_float=finite_number) if finite else json.loads(data)
    except RecursionError as error:
        raise _too_deep() from error
    # A text with few brackets can't be deep; checking the value takes as long as parsing.
    brackets = data.count(b"[") + data.count(b"{") if isinstance(data, bytes) else data.count("[") + data.count("{")
    if brackets > DEEPEST or (isinstance(data, bytes) and b"\0" in data):  # UTF-16 and UTF-32 differ
        check_depth(found)
    return found


def read_json(path: Path, *, longest: int, finite: bool = True) -> Any:
    """Return the value of a JSON file. Raises `OSError`, or `ValueError` as `parsed_json` does."""
    return parsed_json(read_bytes(path, longest=longest), finite=finite)


def shape_problem(data: Any, schema: Mapping[str, Any]) -> str:
    """Return which part of `data` violates a JSON schema, or an empty text."""
    import jsonschema

    error = next(jsonschema.Draft202012Validator(schema).iter_errors(data), None)
    if error is None:
        return ""
    part = next(iter(error.absolute_path), None)
    return one_line(error.message, longest=160) if part is None else f"its {part} is not valid for a machine"


def reason_of(error: Exception) -> str:
    """Return why something couldn't be read, in one line of at most 160 characters without the path."""
    message = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return one_line(message, longest=160)


def parsed_toml(text: str) -> dict[str, Any]:
    """Return the value of a TOML text. Raises `ValueError` for invalid TOML, for nesting that is too deep, and for
    numbers and keys of excessive length (the library needs memory quadratic in the number of a key's parts). A
    string of that many words with dots between them is refused too."""
    if _LONG_KEY.search(text):
        raise ValueError(f"a key has more than {DEEPEST} parts")
    try:
        found = tomllib.loads(text)
        check_depth(found)
    except RecursionError as error:
        raise _too_deep() from error
    return found


def check_depth(value: Any) -> None:
    """Raise `ValueError` if lists and tables are nested deeper than `DEEPEST`."""
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
    return ValueError(f"its lists and objects are nested more than {DEEPEST} deep")


def no_number(text: str) -> None:
    """Refuse `NaN` and `Infinity`, which Python reads though they aren't JSON."""
    raise ValueError(f"{text} is not a valid JSON number")


def finite_number(text: str) -> float:
    """Refuse numbers beyond the range of floating point, which would be read as infinite."""
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text[:40]} is too large for a number")
    return number


def is_inside(path: Path, folder: Path) -> bool:
    """Return whether a path is inside a folder after resolving links; False for an invalid name."""
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):  # too long, NUL, or a loop of links
        return False
