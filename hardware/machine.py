"""The sources of an inventory: files, commands, environment variables and vendor libraries of a machine.

`LiveMachine` reads this machine. `recording.py` stores the answers of a machine and replays them, so that the
inventory of another machine can be computed. Reading never raises: a missing value is None, or a `SourceReading` with
its reason.
"""

from __future__ import annotations

import os
import shutil
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from .process import run

if TYPE_CHECKING:
    from .software import HostInfo, TorchBuild

Value = TypeVar("Value")

COMMAND_LIMIT_S = 10.0
_MOST_BYTES = 2**22
_LONGEST_NUMBER = 40


@dataclass(frozen=True, kw_only=True)
class SourceReading(Generic[Value]):
    """One value that was read, or None with the reason."""

    value: Value | None
    reason: str = ""


class Library(ABC):
    """A library that is called by the names of its functions. Only a subclass imports it.

    Arguments and results are plain data (numbers, texts, lists, tables), so that they can be recorded. Thread-safe.
    """

    NAME: ClassVar[str]

    @abstractmethod
    def ask(self, function: str, *arguments: Any) -> SourceReading[Any]:
        """Return the result of a function, or the reason if there is none. Never raises."""

    def close(self) -> str:
        """Close the library and return the reason if that failed. A later call opens it again."""
        return ""


class Machine(ABC):
    """A machine that can be read. Paths are absolute, with slashes, as on that machine."""

    @abstractmethod
    def text(self, path: str) -> str | None:
        """Return the stripped text of a file; None if it doesn't exist or can't be read."""

    @abstractmethod
    def names(self, folder: str) -> tuple[str, ...] | None:
        """Return the sorted names in a folder; None if it doesn't exist or can't be read."""

    @abstractmethod
    def link(self, path: str) -> str | None:
        """Return the unresolved target of a symbolic link; None if there is no link."""

    @abstractmethod
    def may_open(self, path: str) -> bool | None:
        """Return whether this user may read and write a file or device node; None if it doesn't exist."""

    @abstractmethod
    def variable(self, name: str) -> str | None:
        """Return an environment variable; None if it isn't set."""

    @abstractmethod
    def run(self, *words: str, accept: int = 0) -> SourceReading[str]:
        """Return the standard output of a program in the C locale, or the reason if it isn't installed, fails or
        takes longer than `COMMAND_LIMIT_S` seconds. `accept` are bits of the exit code that are findings rather
        than failures."""

    @abstractmethod
    def library(self, kind: type[Library]) -> Library:
        """Return the single instance of a library on this machine."""

    @abstractmethod
    def host(self) -> HostInfo:
        """Return the operating system and the running Python."""

    @abstractmethod
    def packages(self) -> dict[str, str | None]:
        """Return the versions of packages by distribution name, None for packages that aren't installed."""

    @abstractmethod
    def torch(self) -> TorchBuild:
        """Return the build of the installed torch."""

    # The methods below are the same for every machine.

    def number(self, path: str, base: int = 10) -> int | None:
        """Return the integer in a file; None if it holds none."""
        written = self.text(path) or ""
        try:
            return int(written, base) if len(written) <= _LONGEST_NUMBER else None
        except ValueError:
            return None

    def is_folder(self, path: str) -> bool:
        """Return whether a folder exists and can be listed."""
        return self.names(path) is not None

    def close(self) -> None:  # noqa: B027 - an optional hook
        """Close the libraries."""


class LiveMachine(Machine):
    """This machine. `root` replaces `/` for files, for example with the folder of an unpacked system."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._libraries: dict[type[Library], Library] = {}
        self._packages: dict[str, str | None] | None = None
        self._lock = threading.Lock()

    def _at(self, path: str) -> Path:
        return self._root / path.lstrip("/")

    def text(self, path: str) -> str | None:
        try:
            with self._at(path).open("rb") as file:
                return file.read(_MOST_BYTES).decode(errors="replace").strip()
        except (OSError, ValueError):
            return None

    def names(self, folder: str) -> tuple[str, ...] | None:
        try:
            return tuple(sorted(os.listdir(self._at(folder))))
        except (OSError, ValueError):
            return None

    def link(self, path: str) -> str | None:
        try:
            return os.readlink(self._at(path))
        except (OSError, ValueError):
            return None

    def may_open(self, path: str) -> bool | None:
        place = self._at(path)
        return os.access(place, os.R_OK | os.W_OK) if place.exists() else None

    def variable(self, name: str) -> str | None:
        return os.environ.get(name)

    def run(self, *words: str, accept: int = 0) -> SourceReading[str]:
        program = shutil.which(words[0])
        if program is None:
            return SourceReading(value=None, reason=f"{words[0]} isn't installed")
        try:
            environment = {**os.environ, "LC_ALL": "C", "LANG": "C"}
            ran = run([program, *words[1:]], limit_s=COMMAND_LIMIT_S, environment=environment)
        except OSError as error:
            return SourceReading(value=None, reason=f"{words[0]} can't be started: {error.strerror or error}")
        if ran.returncode is None:
            return SourceReading(value=None, reason=f"{words[0]} took longer than {COMMAND_LIMIT_S:.0f} s")
        if ran.returncode < 0 or ran.returncode & ~accept:
            return SourceReading(value=None, reason=failure(words[0], ran.returncode, ran.stderr or ran.stdout))
        return SourceReading(value=ran.stdout)

    def library(self, kind: type[Library]) -> Library:
        with self._lock:
            if kind not in self._libraries:
                self._libraries[kind] = kind()
            return self._libraries[kind]

    def host(self) -> HostInfo:
        from .software import read_host

        return read_host()

    def packages(self) -> dict[str, str | None]:
        from .software import FRAMEWORKS, PACKAGES, library_wheels, package_versions
        from .workers import environment_versions

        if self._packages is None:
            names = (*PACKAGES, *FRAMEWORKS, *library_wheels())
            self._packages = {**package_versions(names), **environment_versions()}
        return dict(self._packages)

    def torch(self) -> TorchBuild:
        from .software import read_torch_build

        return read_torch_build()

    def close(self) -> None:
        with self._lock:
            libraries, self._libraries = self._libraries, {}
        for library in libraries.values():
            library.close()


def failure(program: str, code: int, output: str) -> str:
    """Return why a program failed: its exit code and the last line of its output."""
    lines = output.strip().splitlines()
    return f"{program} ended with exit code {code}" + (f": {lines[-1][:200]}" if lines else "")
