"""The registry of vendors: the files in this folder and the entry points `hwcompat.accelerators`.

A vendor's file is imported on first use. One that fails is left out, with its reason in `accelerator_failures`.
"""

from __future__ import annotations

from ...registry import Registered, Registry
from .vendor import DEVICE_TYPES, AcceleratorBackend, NoAccelerator, NoSuchIndex

__all__ = [
    "ACCELERATOR_BACKENDS",
    "VENDORS",
    "accelerator_failures",
    "get_accelerator_backend",
    "get_accelerator_backend_by_index",
    "get_all_accelerator_backends",
    "get_backend_count",
    "list_available_vendors",
    "registered_vendors",
]


def _check(found: type[AcceleratorBackend]) -> None:
    vendor, device_type = getattr(found, "VENDOR_NAME", None), getattr(found, "DEVICE_TYPE", None)
    if not isinstance(vendor, str) or not vendor:
        raise TypeError(f"{found.__name__}.VENDOR_NAME must name the vendor, not {vendor!r}")
    if device_type not in DEVICE_TYPES:
        raise TypeError(f"{found.__name__}.DEVICE_TYPE must be one of {', '.join(DEVICE_TYPES)}, not {device_type!r}")


VENDORS: Registry[type[AcceleratorBackend]] = Registry(
    group="hwcompat.accelerators",
    package=__name__,
    kind=AcceleratorBackend,
    noun="vendor",
    first=("nvidia", "amd", "intel", "apple"),
    besides=frozenset({"vendor"}),
    check=_check,
)


def registered_vendors() -> Registered[type[AcceleratorBackend]]:
    """Return every vendor that can be imported, with or without a device on this machine."""
    return VENDORS.load_all()


def accelerator_failures() -> dict[str, str]:
    """Return by name why a vendor was left out: it can't be imported, or it raised."""
    return {**registered_vendors().failures, **_available()[1]}


def get_all_accelerator_backends() -> list[AcceleratorBackend]:
    """Return a backend for each vendor with a device on this machine, in order."""
    return _available()[0]


def get_accelerator_backend(vendor: str | None = None) -> AcceleratorBackend:
    """Return the backend of `vendor` (in any case), or the first one.

    Raises `NoAccelerator`, a `RuntimeError`, with the available vendors if there is none.
    """
    backends = get_all_accelerator_backends()
    for backend in backends:
        if vendor is None or backend.VENDOR_NAME.lower() == vendor.strip().lower():
            return backend
    there = ", ".join(backend.VENDOR_NAME for backend in backends) or "none"
    failures = "; ".join(f"{name}: {reason}" for name, reason in accelerator_failures().items())
    raise NoAccelerator(
        f"no accelerator of {vendor} is here" if vendor else "no accelerator is here",
        why=f"vendors with a device: {there}" + (f"; left out: {failures}" if failures else ""),
        fix="Try: hwcompat devices list.",
    )


def get_accelerator_backend_by_index(index: int) -> AcceleratorBackend:
    """Return the backend at `index` of `get_all_accelerator_backends()`.

    Raises `NoAccelerator` (a `RuntimeError`) if there is none at all, or `NoSuchIndex` (an `IndexError`) with the
    range.
    """
    backends = get_all_accelerator_backends()
    if not backends:
        raise NoAccelerator("no accelerator is here", fix="Try: hwcompat devices list.")
    if not 0 <= index < len(backends):
        raise NoSuchIndex(f"there is no accelerator backend {index}", why=f"known are 0 to {len(backends) - 1}")
    return backends[index]


def get_backend_count() -> int:
    """Return the number of vendors with a device on this machine."""
    return len(get_all_accelerator_backends())


def list_available_vendors() -> list[str]:
    """Return the names of the vendors with a device on this machine, in order."""
    return [backend.VENDOR_NAME for backend in get_all_accelerator_backends()]


def __getattr__(name: str) -> tuple[type[AcceleratorBackend], ...]:
    # A constant would import every vendor's file together with this package.
    if name == "ACCELERATOR_BACKENDS":
        return tuple(registered_vendors().found.values())
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _available() -> tuple[list[AcceleratorBackend], dict[str, str]]:
    backends: list[AcceleratorBackend] = []
    failures: dict[str, str] = {}
    for name, vendor in registered_vendors().found.items():
        try:
            backend = vendor()
            if backend.is_available():
                backends.append(backend)
        except Exception as error:  # as above
            failures[name] = f"{type(error).__name__}: {error}"
    return backends, failures
