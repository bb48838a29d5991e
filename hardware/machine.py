"""The one door to what an inventory is read from: files, commands, variables, and the libraries of vendors.

`LiveMachine` is the one this runs on. `recording.py` keeps what a machine answered and gives it back, so that an
inventory can be made of a machine that isn't here. Reading never raises: what isn't there is `None`, or a
`SourceReading` with its reason.
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
    """One value that was read, or `None` with the reason why there is none."""

    value: Value | None
    reason: str = ""


class Library(ABC):
    """A library that is asked by the names of its functions. A subclass is the one place that imports it.

    Arguments and answers are plain data (numbers, texts, lists, tables), so that a recording can hold them. May be
    asked from several threads.
    """

    NAME: ClassVar[str]

    @abstractmethod
    def ask(self, function: str, *arguments: Any) -> SourceReading[Any]:
        """The answer of one function, or why there is none. Never raises."""

    def close(self) -> str:
        """Give the library back; the reason if that failed. A later question opens it again."""
        return ""


class Machine(ABC):
    """What can be read of a machine. Paths are absolute, with slashes, as they are on that machine."""

    @abstractmethod
    def text(self, path: str) -> str | None:
        """A file's text without blanks around it; `None` where it isn't there or can't be read."""

    @abstractmethod
    def names(self, folder: str) -> tuple[str, ...] | None:
        """The names in a folder, sorted; `None` where there is no such folder, or it can't be read."""

    @abstractmethod
    def link(self, path: str) -> str | None:
        """What a symbolic link points at, as it is written there; `None` where there is no link."""

    @abstractmethod
    def may_open(self, path: str) -> bool | None:
        """Whether this user may read and write a file or device node; `None` where it isn't there."""

    @abstractmethod
    def variable(self, name: str) -> str | None:
        """An environment variable; `None` where it isn't set."""

    @abstractmethod
    def run(self, *words: str, accept: int = 0) -> SourceReading[str]:
        """What a program prints, in the language C. A program that isn't there, fails or takes longer than
        `COMMAND_LIMIT_S` has a reason instead. `accept`: bits of the exit code that are findings, not failures."""

    @abstractmethod
    def library(self, kind: type[Library]) -> Library:
        """The one instance of a library on this machine."""

    @abstractmethod
    def host(self) -> HostInfo:
        """The operating system and the Python that runs."""

    @abstractmethod
    def packages(self) -> dict[str, str | None]:
        """Versions of packages by distribution name, `None` for what isn't installed."""

    @abstractmethod
    def torch(self) -> TorchBuild:
        """What the installed torch was built for."""

    # What follows is the same for every machine.

    def number(self, path: str, base: int = 10) -> int | None:
        """A file that holds one whole number; `None` where it doesn't."""
        written = self.text(path) or ""
        try:
            return int(written, base) if len(written) <= _LONGEST_NUMBER else None
        except ValueError:
            return None

    def is_folder(self, path: str) -> bool:
        """Whether there is such a folder that can be listed."""
        return self.names(path) is not None

    def close(self) -> None:  # noqa: B027 - an optional hook
        """Give the libraries back."""


class LiveMachine(Machine):
    """This machine. `root` stands for `/` where files are read: a folder, for a tree that was unpacked somewhere."""

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
            return SourceReading(value=None, reason=f"{words[0]} said nothing for {COMMAND_LIMIT_S:.0f} s")
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


def failure(program: str, code: int, said: str) -> str:
    """Why a program gave nothing: its exit code and the last line that it said."""
    lines = said.strip().splitlines()
    return f"{program} ended with exit code {code}" + (f": {lines[-1][:200]}" if lines else "")
