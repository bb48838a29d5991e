"""The one family of errors that a user sees: what went wrong, why, and the next thing to do.

Each class owns its exit code (pytest's numbering); only a `main()` exits.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LONGEST_ECHO = 80


class HwCompatError(Exception):
    """Root of all errors that are reported as one line instead of a traceback.

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
    """The command line or an input file asks for something that cannot be."""

    exit_code = 4


class NothingMatched(HwCompatError):
    """A selection left nothing to do: an error, never a silent success."""

    exit_code = 5


class BrokenInput(UsageError):
    """A file that was handed in is corrupt, truncated, or of a kind that is refused."""


class ModelRefused(BrokenInput):
    """A checkpoint that can't be run as it is: its files or configuration are wrong, or need what isn't used here.

    `error_type` is the name of what is wrong (`hardware/evidence/error_types.toml`).
    """

    exit_code = 1

    def __init__(self, what: str, *, why: str = "", fix: str = "", error_type: str = "corrupt_checkpoint") -> None:
        super().__init__(what, why=why, fix=fix)
        self.error_type = error_type


class OutputError(HwCompatError):
    """The output folder can't be written."""

    exit_code = 4


class ModelError(UsageError):
    """The model named isn't known, or nothing can be built from what was given."""


class ModelMissing(ModelError):
    """A model that was named isn't here: a folder, or weights in the local cache of the Hub."""

    exit_code = 1


class BrokenPlugin(HwCompatError):
    """A package from outside registered something that can't be imported, or is of another kind."""


class BackendUnavailable(HwCompatError):
    """A target isn't usable here; `what` names it and `why` gives the reason."""

    exit_code = 1


class OutOfMemory(HwCompatError):
    """Memory that something needs isn't to be had: a device's ran out, or all of a budget is in use."""

    exit_code = 1


class WouldDeadlock(HwCompatError):
    """A wait that could never end: what is waited for waits, directly or through others, for the one who asks."""


def echo(name: str) -> str:
    """A user's text made safe for one line of a terminal: quoted, escaped, and cut to 80 characters in its middle,
    since a path says most at its end."""
    shown = ascii(name) if not name.isprintable() else f"'{name}'"
    if len(shown) <= _LONGEST_ECHO:
        return shown
    return f"{shown[: _LONGEST_ECHO // 3]}…{shown[-(_LONGEST_ECHO - _LONGEST_ECHO // 3 - 1) :]}"


_PRECISIONS = {"fp32": "float32", "fp16": "float16", "half": "float16", "bf16": "bfloat16", "fp8": "float8"}
"""Other names of precisions, and ours."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`Did you mean 'bert'?`, or the empty string where nothing is close."""
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
    """Whether an error says that memory ran out: by its class (Python's, torch's), or by what its message says."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error).lower()
    return any(sign in text for sign in _SIGNS)
