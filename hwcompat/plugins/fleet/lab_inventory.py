"""The inventory of a lab machine: what its tools say is recorded there, and read here like any recording."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from hardware.detection import HardwareInfo, detect
from hardware.errors import BrokenInput, UsageError
from hardware.recording import ReplayedMachine
from hardware.untrusted import reason_of

from .lab_answers import NEEDED_PACKAGES, read_greeting, refuse_unready
from .lab_host import LabHost
from .lab_line import Answer, LabMachine, LineLost
from .lab_parts import packed_package

_LIMIT_S = 120.0
_MOST_FILES = 10_000


def lab_inventory(host: LabHost) -> HardwareInfo:
    """What is on a host. Needs Python 3.11 there and nothing else. Raises `UsageError` where it isn't ready, and
    `BrokenInput` for a recording that is none."""
    package = packed_package()
    lab = LabMachine(host, patience_s=0)
    try:
        hello = lab.ask("hello", packages=NEEDED_PACKAGES, archives=[package.place], checkpoints=[], key="")
        there = read_greeting(host.name, hello)
        refuse_unready(host.name, there, runs=False)
        sent = [package] if there["missing"] else []
        answer = lab.ask(
            "inventory",
            package=package.place,
            archives=[one.told() for one in sent],
            payload=b"".join(one.data for one in sent),
            limit_s=_LIMIT_S,
        )
    except LineLost as error:
        raise UsageError(f"{host.name} cannot be used", why=str(error)) from error
    return _replayed(host.name, answer)


def _replayed(name: str, answer: Answer) -> HardwareInfo:
    try:
        files = answer.get("files")
        if not isinstance(files, Mapping) or len(files) > _MOST_FILES:
            raise ValueError("it is no table of files")
        with tempfile.TemporaryDirectory(prefix="hwcompat-") as folder:
            for file, text in files.items():
                _write(Path(folder), file, text)
            return detect(ReplayedMachine(Path(folder)))
    except (OSError, ValueError) as error:
        raise BrokenInput(f"the inventory of {name} can't be read", why=reason_of(error)) from error


def _write(folder: Path, name: object, text: object) -> None:
    """One file of the recording; no name leads out of the folder."""
    parts = PurePosixPath(str(name)).parts
    if not isinstance(name, str) or not isinstance(text, str) or not parts or parts[0] == "/" or ".." in parts:
        raise ValueError(f"{ascii(name)[:80]} is no file of a recording")
    path = folder.joinpath(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
