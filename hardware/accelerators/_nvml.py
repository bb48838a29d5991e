"""The one guarded door to NVML: every call gives a `Reading`, and an error is the reason in it.

NVML itself may be called from several threads; handles are asked for each time, so devices can't be mixed up.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from .base import DriverState, LibraryState, NoSuchIndex, Reading


@dataclass(frozen=True, kw_only=True)
class Opening:
    """What came of `nvmlInit`; `reason` is empty when the door is open."""

    library: LibraryState
    driver: DriverState
    reason: str = ""


class Nvml:
    """Opens NVML on the first question and remembers what came of it until `close`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opening: Opening | None = None

    def open(self) -> Opening:
        """Load and initialise the library once."""
        with self._lock:
            if self._opening is None:
                self._opening = _initialise()
            return self._opening

    def ask(self, function: str, *arguments: Any) -> Reading[Any]:
        """The answer of one NVML function, or why there is none."""
        opening = self.open()
        if opening.reason:
            return Reading(value=None, reason=opening.reason)
        import pynvml

        call = getattr(pynvml, function, None)
        if call is None:
            return Reading(value=None, reason=f"this version of nvidia-ml-py has no {function}")
        try:
            return Reading(value=call(*arguments))
        except pynvml.NVMLError as error:
            return Reading(value=None, reason=f"{function}: {error}")

    def ask_device(self, index: int, function: str, *arguments: Any) -> Reading[Any]:
        """The same for device `index`. Raises `NoSuchIndex` (an `IndexError`) beyond the driver's range."""
        count = self.ask("nvmlDeviceGetCount")
        if count.value is None:
            return count
        if not 0 <= index < count.value:
            known = f"known are 0 to {count.value - 1}" if count.value else "the driver lists none"
            raise NoSuchIndex(f"there is no NVIDIA device {index}", why=known)
        handle = self.ask("nvmlDeviceGetHandleByIndex", index)
        return handle if handle.value is None else self.ask(function, handle.value, *arguments)

    def close(self) -> str:
        """Give NVML back; the reason if that failed. A later question opens it again."""
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


def _initialise() -> Opening:
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


def _refused(pynvml: Any, error: Any) -> Opening:
    code = error.value
    if code == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        return Opening(
            library=LibraryState.MISSING,
            driver=DriverState.UNKNOWN,
            reason="NVIDIA's library libnvidia-ml can't be loaded; it comes with the NVIDIA driver",
        )
    driver, advice = {
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (DriverState.MISSING, "is the kernel module nvidia loaded?"),
        pynvml.NVML_ERROR_NO_PERMISSION: (DriverState.DENIED, "may this user open /dev/nvidia*?"),
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
            DriverState.UNKNOWN,
            "driver and library are of different versions; reboot after an update of the driver",
        ),
    }.get(code, (DriverState.UNKNOWN, "nvidia-smi may tell more"))
    return Opening(library=LibraryState.OK, driver=driver, reason=f"NVML doesn't start: {error} ({advice})")
