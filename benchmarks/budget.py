"""Count the lines and words of the repository, and fail beyond a limit of budget.toml: `python -m benchmarks.budget`.

`*` in a pattern matches folders too. What git doesn't track isn't counted.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from tabulate import tabulate

ROOT = Path(__file__).parents[1]
BUDGET = Path(__file__).with_suffix(".toml")
TOP_LINES = 15
"""A page names the command that made it in its first lines, this many."""

_MADE_BY = re.compile(r"\b(?:[Mm]ade|[Mm]easured)\b[^.]*?\bby\s+`")


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of the repository with a limit for `lines` or `words`, in files that match `files` and not `not_files`.

    The limit is to be lowered to `goal`; `reason` says why.
    """

    name: str
    what: str
    limit: int
    goal: int
    files: Sequence[str]
    reason: str
    not_files: Sequence[str] = ()

    def takes(self, path: str) -> bool:
        """Return whether a file belongs to this part."""
        found = (any(fnmatchcase(path, one) for one in patterns) for patterns in (self.files, self.not_files))
        return next(found) and not next(found)

    def count(self, text: str) -> int:
        """Return the lines or words of a file; 0 for a page that a command made."""
        if self.what == "lines":
            return text.count("\n")
        return 0 if _MADE_BY.search("\n".join(text.splitlines()[:TOP_LINES])) else len(text.split())


@dataclass(frozen=True, kw_only=True)
class Room:
    """The count of one folder of a part."""

    name: str
    files: int
    count: int


def read_budget(path: Path = BUDGET) -> tuple[Part, ...]:
    """Return the parts. Raises `ValueError` for one without a reason."""
    parts = tuple(Part(name=name, **one) for name, one in tomllib.loads(path.read_text(encoding="utf-8")).items())
    if bare := [one.name for one in parts if not one.reason.strip()]:
        raise ValueError(f"{path.name}: {bare[0]} has no reason")
    return parts


def rooms(part: Part, paths: Sequence[str], root: Path = ROOT) -> Iterator[Room]:
    """Yield the counts of a part by folder, the largest first."""
    files: Counter[str] = Counter()
    counted: Counter[str] = Counter()
    for path in filter(part.takes, paths):
        if number := part.count((root / path).read_text(encoding="utf-8")):
            name = "/".join(Path(path).parent.parts[: 1 if part.what == "words" else 2]) or "."
            files[name] += 1
            counted[name] += number
    yield from (Room(name=name, files=files[name], count=number) for name, number in counted.most_common())


def tracked(root: Path = ROOT) -> list[str]:
    """Return the tracked files that exist."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
    return [path for path in listed.split("\0") if path and (root / path).is_file()]


def too_large(part: Part, count: int) -> str:
    """Return the sentence that says by how much a part is beyond its limit; empty if it isn't."""
    if count <= part.limit:
        return ""
    return (
        f"{part.name}: {count:,} {part.what}, {count - part.limit:,} over the limit of {part.limit:,}. "
        "Remove as much as you added, or raise the limit in benchmarks/budget.toml and write there why."
    )


def main() -> int:
    """Print each part by folder; return 1 if one is beyond its limit."""
    paths = tracked()
    rows: list[tuple[object, ...]] = []
    wrong: list[str] = []
    for part in read_budget():
        found = list(rooms(part, paths))
        count = sum(one.count for one in found)
        rows += [(one.name, one.files, f"{one.count:,}", part.what, "", "") for one in found]
        total = (f"{part.name}, all", sum(one.files for one in found), f"{count:,}", part.what)
        rows.append((*total, f"{part.limit:,}", f"{part.goal:,}"))
        wrong += filter(None, [too_large(part, count)])
    heads = ("room", "files", "count", "of", "limit", "goal")
    print(
        tabulate(
            rows, headers=heads, disable_numparse=True, colalign=("left", "right", "right", "left", "right", "right")
        )
    )
    for one in wrong:
        print(one, file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
