"""Whether something ended because nothing could be written any more: that says nothing of a model or a device."""

from __future__ import annotations

import errno

from ..errors import OutputError

ERROR_TYPE = "disk_full"

_NUMBERS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG}
_SIGNS = ("no space left on device", "disk quota exceeded", "read-only file system", "(os error 27)", "(os error 28)")
"""How libraries say it that raise an exception of their own; the last two are Rust's words for these numbers."""


def is_full_disk(error: BaseException | None) -> bool:
    """Whether an exception, or one that led to it, says that a disk is full or must not be written to.

    An assertion never does, whatever its text: it compared something.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen and not isinstance(error, AssertionError):
        seen.add(id(error))
        if isinstance(error, OutputError) or (isinstance(error, OSError) and error.errno in _NUMBERS):
            return True
        if any(sign in str(error).lower() for sign in _SIGNS):
            return True
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return False
