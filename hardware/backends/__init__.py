"""One file for each target. The names of `__all__` are forwarded on first use, and import no runtime."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..optimization import OptimizationLevel as OptimizationLevel
    from .base import BaseBackend as BaseBackend
    from .base import DeviceInfo as DeviceInfo
    from .factory import BackendFactory as BackendFactory
    from .factory import BackendType as BackendType
    from .factory import detect_best_backend as detect_best_backend
    from .factory import get_backend as get_backend
    from .factory import get_optimizer as get_optimizer
    from .factory import list_available_backends as list_available_backends

_WHERE = {
    "BackendFactory": ".factory",
    "BackendType": ".factory",
    "BaseBackend": ".base",
    "DeviceInfo": ".base",
    "OptimizationLevel": "..optimization",
    "detect_best_backend": ".factory",
    "get_backend": ".factory",
    "get_optimizer": ".factory",
    "list_available_backends": ".factory",
}
__all__ = list(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name], __name__), name)
