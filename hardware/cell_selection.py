"""Selection of the cells of a plan, by patterns and by the shard of one of several machines."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from .errors import NothingMatched, UsageError, did_you_mean, echo

_SHARD = re.compile(r"(\d{1,6})/(\d{1,6})")
_SHOWN = 6


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Shard `index` (from 1) of `count`. The shard of a cell depends on its id alone."""

    index: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Return the shard named by a text such as `2/5`. Raises `UsageError` for an invalid one."""
        match = _SHARD.fullmatch(text.strip())
        index, count = (int(match[1]), int(match[2])) if match else (0, 0)
        if not 1 <= index <= count:
            raise UsageError(
                f"{echo(text)} is not a shard",
                why="the format is i/n, with i from 1 to n",
                fix="For example --shard 1/3, and 2/3 and 3/3 on other machines.",
            )
        return cls(index=index, count=count)

    def holds(self, cell_id: str) -> bool:
        """Return whether a cell is in this shard; it is in exactly one."""
        digest = hashlib.sha256(cell_id.encode()).digest()
        return int.from_bytes(digest[:8], "big") % self.count == self.index - 1

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


def choose_cells(
    cells: Sequence[str], *, select: Sequence[str] = (), skip: Sequence[str] = (), shard: Shard | None = None
) -> tuple[str, ...]:
    """Return the ids that match a pattern of `select` (all if it is empty) and none of `skip`, and are in the shard.

    The order is kept. Raises `NothingMatched` if a pattern matches no cell or no cell remains.
    """
    for option, patterns in (("--select", select), ("--skip", skip)):
        for pattern in patterns:
            if not any(fnmatchcase(cell, pattern) for cell in cells):
                raise NothingMatched(
                    f"{option} {echo(pattern)} matches no cells",
                    why="the format is model/task/target/precision",
                    fix=f"{_near(pattern, cells)} {_listed(cells)}".strip(),
                )
    chosen = [
        cell
        for cell in cells
        if (not select or any(fnmatchcase(cell, pattern) for pattern in select))
        and not any(fnmatchcase(cell, pattern) for pattern in skip)
    ]
    if not chosen:
        raise NothingMatched(
            f"none of {len(cells)} cell(s) is selected",
            why=f"--select {' '.join(select) or '*'}, --skip {' '.join(skip) or 'nothing'}",
            fix=_listed(cells),
        )
    kept = tuple(cell for cell in chosen if shard is None or shard.holds(cell))
    if not kept:
        raise NothingMatched(
            f"shard {shard} has none of {len(chosen)} cell(s)",
            why="a cell's shard depends only on its id",
            fix="Use fewer shards.",
        )
    return kept


def _near(pattern: str, cells: Collection[str]) -> str:
    """Return a similar pattern that matches: with wildcards around it, or with a part spelled as in a cell."""
    for wider in (f"{pattern}/*", f"*/{pattern}/*", f"*/{pattern}", f"*{pattern}*"):
        if any(fnmatchcase(cell, wider) for cell in cells):
            return f"Did you mean {echo(wider)}?"
    known = {part for cell in cells for part in cell.split("/")}
    wrong = [part for part in pattern.split("/") if not re.search(r"[*?\[]", part) and part not in known]
    return " ".join(filter(None, (did_you_mean(part, known) for part in wrong)))


def _listed(cells: Collection[str]) -> str:
    more = f" and {len(cells) - _SHOWN} more" if len(cells) > _SHOWN else ""
    return f"The cells are: {', '.join(sorted(cells)[:_SHOWN])}{more}."
