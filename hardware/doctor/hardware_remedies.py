"""Find the commands that fix a state on a machine, in `remedies.toml`."""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..command_names import as_runnable
from ..machine import Machine

_FILE = Path(__file__).with_name("remedies.toml")
ANY = "*"


@dataclass(frozen=True, kw_only=True)
class HardwareRemedy:
    """A command to run, a note, and the source of both."""

    command: str
    note: str = ""
    source: str = ""


@functools.cache
def entries() -> list[dict[str, Any]]:
    """Return all entries: the vendor or target, its state, and the kinds of machines."""
    found: list[dict[str, Any]] = tomllib.loads(as_runnable(_FILE.read_text(encoding="utf-8")))["remedy"]
    return found


def kinds_of(machine: Machine) -> tuple[str, ...]:
    """Return the names of a machine in `on`, the most specific first: a container, a distribution, those that it is
    like, the system, any."""
    marks = (machine.text("/.dockerenv"), machine.text("/run/.containerenv"))
    container = ("container",) if any(mark is not None for mark in marks) else ()
    release = machine.text("/etc/os-release") or ""
    found = dict(re.findall(r'(?m)^(ID|ID_LIKE)="?([^"\n]*)"?$', release))
    names = [*found.get("ID", "").split(), *found.get("ID_LIKE", "").split()]
    return (*container, *names, machine.host().system.lower(), ANY)


def remedies_for(about: str, state: str, kinds: tuple[str, ...], *, torch: str = "") -> tuple[HardwareRemedy, ...]:
    """Return the remedies for a state of the vendor or target `about`: those for the most specific of `kinds`, and
    entries for this name before entries for all names. A command that installs torch names its version if given."""
    wanted = f"torch=={torch}" if torch else "torch"
    for name in (about, ANY):
        for kind in kinds:
            found = tuple(
                HardwareRemedy(
                    command=one["command"].replace("torch=={torch}", wanted),
                    note=one.get("note", ""),
                    source=one["source"],
                )
                for one in entries()
                if one["about"] == name and one["state"] == state and kind in one["on"]
            )
            if found:
                return found
    return ()
