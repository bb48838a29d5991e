"""Errors that are reported to users: what went wrong, why, and how to fix it.

Each class has its exit code (pytest's numbering); only a `main()` exits.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LONGEST_ECHO = 80


class HwCompatError(Exception):
    """Base class of all errors that are reported as one line instead of a traceback.

    `what` happened, `why`, and the `fix` that the user can apply; the last two may be empty.
    """

    exit_code = 3

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.fix = fix

    def __str__(self) -> str:
        parts = [self.what]
        if self.why:
            parts.append(self.why)
        text = ": ".join(parts)
        return f"{text}. {self.fix}" if self.fix else text


class UsageError(HwCompatError):
    """The command line or an input file asks for something impossible."""

    exit_code = 4


class NothingMatched(HwCompatError):
    """A selection matched nothing, which is an error and not a silent success."""

    exit_code = 5


class BrokenInput(UsageError):
    """An input file is corrupt, truncated, or of a kind that is refused."""


class ModelRefused(BrokenInput):
    """A checkpoint that can't be run: its files or configuration are wrong, or need something that isn't used here.

    `error_type` is the name of the problem (`hardware/evidence/error_types.toml`).
    """

    exit_code = 1

    def __init__(self, what: str, *, why: str = "", fix: str = "", error_type: str = "corrupt_checkpoint") -> None:
        super().__init__(what, why=why, fix=fix)
        self.error_type = error_type


class OutputError(HwCompatError):
    """The output folder can't be written."""

    exit_code = 4


class ModelError(UsageError):
    """The model isn't known, or nothing can be built from the input."""


class ModelMissing(ModelError):
    """A named model isn't available: a folder, or weights in the local cache of the Hub."""

    exit_code = 1


class BrokenPlugin(HwCompatError):
    """An external package registered something that can't be imported or is of another kind."""


class BackendUnavailable(HwCompatError):
    """A target isn't usable here; `what` names it and `why` gives the reason."""

    exit_code = 1


class OutOfMemory(HwCompatError):
    """Memory isn't available: that of a device is exhausted, or all of a budget is in use."""

    exit_code = 1


class WouldDeadlock(HwCompatError):
    """A wait that would never end, because the other side waits, directly or through others, for this one."""


def echo(name: str) -> str:
    """Return a user's text for one line of a terminal: quoted, escaped, and cut to 80 characters in the middle,
    because the end of a path says most."""
    shown = ascii(name) if not name.isprintable() else f"'{name}'"
    if len(shown) <= _LONGEST_ECHO:
        return shown
    return f"{shown[: _LONGEST_ECHO // 3]}…{shown[-(_LONGEST_ECHO - _LONGEST_ECHO // 3 - 1) :]}"


_PRECISIONS = {"fp32": "float32", "fp16": "float16", "half": "float16", "bf16": "bfloat16", "fp8": "float8"}
"""Other names of precisions, and the names used here."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a text such as `Did you mean 'bert'?`, empty if no name is similar."""
    known = sorted(known)
    if len(name) > _LONGEST_ECHO:
        return ""
    if (usual := _PRECISIONS.get(name.lower())) in known:
        return f"Did you mean {usual!r}?"
    close = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.6)
    return f"Did you mean {' or '.join(repr(c) for c in close)}?" if close else ""


_SIGNS = (
    "out of memory",
    "out of device memory",
    "out_of_device_memory",
    "can't allocate memory",
    "cannot allocate memory",
    "mem_alloc",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out, by its class (Python's or torch's) or its message."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error).lower()
    return any(sign in text for sign in _SIGNS)
