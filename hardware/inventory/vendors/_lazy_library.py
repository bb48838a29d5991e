"""Vendor libraries that are opened on first use and return plain data, from any thread; and Python packages."""

from __future__ import annotations

import importlib.util
import threading
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from ...machine import Library, SourceReading
from ...software import package_versions
from .vendor import DriverState, LibraryState

STATUS = "opening"
"""The pseudo-function for the state of library and driver, and why the library doesn't start."""


@dataclass(frozen=True, kw_only=True)
class StartResult:
    """The result of starting a library; `reason` is empty if it works."""

    library: LibraryState = LibraryState.OK
    driver: DriverState = DriverState.OK
    reason: str = ""


def no_library(reason: str) -> StartResult:
    """Return the result for a library, or its binding, that can't be loaded."""
    return StartResult(library=LibraryState.MISSING, driver=DriverState.UNKNOWN, reason=reason)


def not_loaded(name: str, error: OSError, package: str) -> StartResult:
    """Return the result for a shared library that the loader refuses: with its words, if the file is there (an
    undefined symbol, another architecture, a library that it needs)."""
    words = " ".join(str(error).split())
    if f"{name}: cannot open shared object file: No such file" in words:
        return no_library(f"{name} can't be loaded; it comes with {package}")
    return no_library(f"{name} is installed, but can't be loaded: {words}")


class LazyLibrary(Library):
    """A library that is started by the first call, whose result is kept until `close`.

    `_lock` is held while it is started and closed. Functions are `count`, and others with the index of a device as
    first argument.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._status: StartResult | None = None
        self._binding: Any = None
        self._handles: Sequence[Any] = ()

    def ask(self, function: str, *arguments: Any) -> SourceReading[Any]:
        with self._lock:
            status = self._status = self._status or self._start()
        if function == STATUS:
            return SourceReading(value=[str(status.library), str(status.driver), status.reason])
        if status.reason:
            return SourceReading(value=None, reason=status.reason)
        return self._answer(function, *arguments)

    def close(self) -> str:
        with self._lock:
            opened, self._status = self._status, None
            binding, self._binding, self._handles = self._binding, None, ()
            if opened is None or opened.reason:
                return ""
            try:
                self._stop(binding)
            except Exception as error:  # a binding may raise anything
                return one_line_of(error)
            return ""

    @abstractmethod
    def _start(self) -> StartResult:
        """Load and start the library; on success keep its binding and the handles of its devices."""

    def _stop(self, binding: Any) -> None:
        """Close the library that was started."""

    def _call(self, binding: Any, handle: Any, function: str, *arguments: Any) -> Any:
        """Call the started library for a device. An error becomes the reason of a missing value."""
        raise LookupError(f"not read from {self.NAME}")

    def _answer(self, function: str, *arguments: Any) -> SourceReading[Any]:
        binding, handles = self._binding, self._handles
        if binding is None:
            return SourceReading(value=None, reason=f"{self.NAME} was closed during the call")
        if function == "count":
            return SourceReading(value=len(handles))
        try:
            return SourceReading(value=self._call(binding, handles[arguments[0]], function, *arguments[1:]))
        except IndexError:
            return SourceReading(value=None, reason=f"{self.NAME} lists {len(handles)} devices")
        except Exception as error:  # as above
            return SourceReading(value=None, reason=f"{function}: {one_line_of(error)}")


def one_line_of(error: Exception) -> str:
    """Return an error of a binding in one line."""
    information = getattr(error, "err_info", None)
    return str(information) if information else " ".join(f"{type(error).__name__}: {error}".split())


def plain(value: Any) -> Any:
    """Return plain data for the values of a binding: tables for ctypes structures, text for bytes."""
    if hasattr(value, "_fields_"):
        return {name: plain(getattr(value, name)) for name, *_ in value._fields_}
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple) or hasattr(value, "_length_"):
        return [plain(one) for one in value]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, Enum):
        return value.value
    return value if isinstance(value, str | int | float) or value is None else str(value)


class Packages(Library):
    """Python packages, found without importing them, because an SDK may start its runtime or occupy the device."""

    NAME = "packages"

    def ask(self, function: str, *arguments: Any) -> SourceReading[Any]:
        """Return the `version` of a distribution, or whether a top-level `module` and a part of it exists."""
        name, below = str(arguments[0]), str(arguments[1]) if len(arguments) > 1 else ""
        if function == "version":
            version = package_versions((name,))[name]
            return SourceReading(
                value=version, reason="" if version else f"the Python package {name} isn't installed"
            )
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            spec = None
        if spec is None:
            return SourceReading(value=None, reason=f"Python module {name} not found")
        folders = spec.submodule_search_locations or ([spec.origin] if spec.origin else [])
        if below and not any((Path(folder) / below).exists() for folder in folders):
            why = f"the installed Python module {name} has no {below}: it is a different package"
            return SourceReading(value=None, reason=why)
        return SourceReading(value=True)
