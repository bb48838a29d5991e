"""Which of a browser's WebGPU adapters are software: they stand for no GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SOFTWARE_ADAPTERS = ("swiftshader", "llvmpipe", "lavapipe", "basic render driver", "warp")
"""What is in their names, in small letters."""


def is_software(adapter: Mapping[str, Any], names: Sequence[str] = SOFTWARE_ADAPTERS) -> bool:
    """Whether an adapter says that it is a fallback, or has one of the names of software."""
    words = " ".join(str(adapter.get(name, "")) for name in ("vendor", "architecture", "device", "description"))
    return bool(adapter.get("fallback")) or any(name in words.lower() for name in names)
