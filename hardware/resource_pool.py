"""The names of `hwcompat.plugins.placement.pool` under their earlier path, imported on first use."""

from __future__ import annotations

from typing import Any

from .plugins import found

_NAMES = ("CallOutcome", "Incident", "Lease", "ResourcePool", "get_global_resource_pool")

__all__ = list(_NAMES)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found(f"hwcompat.plugins.placement.pool:{name}")
