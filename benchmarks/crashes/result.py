"""Cases of the benchmark and their results, stored as JSON lines so that the benchmark resumes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of a case: counted facts, and violations as sentences.

    `facts["landed"]` is False if the fault didn't happen.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    wrong: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Case:
    """A case of one part of the benchmark, counted under `kind`; `run` gets a new folder."""

    part: str
    id: str
    kind: str
    run: Callable[[Path, Any], Result]


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A result as stored in the file."""

    part: str
    id: str
    kind: str
    date: str
    seconds: float
    facts: dict[str, Any]
    wrong: list[str]


def read_results(path: Path) -> dict[str, Kept]:
    """Read the stored results by case id, without an incomplete last line."""
    found: dict[str, Kept] = {}
    for text in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            kept = Kept(**json.loads(text))
        except ValueError:
            continue
        found[kept.id] = kept
    return found


def keep(path: Path, kept: Kept) -> None:
    """Append a result."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(vars(kept)) + "\n")
