"""The mutants that were drawn once by seed, and their sites in changed files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from .operators import OPERATORS, Edit

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
FROZEN = HERE / "frozen.jsonl"
SEED = 10


@dataclass(frozen=True, kw_only=True)
class CodeMutant:
    """A fault: `old` becomes `new` in function (or table) `where` of `file`, at the `nth` match (from 0).

    `side` is the affected part: a suite, a backend, a report...
    """

    name: str
    area: str
    side: str
    operator: str
    file: str
    where: str
    nth: int
    old: str
    new: str

    def line(self, text: str) -> int | None:
        """Return the number, from 1, of the changed line in `text`, or None if the site is gone."""
        edit = self._edit(text)
        return None if edit is None else text.count("\n", 0, edit.start) + 1

    def made(self, text: str) -> str | None:
        """Return `text` with the fault, or None if the site is gone."""
        edit = self._edit(text)
        return None if edit is None else text[: edit.start] + edit.text + text[edit.end :]

    def _edit(self, text: str) -> Edit | None:
        alike = [
            edit
            for edit in OPERATORS[self.operator].sites(text)
            if (edit.where, text[edit.start : edit.end], edit.text) == (self.where, self.old, self.new)
        ]
        return alike[self.nth] if self.nth < len(alike) else None


def frozen() -> list[CodeMutant]:
    """Read the drawn mutants."""
    return [CodeMutant(**json.loads(line)) for line in FROZEN.read_text(encoding="utf-8").splitlines()]
