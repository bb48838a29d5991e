"""Recordings of a machine's answers in a folder, and a machine that replays them.

The folder holds the original output of the tools, so that people can read it and tests can use it:

    machine.json       the index: host, packages, torch's build, variables, links, folders, commands
    files/proc/...     each file that was read, under its own path
    sysfs.txt          those of /sys that hold one line, as `path = text`
    commands/          what each program printed
    libraries/*.json   what each vendor's library answered, by function and arguments

Serial numbers, unique identifiers, names and secrets are replaced before anything is written.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .errors import BrokenInput, echo
from .files import write_whole
from .machine import Library, Machine, SourceReading
from .plain_text import one_line
from .redaction import redact
from .safe_read import is_inside, read_json, read_text, reason_of, shape_problem
from .software import HostInfo, TorchBuild

INDEX = "machine.json"
LINES = "sysfs.txt"
_FORMAT = 1
_SCHEMA = Path(__file__).parent / "schemas" / "recording.json"

_LONGEST_FILE = 16 * 1024 * 1024

_RULES = Path(__file__).with_name("recording.toml")


@functools.cache
def _rules() -> list[tuple[str, re.Pattern[str], str]]:
    """Return for each rule the files that it applies to, its pattern, and the replacement."""
    found = tomllib.loads(_RULES.read_text(encoding="utf-8"))["rule"]
    return [(one.get("files", ""), re.compile(one["pattern"]), one["instead"]) for one in found]


def without_identity(text: str) -> str:
    """Return `text` without secrets, names, serial numbers and unique identifiers."""
    for files, pattern, instead in _rules():
        if not files:
            text = pattern.sub(instead, text)
    return redact(text)


def without_disk_identity(name: str, text: str) -> str:
    """Return a file's text without serial numbers of disks and names of servers and buckets.

    The inventory of a disk doesn't contain them either (`StorageDeviceInfo.shareable`), so that a recording gives the
    same inventory as the machine.
    """
    pool = re.findall(r"(?m)^E:ID_FS_LABEL=.*$", text) if "E:ID_FS_TYPE=zfs_member" in text else []
    for files, pattern, instead in _rules():
        if files and re.search(files, name):
            text = pattern.sub(instead, text)
    return "\n".join([text, *pool]) if name.startswith("files/run/udev/") else text


class MachineRecorder(Machine):
    """A machine that records the answers of another one; `write` stores them in a folder."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._files: dict[str, str | None] = {}
        self._folders: dict[str, tuple[str, ...] | None] = {}
        self._links: dict[str, str | None] = {}
        self._nodes: dict[str, bool | None] = {}
        self._variables: dict[str, str | None] = {}
        self._commands: dict[tuple[str, ...], SourceReading[str]] = {}
        self._calls: dict[str, dict[str, SourceReading[Any]]] = {}
        self._libraries: dict[type[Library], Library] = {}

    def text(self, path: str) -> str | None:
        return self._files.setdefault(path, self.machine.text(path))

    def names(self, folder: str) -> tuple[str, ...] | None:
        return self._folders.setdefault(folder, self.machine.names(folder))

    def link(self, path: str) -> str | None:
        return self._links.setdefault(path, self.machine.link(path))

    def may_open(self, path: str) -> bool | None:
        return self._nodes.setdefault(path, self.machine.may_open(path))

    def variable(self, name: str) -> str | None:
        return self._variables.setdefault(name, self.machine.variable(name))

    def run(self, *words: str, accept: int = 0) -> SourceReading[str]:
        if words not in self._commands:
            self._commands[words] = self.machine.run(*words, accept=accept)
        return self._commands[words]

    def library(self, kind: type[Library]) -> Library:
        if kind not in self._libraries:
            calls = self._calls.setdefault(kind.NAME, {})
            self._libraries[kind] = _RecordedLibrary(self.machine.library(kind), calls)
        return self._libraries[kind]

    def host(self) -> HostInfo:
        return self.machine.host()

    def packages(self) -> dict[str, str | None]:
        return self.machine.packages()

    def torch(self) -> TorchBuild:
        return self.machine.torch()

    def close(self) -> None:
        self.machine.close()

    def write(self, folder: Path) -> list[str]:
        """Write the recording and return the names of the files below `folder`. Raises `OutputError` on failure."""
        files = {f"files{path}": text for path, text in self._files.items() if text is not None}
        short = [name for name, text in files.items() if name.startswith("files/sys/") and "\n" not in text]
        files[LINES] = "".join(
            f"{without_identity(name)[5:]} = {_kept(name, files.pop(name))}\n" for name in sorted(short)
        )
        commands = []
        for number, (words, printed) in enumerate(sorted(self._commands.items())):
            entry: dict[str, Any] = {"words": list(words)}
            if printed.value is None:
                entry["reason"] = printed.reason
            else:
                entry["output"] = f"commands/{number:02d}-{Path(words[0]).name}.txt"
                files[entry["output"]] = printed.value
            commands.append(entry)
        for name, calls in self._calls.items():
            files[f"libraries/{name}.json"] = _as_json({key: _reading(one) for key, one in sorted(calls.items())})
        index = {
            "format": _FORMAT,
            "host": asdict(self.host()),
            "packages": self.packages(),
            "torch": asdict(self.torch()),
            "variables": {name: value for name, value in sorted(self._variables.items()) if value is not None},
            "links": {path: to for path, to in sorted(self._links.items()) if to is not None},
            "nodes": {path: may for path, may in sorted(self._nodes.items()) if may is not None},
            "folders": {path: list(names) for path, names in sorted(self._folders.items()) if names is not None},
            "commands": commands,
        }
        files[INDEX] = _as_json(index)
        for name, text in files.items():
            path = folder / without_identity(
                name
            )  # names of control groups may contain those of containers and users
            if ".." in path.relative_to(folder).parts:  # a link on the machine may lead outside
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, (text if name == LINES else _kept(name, text)).rstrip("\n") + "\n")
        return sorted(map(without_identity, files))


