"""Results of mutants of every kind in one form, from the files of the four benchmarks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwcompat.plugins.triage.repro_command import ORDER

from .code.drawing import frozen

KILLED = ("killed", "hung")
UNFIT = ("gone", "equivalent", "no effect")
"""Statuses that prove nothing: the site is gone, the mutant changes nothing, or no test covers it."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A mutant or a clean run (`operator` is empty): its side, its detector, and its site."""

    bench: str
    side: str
    operator: str
    site: str
    status: str
    by: str = ""
    why: str = ""

    @property
    def is_clean_run(self) -> bool:
        """Whether it is a clean run."""
        return not self.operator


def read(paths: Iterable[Path]) -> list[Outcome]:
    """Read all outcomes of files of the benchmarks. Raises `ValueError` for another file."""
    return [outcome for path in paths for outcome in _of_file(path)]


def _of_file(path: Path) -> Iterator[Outcome]:
    text = path.read_text(encoding="utf-8")
    rows = json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.splitlines()]
    drawn = {one.name: one for one in frozen()}
    for row in rows:
        if "is_mutant" in row:
            yield _model(row)
        elif "mutant" in row:
            one = drawn.get(row["mutant"])
            if one is None:
                continue  # The code that it changed is gone, and another fault was drawn.
            clean = row["status"] in ("clean", "false alarm")
            yield Outcome(
                bench="code",
                side=one.side,
                operator="" if clean else one.operator,
                site=f"{one.file}, {one.where}",
                status=row["status"],
                by=row["by"],
                why=one.name,
            )
        elif "deceit" in row:
            yield Outcome(
                bench="deceits",
                side=row["side"],
                operator=row["deceit"],
                site=f"{row['model']} on {row['target']}",
                status=row["status"],
                by=check if (check := row["reason"].partition(" ")[0]) in ORDER else "its verdict",
                why=row["reason"],
            )
        elif "state" in row:
            yield Outcome(
                bench="forgeries",
                side="evidence",
                operator="" if row["operator"] == "nothing" else row["operator"],
                site=f"{row['state']} {row['cell_id']}",
                status=row["status"],
                by=f"{row['level']}, {row['basis']}" if row["level"] else "no verdict",
                why=" ".join(row["reasons"][:1]),
            )
        else:
            raise ValueError(f"{path.name} holds no results of mutants")


def _model(row: dict[str, Any]) -> Outcome:
    clean = not row["is_mutant"]
    status = row["status"]
    if clean:
        status = "clean" if status in ("clean", "passed") else "false alarm"
    return Outcome(
        bench="models",
        side="model",
        operator="" if clean else row["operator"],
        site=f"{row['model']}: {row['site'] or '-'}",
        status=status,
        by=row["caught_by"] or "",
        why=row["message"] or "",
    )
