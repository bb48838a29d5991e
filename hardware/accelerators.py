"""The vendors' classes and their registry under their earlier path; they are in `hardware.inventory.vendors`."""

from __future__ import annotations

from typing import Any

_NAMES = (
    "ACCELERATOR_BACKENDS",
    "AcceleratorBackend",
    "AcceleratorInfo",
    "get_accelerator_backend",
    "get_accelerator_backend_by_index",
    "get_all_accelerator_backends",
    "get_backend_count",
    "list_available_vendors",
)

__all__ = list(_NAMES)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .inventory import vendors

    return getattr(vendors.vendor if name in ("AcceleratorBackend", "AcceleratorInfo") else vendors, name)
