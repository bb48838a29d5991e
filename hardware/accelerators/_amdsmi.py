"""The one guarded door to AMD's management library, through its Python binding amdsmi.

The binding prints to stdout and raises `KeyError` while it is imported where libamd_smi.so is missing, and
`AttributeError` where it is of another version: the library is tried first, and ROCm's own binding before pip's.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import io
import os
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from ..machine import Reading
from ._opening import OPENING, OpenedOnce, Opening
from .base import DriverState, LibraryState

COUNT = "count"
"""A question that is no function of amdsmi: how many GPUs it lists."""

_FILE = "libamd_smi.so"
_ENUMS = {
    "amdsmi_get_temp_metric": ("AmdSmiTemperatureType", "AmdSmiTemperatureMetric"),
    "amdsmi_get_gpu_memory_total": ("AmdSmiMemoryType",),
    "amdsmi_get_gpu_memory_usage": ("AmdSmiMemoryType",),
}
_NO_PERMISSION, _DRIVER_NOT_LOADED, _NO_DRIVER = 10, 34, 51


class Amdsmi(OpenedOnce):
    """Opens amdsmi on the first question and remembers what came of it until `close`.

    Functions take the index of a GPU first; members of the binding's enumerations are given by name.
    """

    NAME = "amdsmi"

    def __init__(self) -> None:
        super().__init__()
        self._binding: Any = None
        self._handles: list[Any] = []

    def ask(self, function: str, *arguments: Any) -> Reading[Any]:
        opening = self._open()
        if function == OPENING:
            return Reading(value=self._told(opening))
        if opening.reason:
            return Reading(value=None, reason=opening.reason)
        binding, handles = self._binding, self._handles
        if binding is None:
            return Reading(value=None, reason="amdsmi was given back while it was asked")
        if function == COUNT:
            return Reading(value=len(handles))
        call = getattr(binding, function, None)
        if call is None:
            return Reading(value=None, reason=f"this version of amdsmi has no {function}")
        try:
            handle, *rest = arguments
            kinds = zip(_ENUMS.get(function, ()), rest, strict=True)
            return Reading(
                value=_plain(call(handles[handle], *(getattr(binding, kind)[name] for kind, name in kinds)))
            )
        except IndexError:
            return Reading(value=None, reason=f"amdsmi lists {len(handles)} devices")
        except Exception as error:  # the binding has a class of its own for each error, and decodes texts besides
            return Reading(value=None, reason=f"{function}: {_said(error)}")

    def close(self) -> str:
        with self._lock:
            binding, self._binding, self._handles = self._binding, None, []
            opened, self._opening = self._opening, None
            if binding is None or opened is None or opened.reason:
                return ""
            try:
                binding.amdsmi_shut_down()
            except Exception as error:  # as above
                return _said(error)
            return ""

    def _start(self) -> Opening:
        file = _library_file()
        if file is None:
            reason = f"AMD's library {_FILE} can't be loaded; it comes with ROCm (package amd-smi-lib)"
            return Opening(library=LibraryState.MISSING, driver=DriverState.UNKNOWN, reason=reason)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                self._binding = _binding(file)
        except Exception as error:  # see the module's text: anything may come of this import
            return Opening(library=LibraryState.MISSING, driver=DriverState.UNKNOWN, reason=_no_binding(error))
        try:
            self._binding.amdsmi_init()
            self._handles = list(self._binding.amdsmi_get_processor_handles())
        except Exception as error:  # as above
            driver, reason = _refused(error)
            return Opening(library=LibraryState.OK, driver=driver, reason=reason)
        return Opening(library=LibraryState.OK, driver=DriverState.OK)


def _roots() -> Iterator[Path]:
    for name in ("ROCM_HOME", "ROCM_PATH"):
        if os.environ.get(name):
            yield Path(os.environ[name])
    yield Path("/opt/rocm")


def _library_file() -> str | None:
    """The first place at which the library loads, of those that the binding looks at."""
    spec = None
    with contextlib.suppress(ImportError, ValueError):
        spec = importlib.util.find_spec("amdsmi")
    beside = [Path(spec.origin).with_name(_FILE)] if spec is not None and spec.origin else []
    for place in [_FILE, *(root / "lib" / _FILE for root in _roots()), *beside]:
        with contextlib.suppress(OSError):
            ctypes.CDLL(str(place))
            return str(place)
    return None


def _binding(file: str) -> Any:
    """The binding that ROCm brought together with its library, or else the one that pip installed."""
    if sys.modules.get("amdsmi") is not None:
        return sys.modules["amdsmi"]
    for root in _roots() if "amdsmi" not in sys.modules else ():
        start = root / "share" / "amd_smi" / "amdsmi" / "__init__.py"
        if not start.is_file() or (Path(file).is_absolute() and not file.startswith(str(root))):
            continue
        spec = importlib.util.spec_from_file_location("amdsmi", start, submodule_search_locations=[str(start.parent)])
        if spec is None or spec.loader is None:
            continue
        module = importlib.util.module_from_spec(spec)
        sys.modules["amdsmi"] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules["amdsmi"]
            raise
        return module
    return importlib.import_module("amdsmi")


def _no_binding(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"the Python package amdsmi can't be imported ({error}): pip install amdsmi, in ROCm's version"
    kind = type(error).__name__
    return (
        f"the Python package amdsmi doesn't fit the library ({kind}: {error}): pip install amdsmi in ROCm's version"
    )


def _refused(error: Exception) -> tuple[DriverState, str]:
    driver, advice = {
        _DRIVER_NOT_LOADED: (DriverState.MISSING, "is the kernel module amdgpu loaded?"),
        _NO_DRIVER: (DriverState.MISSING, "is the kernel module amdgpu loaded?"),
        _NO_PERMISSION: (DriverState.DENIED, "may this user open /dev/kfd and /dev/dri/renderD*? Join group render"),
    }.get(getattr(error, "err_code", None) or 0, (DriverState.UNKNOWN, "amd-smi may tell more"))
    return driver, f"amdsmi doesn't start: {_said(error)} ({advice})"


def _said(error: Exception) -> str:
    """One line of an error of the binding, whose own text has several."""
    information = getattr(error, "err_info", None)
    return str(information) if information else " ".join(f"{type(error).__name__}: {error}".split())


def _plain(value: Any) -> Any:
    """Tables, lists, numbers and texts of what the binding gives."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Enum):
        return value.value
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
