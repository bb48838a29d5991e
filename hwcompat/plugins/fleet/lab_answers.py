"""What a lab machine says, as data that can be relied on: of the right kinds, within limits, or refused.

It was written by another machine. A text of it is shown as text, and a name of a file is one of evidence or none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from hardware.errors import BrokenInput, UsageError
from hardware.evidence.seals import is_evidence_name
from hardware.plain_text import one_line, size_text

from .lab_line import Answer

OLDEST_PYTHON = (3, 11)
NEEDED_PACKAGES = ("torch", "transformers", "pytest", "numpy", "safetensors")
ROOM_BYTES = 256 * 1024 * 1024
"""The package takes 2 MB and a run's evidence 10; references and exports that suites keep take the rest."""

_STATES = frozenset({"none", "running", "ended", "gone", "busy"})

_Kind = TypeVar("_Kind")


@dataclass(frozen=True, kw_only=True)
class Greeting:
    """What is there before anything was copied. `packages` are versions by name, empty where one is missing."""

    python: str
    executable: str
    system: str
    folder: str
    writable: bool
    free_bytes: int
    packages: Mapping[str, str]
    has_package: bool
    has_bundle: bool
    no_folders: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class RunState:
    """`none`, `running`, `ended` with its `code` (negative: the signal that killed it), `gone`, or `busy` with
    another run, of which `command` and `since` tell. `collected`: all of an ended run was fetched."""

    state: str
    code: int | None = None
    collected: bool = False
    command: str = ""
    since: str = ""

    @property
    def is_dead(self) -> bool:
        """Whether it was cut off without having come to its own end."""
        return self.state == "gone" or (self.state == "ended" and (self.code or 0) < 0)


@dataclass(frozen=True, kw_only=True)
class Part:
    """New bytes of a file of evidence, and where in it they begin."""

    name: str
    at: int
    data: bytes


@dataclass(frozen=True, kw_only=True)
class Look:
    """What is new of a run. `whole`: with these parts no file lacks anything that another one speaks of. `runs` names
    the run that speaks for each cell, once it is over; `log` is the end of what it printed."""

    run: RunState
    parts: tuple[Part, ...]
    whole: bool
    runs: Mapping[str, str]
    interrupted: bool
    log: str


def read_greeting(name: str, answer: Answer) -> Greeting:
    """What a host said of itself. Raises `BrokenInput`."""
    values = answer.values
    packages = _value(name, values, "packages", dict)
    return Greeting(
        python=_text(name, values, "python"),
        executable=_text(name, values, "executable"),
        system=_text(name, values, "system"),
        folder=_text(name, values, "folder"),
        writable=_value(name, values, "writable", bool),
        free_bytes=_value(name, values, "free_bytes", int),
        packages={one: one_line(str(packages.get(one) or ""), longest=40) for one in NEEDED_PACKAGES},
        has_package=_value(name, values, "has_package", bool),
        has_bundle=_value(name, values, "has_bundle", bool),
        no_folders=[one_line(str(one)) for one in _value(name, values, "no_folders", list)[:20]],
    )


def refuse_unready(name: str, there: Greeting, *, runs: bool) -> None:
    """Raise `UsageError` with all that is missing on a machine, before anything is copied. `runs`: suites are to run
    there, for which it needs packages; an inventory needs none."""
    lacking = []
    if there.system not in ("Linux", "Darwin"):
        lacking.append(
            f"it is a machine with {there.system}, and suites run apart from each other on Linux and macOS"
        )
    if _version(there.python) < OLDEST_PYTHON:
        lacking.append(
            f"{there.executable} is Python {there.python}, and suites need 3.11 (--host-python names another)"
        )
    missing = [one for one, version in there.packages.items() if not version]
    if missing and runs:
        lacking.append(
            f"{', '.join(missing)} isn't installed in {there.executable} (install it for that machine's hardware, or "
            "name the Python that has it: --host-python PATH)"
        )
    if not there.writable:
        lacking.append(f"{there.folder} can't be written (--host {name}:FOLDER names another)")
    if there.free_bytes < ROOM_BYTES:
        lacking.append(
            f"{size_text(there.free_bytes)} are free for {there.folder}, and it takes {size_text(ROOM_BYTES)}"
        )
    lacking += [f"there is no folder {one} (--host-checkpoint)" for one in there.no_folders]
    if lacking:
        raise UsageError(f"{name} isn't ready, and nothing was copied", why="; ".join(lacking))


def read_state(name: str, answer: Answer) -> RunState:
    """What became of a run. Raises `BrokenInput`."""
    values = answer.values
    state = _value(name, values, "state", str)
    if state not in _STATES:
        raise _broken(name, "state")
    return RunState(
        state=state,
        code=_value(name, values, "code", int) if state == "ended" else None,
        collected=values.get("collected") is True,
        command=one_line(str(values.get("command", "")), longest=200),
        since=one_line(str(values.get("since", "")), longest=40),
    )


def read_look(name: str, answer: Answer) -> Look:
    """New evidence and how it stands with the run. Raises `BrokenInput`."""
    values = answer.values
    parts: list[Part] = []
    place = 0
    for one in _value(name, values, "parts", list):
        if not isinstance(one, dict):
            raise _broken(name, "parts")
        size, at = _value(name, one, "size", int), _value(name, one, "at", int)
        file = _evidence_name(name, one.get("name"))
        if size < 0 or at < 0 or place + size > len(answer.body):
            raise _broken(name, "parts")
        parts.append(Part(name=file, at=at, data=answer.body[place : place + size]))
        place += size
    result = values.get("result") or {}
    runs = result.get("runs", {}) if isinstance(result, dict) else {}
    if not isinstance(runs, dict) or not all(isinstance(one, str) for one in runs.values()):
        raise _broken(name, "result")
    return Look(
        run=read_state(name, answer),
        parts=tuple(parts),
        whole=values.get("whole") is True,
        runs=runs,
        interrupted=isinstance(result, dict) and result.get("interrupted") is True,
        log=str(values.get("log", "")),
    )


def read_files(name: str, answer: Answer) -> tuple[tuple[str, ...], Mapping[str, bool]]:
    """The names of a run's files, and for those that were asked about whether they begin as ours do."""
    names = tuple(_evidence_name(name, one) for one in _value(name, answer.values, "files", list))
    same = _value(name, answer.values, "same", dict)
    return names, {str(one): told is True for one, told in same.items()}


def last_words(log: str) -> str:
    """The end of what a run printed, in one line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return one_line(lines[-1], longest=300) if lines else "it printed nothing"


def _evidence_name(host: str, name: object) -> str:
    if not isinstance(name, str) or not is_evidence_name(name):
        raise BrokenInput(
            f"what {host} answered can't be used", why=f"{one_line(str(name), longest=80)} is no name of evidence"
        )
    return name


def _value(host: str, values: Mapping[str, Any], key: str, kind: type[_Kind]) -> _Kind:
    value = values.get(key)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _broken(host, key)
    return value


def _text(host: str, values: Mapping[str, Any], key: str) -> str:
    return one_line(_value(host, values, key, str), longest=200)


def _broken(host: str, key: str) -> BrokenInput:
    return BrokenInput(f"what {host} answered can't be used", why=f"its {key} isn't what was asked for")


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdecimal())
