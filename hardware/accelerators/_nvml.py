"""The one guarded door to NVML: every call gives a `Reading`, and an error is the reason in it.

NVML itself may be called from several threads; handles are asked for each time, so devices can't be mixed up.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from ..machine import Reading
from ._opening import OPENING, OpenedOnce, Opening
from .base import DriverState, LibraryState

SLICES = "mig_slices"
"""A question that is no function of NVML: name, UUID and memory of each MIG slice of a device."""

_OF_NO_DEVICE = ("nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex")


class Nvml(OpenedOnce):
    """Opens NVML on the first question and remembers what came of it until `close`.

    Functions of a device (`nvmlDevice...`) take its index first. Structures come back as tables.
    """

    NAME = "nvml"

    def _start(self) -> Opening:
        return _initialise()

    def ask(self, function: str, *arguments: Any) -> Reading[Any]:
        opening = self._open()
        if function == OPENING:
            return Reading(value=self._told(opening))
        if opening.reason:
            return Reading(value=None, reason=opening.reason)
        import pynvml

        call = _slices if function == SLICES else getattr(pynvml, function, None)
        if call is None:
            return Reading(value=None, reason=f"this version of nvidia-ml-py has no {function}")
        try:
            if function == SLICES or (function.startswith("nvmlDevice") and function not in _OF_NO_DEVICE):
                arguments = (pynvml.nvmlDeviceGetHandleByIndex(arguments[0]), *arguments[1:])
            return Reading(value=_plain(call(*arguments)))
        except pynvml.NVMLError as error:
            return Reading(value=None, reason=f"{function}: {error}")
        except (OSError, TypeError, ValueError) as error:  # a binding and a driver of different ages
            return Reading(value=None, reason=f"{function}: {type(error).__name__}: {error}")

    def close(self) -> str:
        with self._lock:
            opened, self._opening = self._opening, None
            if opened is None or opened.reason:
                return ""
            import pynvml

            try:
                pynvml.nvmlShutdown()
            except pynvml.NVMLError as error:
                return str(error)
            return ""


def _slices(card: Any) -> list[dict[str, Any]]:
    """The slices of a card in MIG mode, or of the part of it that a container was given."""
    import pynvml

    found: list[dict[str, Any]] = []
    for position in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(card)):
        try:
            handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(card, position)
        except pynvml.NVMLError_NotFound:
            continue
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        found.append(
            {
                "name": _plain(pynvml.nvmlDeviceGetName(handle)),
                "uuid": _plain(pynvml.nvmlDeviceGetUUID(handle)),
                "memory_bytes": int(memory.total),
            }
        )
    return found


def _plain(value: Any) -> Any:
    """Structures of ctypes as tables, bytes as text, and what holds them."""
    if hasattr(value, "_fields_"):
        return {name: _plain(getattr(value, name)) for name, *_ in value._fields_}
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, list | tuple) or hasattr(value, "_length_"):
        return [_plain(one) for one in value]
    return value


_NO_LIBRARY = Opening(
    library=LibraryState.MISSING,
    driver=DriverState.UNKNOWN,
    reason="NVIDIA's library libnvidia-ml can't be loaded; it comes with the NVIDIA driver",
)


def _initialise() -> Opening:
    if sys.platform == "linux" and not _is_there("libnvidia-ml.so.1"):
        return _NO_LIBRARY  # without the binding, which takes longer to import than all else to list
    try:
        import pynvml
    except ImportError as error:
        return Opening(
            library=LibraryState.MISSING,
            driver=DriverState.UNKNOWN,
            reason=f"the Python package nvidia-ml-py can't be imported ({error}): pip install nvidia-ml-py",
        )
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return _refused(pynvml, error)
    return Opening(library=LibraryState.OK, driver=DriverState.OK)


def _is_there(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _refused(pynvml: Any, error: Any) -> Opening:
    code = error.value
    if code == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        return _NO_LIBRARY
    driver, advice = {
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (DriverState.MISSING, "is the kernel module nvidia loaded?"),
        pynvml.NVML_ERROR_NO_PERMISSION: (DriverState.DENIED, "may this user open /dev/nvidia*?"),
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
            DriverState.UNKNOWN,
            "driver and library are of different versions; reboot after an update of the driver",
        ),
    }.get(code, (DriverState.UNKNOWN, "nvidia-smi may tell more"))
    return Opening(library=LibraryState.OK, driver=driver, reason=f"NVML doesn't start: {error} ({advice})")