def _kept(name: str, text: str) -> str:
    return without_identity(without_disk_identity(name, text))


class _RecordedLibrary(Library):
    """A library whose answers are recorded."""

    NAME = "recorded"

    def __init__(self, library: Library, calls: dict[str, SourceReading[Any]]) -> None:
        self._library = library
        self._calls = calls

    def ask(self, function: str, *arguments: Any) -> SourceReading[Any]:
        answer = self._library.ask(function, *arguments)
        self._calls.setdefault(_call(function, arguments), answer)
        return answer

    def close(self) -> str:
        return self._library.close()


class ReplayedMachine(Machine):
    """A machine that was recorded. What wasn't read at that time doesn't exist.

    Raises `BrokenInput` if the folder holds no recording.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._inside = folder.resolve()
        self._index = read_index(folder)
        self._commands = {tuple(one["words"]): one for one in self._index.get("commands", [])}
        self._lines = _lines(folder / LINES)

    def text(self, path: str) -> str | None:
        if path in self._lines:
            return self._lines[path]
        try:
            return self._kept(f"files/{path.lstrip('/')}").strip()
        except (OSError, ValueError):
            return None

    def _kept(self, name: str) -> str:
        """Return the text of a file of the recording. Raises `OSError` for a file outside: no file of this machine
        may be read as one of the recorded machine."""
        path = self.folder / name
        if not is_inside(path, self._inside):
            raise OSError(errno.EACCES, "it lies outside of the recording", name)
        return read_text(path, longest=_LONGEST_FILE, errors="replace")

    def names(self, folder: str) -> tuple[str, ...] | None:
        value = self._index.get("folders", {}).get(folder)
        if value is not None:
            return tuple(value)
        here = self.folder / "files" / folder.lstrip("/")
        found = set(os.listdir(here)) if is_inside(here, self._inside) and here.is_dir() else set()
        below = f"{folder.rstrip('/')}/"
        found |= {path[len(below) :].partition("/")[0] for path in self._lines if path.startswith(below)}
        return tuple(sorted(found)) or None

    def link(self, path: str) -> str | None:
        value: str | None = self._recorded("links", path)
        return value

    def may_open(self, path: str) -> bool | None:
        value: bool | None = self._recorded("nodes", path)
        return value

    def variable(self, name: str) -> str | None:
        value: str | None = self._recorded("variables", name)
        return value

    def _recorded(self, kind: str, key: str) -> Any:
        return self._index.get(kind, {}).get(key)

    def run(self, *words: str, accept: int = 0) -> SourceReading[str]:
        entry = self._commands.get(words)
        if entry is None:
            return SourceReading(value=None, reason=f"{words[0]} isn't installed")
        if "output" not in entry:
            return SourceReading(value=None, reason=str(entry.get("reason", "")))
        try:
            return SourceReading(value=self._kept(entry["output"]))
        except (OSError, ValueError) as error:
            return SourceReading(
                value=None, reason=f"the recording lacks {one_line(entry['output'])}: {reason_of(error)}"
            )

    def library(self, kind: type[Library]) -> Library:
        return _ReplayedLibrary(kind.NAME, self.folder / "libraries" / f"{kind.NAME}.json")

    def host(self) -> HostInfo:
        return HostInfo(**self._index["host"])

    def packages(self) -> dict[str, str | None]:
        return dict(self._index.get("packages", {}))

    def torch(self) -> TorchBuild:
        return TorchBuild(**self._index.get("torch", {}))


def read_index(folder: Path) -> dict[str, Any]:
    """Return the index of a recording. Raises `BrokenInput` for an invalid one."""
    try:
        index = read_json(folder / INDEX, longest=_LONGEST_FILE)
        if not isinstance(index, dict):
            raise ValueError("it holds no JSON object")
        if index.get("format") != _FORMAT:
            found = one_line(repr(index.get("format")), longest=40)
            raise BrokenInput(f"{folder} holds a recording of another format", why=f"{found}, not {_FORMAT}")
        if wrong := shape_problem(index, json.loads(_SCHEMA.read_text(encoding="utf-8"))):
            raise ValueError(wrong)
    except (OSError, ValueError) as error:
        raise BrokenInput(
            f"{echo(str(folder))} holds no recording of a machine",
            why=f"{INDEX}: {reason_of(error)}",
            fix="Make one with: hwcompat doctor --record DIR",
        ) from error
    return index


class _ReplayedLibrary(Library):
    """A library with recorded answers."""

    NAME = "replayed"

    def __init__(self, name: str, file: Path) -> None:
        self._missing = f"{name} wasn't there"
        try:
            self._calls: Mapping[str, Any] = read_json(file, longest=_LONGEST_FILE)
        except FileNotFoundError:
            self._calls = {}
        except (OSError, ValueError) as error:
            raise BrokenInput(f"{file.name} of the recording can't be read", why=reason_of(error)) from error
        if not isinstance(self._calls, dict) or not all(isinstance(one, dict) for one in self._calls.values()):
            raise BrokenInput(f"{file.name} of the recording can't be read", why="it holds no table of answers")

    def ask(self, function: str, *arguments: Any) -> SourceReading[Any]:
        answer = self._calls.get(_call(function, arguments), {"reason": self._missing})
        return SourceReading(value=answer.get("value"), reason=str(answer.get("reason", "")))


def _lines(file: Path) -> dict[str, str]:
    try:
        written = read_text(file, longest=_LONGEST_FILE, errors="replace").splitlines()
    except OSError:  # a recording that read nothing of /sys, or one made by hand
        return {}
    return {path: text.strip() for path, middle, text in (line.partition(" = ") for line in written) if middle}


def _call(function: str, arguments: tuple[Any, ...]) -> str:
    return " ".join([function, *map(json.dumps, arguments)])


def _reading(answer: SourceReading[Any]) -> dict[str, Any]:
    return {"reason": answer.reason} if answer.value is None else {"value": answer.value}


def _as_json(data: Any) -> str:
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"
