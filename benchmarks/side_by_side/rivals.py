"""Programs of other tools, each in an environment of `make setup-rivals`."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .processes import ROOT

HINT = "make setup-rivals"


@dataclass(frozen=True, kw_only=True)
class Rival:
    """A program, and the reason if it can't be measured."""

    command: tuple[str, ...]
    missing: str = ""


def rival(environment: str, program: str, *arguments: str, allowed: Sequence[int] = (0,)) -> Rival:
    """Return a program of the environment `.venv-rival-NAME`, tried once."""
    path = ROOT / f".venv-rival-{environment}" / "bin" / program
    return tried((str(path), *arguments), allowed=allowed)


def tried(command: Sequence[str], *, allowed: Sequence[int] = (0,), timeout_s: float = 300) -> Rival:
    """Run a command once to see whether it works here."""
    program = Path(command[0])
    if not program.exists():
        return Rival(command=tuple(command), missing=f"{program.name} isn't installed ({HINT})")
    try:
        ran = subprocess.run(list(command), cwd=ROOT, capture_output=True, text=True, check=False, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return Rival(command=tuple(command), missing=f"it took longer than {timeout_s:.0f} s")
    if ran.returncode not in allowed:
        last = (ran.stderr.strip().splitlines() or ["no message"])[-1]
        return Rival(command=tuple(command), missing=f"it fails here: {last[:160]}")
    return Rival(command=tuple(command))
