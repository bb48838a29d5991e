"""Libraries of vendors: started once, asked from any thread, and answering with plain data; and Python packages."""

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

OPENING = "opening"
"""The question that is no function of a library: the state of library and driver, and why it doesn't start."""


@dataclass(frozen=True, kw_only=True)
class Opening:
    """What came of starting a library; `reason` is empty where it answers."""

    library: LibraryState = LibraryState.OK
    driver: DriverState = DriverState.OK
    reason: str = ""


def no_library(reason: str) -> Opening:
    """What came of it where the library, or its binding, can't be loaded."""
    return Opening(library=LibraryState.MISSING, driver=DriverState.UNKNOWN, reason=reason)


class OpenedOnce(Library):
    """A library that is started on the first question, and remembers what came of that until `close`.

    `_lock` is held while it is started and given back. Questions are `count`, and others with the index of a device
    first.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._opening: Opening | None = None
        self._binding: Any = None
        self._handles: Sequence[Any] = ()

    def ask(self, function: str, *arguments: Any) -> SourceReading[Any]:
        with self._lock:
            opening = self._opening = self._opening or self._start()
        if function == OPENING:
            return SourceReading(value=[str(opening.library), str(opening.driver), opening.reason])
        if opening.reason:
            return SourceReading(value=None, reason=opening.reason)
        return self._answer(function, *arguments)

    def close(self) -> str:
        with self._lock:
            opened, self._opening = self._opening, None
            binding, self._binding, self._handles = self._binding, None, ()
            if opened is None or opened.reason:
                return ""
            try:
                self._stop(binding)
            except Exception as error:  # a binding may raise anything
                return said(error)
            return ""

    @abstractmethod
    def _start(self) -> Opening:
        """Load and start the library; where it answers, its binding and the handles of its devices are kept."""

    def _stop(self, binding: Any) -> None:
        """Give the library back, which was started."""

    def _call(self, binding: Any, handle: Any, function: str, *arguments: Any) -> Any:
        """Ask the started library of a device. What is raised becomes the reason why there is no answer."""
        raise LookupError(f"{self.NAME} isn't asked for it")

    def _answer(self, function: str, *arguments: Any) -> SourceReading[Any]:
        binding, handles = self._binding, self._handles
        if binding is None:
            return SourceReading(value=None, reason=f"{self.NAME} was given back while it was asked")
        if function == "count":
            return SourceReading(value=len(handles))
        try:
            return SourceReading(value=self._call(binding, handles[arguments[0]], function, *arguments[1:]))
        except IndexError:
            return SourceReading(value=None, reason=f"{self.NAME} lists {len(handles)} devices")
        except Exception as error:  # as above
            return SourceReading(value=None, reason=f"{function}: {said(error)}")


def said(error: Exception) -> str:
    """One line of an error of a binding, whose own text may have several."""
    information = getattr(error, "err_info", None)
    return str(information) if information else " ".join(f"{type(error).__name__}: {error}".split())


def plain(value: Any) -> Any:
    """Tables, lists, numbers and texts of what a binding gives: structures of ctypes are tables, bytes are text."""
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
    """Python packages, found without importing them: importing an SDK may start its runtime, or take the device."""

    NAME = "packages"

    def ask(self, function: str, *arguments: Any) -> SourceReading[Any]:
        """`version` of a distribution; `module`, whether there is a top-level module, and something below it."""
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
            return SourceReading(value=None, reason=f"there is no Python module {name}")
        folders = spec.submodule_search_locations or ([spec.origin] if spec.origin else [])
        if below and not any((Path(folder) / below).exists() for folder in folders):
            why = f"the Python module {name} that is here has no {below}: it is another one"
            return SourceReading(value=None, reason=why)
        return SourceReading(value=True)
