"""A case of the bench and what came of it, kept as JSON lines so that a bench that is cut off goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came of a case: what was counted, and what didn't hold, in words.

    `facts["landed"]` is False where what was to be tried didn't come about.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    wrong: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Case:
    """One thing to try, of one part of the bench, counted under `kind`; `run` gets a folder of its own."""

    part: str
    id: str
    kind: str
    run: Callable[[Path, Any], Result]


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A result as it lies in the file."""

    part: str
    id: str
    kind: str
    date: str
    seconds: float
    facts: dict[str, Any]
    wrong: list[str]


def read_results(path: Path) -> dict[str, Kept]:
    """What is known so far, by the ids of cases; a line that was cut off is no result."""
    found: dict[str, Kept] = {}
    for text in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            kept = Kept(**json.loads(text))
        except ValueError:
            continue
        found[kept.id] = kept
    return found


def keep(path: Path, kept: Kept) -> None:
    """Add a result."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(vars(kept)) + "\n")
