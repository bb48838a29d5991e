"""What evidence says of a browser's WebGPU adapter: its name, and whether it is software, which stands for no GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SOFTWARE_ADAPTERS = ("swiftshader", "llvmpipe", "lavapipe", "basic render driver", "warp")
"""What is in their names, in small letters."""

TOLD = ("vendor", "architecture", "device", "description")
"""What a browser tells of an adapter in words; each may be empty."""

NAMELESS = "an adapter without a name"


def is_software(adapter: Mapping[str, Any], names: Sequence[str] = SOFTWARE_ADAPTERS) -> bool:
    """Whether an adapter says that it is a fallback, or has one of the names of software."""
    words = " ".join(str(adapter.get(name, "")) for name in TOLD)
    return bool(adapter.get("fallback")) or any(name in words.lower() for name in names)


def adapter_name(adapter: Mapping[str, Any], names: Sequence[str] = SOFTWARE_ADAPTERS) -> str:
    """What reports call an adapter; software is called so."""
    told = " ".join(str(adapter[name]) for name in ("vendor", "architecture") if adapter.get(name))
    return f"{told or NAMELESS}{' (software)' if is_software(adapter, names) else ''}"


def adapter_conditions(adapter: Mapping[str, Any], names: Sequence[str] = SOFTWARE_ADAPTERS) -> dict[str, str]:
    """The conditions of what an adapter computed."""
    found = {"adapter": adapter_name(adapter, names)}
    if is_software(adapter, names):
        kind = adapter.get("architecture") or adapter.get("description") or "fallback"
        found["stands_in"] = f"a software adapter ({kind}), not a GPU"
    return found
