"""What kernels allocate inside themselves, which no operator shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def workspace_of(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], made: Sequence[Any]) -> int:
    """Bytes that the kernel of `func` allocates beside its results."""
    return 0
