"""The inventory of a lab machine: what its tools say is recorded there, and read here like any recording."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from generators.options import Options
from hardware.detection import HardwareInfo, detect
from hardware.errors import BrokenInput, UsageError
from hardware.recording import ReplayedMachine
from hardware.untrusted import reason_of

from .lab_line import Answer, LabHost, LabMachine, LineLost
from .lab_run import greeted, packed_package

_LIMIT_S = 120.0
_MOST_FILES = 10_000


def inventory_of_host(asked: Options) -> HardwareInfo:
    """What the machine has that `--host` names. Needs Python 3.11 there and nothing else. Raises `UsageError` where
    it isn't ready, and `BrokenInput` for a recording that is none."""
    assert asked.host
    package = packed_package()
    lab = LabMachine(LabHost.parse(asked.host, asked.host_python), patience_s=0)
    try:
        sent = [package] if greeted(lab, [package], runs=False)["missing"] else []
        answer = lab.ask(
            "inventory",
            package=package.place,
            archives=[one.told() for one in sent],
            payload=b"".join(one.data for one in sent),
            limit_s=_LIMIT_S,
        )
    except LineLost as error:
        raise UsageError(f"{lab.host.name} cannot be used", why=str(error)) from error
    return _replayed(lab.host.name, answer)


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
