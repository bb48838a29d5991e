"""Deprecated functions: they work, and warn with their replacement."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from .backends.factory import get_backend

if TYPE_CHECKING:
    import torch


def get_device_info_dict(name: str | None = None, device_id: int = 0) -> dict[str, Any]:
    """Return `get_backend(name).get_device_info(device_id).to_dict()`."""
    _warn("get_device_info_dict", "get_backend(name).get_device_info(device_id).to_dict()")
    return get_backend(name).get_device_info(device_id).to_dict()


def optimize_legacy(
    model: torch.nn.Module, level: str = "O2", name: str | None = None, sample_input: Any = None
) -> torch.nn.Module:
    """Return `get_backend(name).prepare_model(model, level, sample_input)`."""
    _warn("optimize_legacy", "get_backend(name).prepare_model(model, level, sample_input)")
    prepared: torch.nn.Module = get_backend(name).prepare_model(model, level, sample_input)
    return prepared


def _warn(old: str, new: str) -> None:
    warnings.warn(f"{old} is deprecated: use {new}", DeprecationWarning, stacklevel=3)
