"""Tells errors that mean "memory ran out" from others: runtimes have classes and words of their own for it."""

from __future__ import annotations

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
