"""Small Parquet files of one month become one: a folder that is compacted every day has a few large ones."""

from __future__ import annotations

import hashlib
import tempfile
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from .batches import PART, write_verified
from .columns import COLUMNS, connect
from .partitions import PARQUET, PARTITION, SUFFIX, compacted_files, held, quoted

if TYPE_CHECKING:
    import duckdb

SMALL = 16 * 1024 * 1024
"""In bytes. What is larger is joined with nothing: lines are written anew a few times at most."""

MOST_LINES = 250_000
"""In one file that was joined: small files can be of lines that pack well, and memory holds them unpacked."""


def remove_leftovers(folder: Path) -> None:
    """What a process that was killed had begun to write; nobody else writes under the folder's lock."""
    for place in (folder, *folder.glob("month=*")):
        if place == folder or (PARTITION.fullmatch(place.name) and not place.is_symlink()):
            for path in (*place.glob(f"part-*{PART}"), *place.glob(f"compacted-*{PART}")):
                path.unlink(missing_ok=True)


def join_small(folder: Path) -> tuple[list[Path], int]:
    """Join the small files of each month; returns the files that were made, and how many took their lines.

    Those are removed when the new one was read back. A file all of whose lines others have is removed as well: that
    is what is left where this was killed between the two. Raises `BrokenInput`, `OSError`, `duckdb.Error`.
    """
    made: list[Path] = []
    gone = 0
    with tempfile.TemporaryDirectory() as temporary:
        connection = connect(Path(temporary))
        try:
            for month, group in groupby(compacted_files(folder), key=lambda path: path.parent):
                if month == folder:
                    continue
                paths = list(group)
                lines = held(connection, paths)
                doubled = _doubled(connection, lines)
                for path in doubled:
                    path.unlink()
                gone += len(doubled)
                lines = {path: names for path, names in lines.items() if path not in doubled}
                small = [path for path in _alone(lines) if path.stat().st_size < SMALL]
                for some in _together(small, {path: sum(lines[path].values()) for path in small}):
                    made.append(_join(connection, some, month))
                    for path in some:
                        path.unlink()
                    gone += len(some)
        finally:
            connection.close()
    return made, gone


def _doubled(connection: duckdb.DuckDBPyConnection, lines: dict[Path, dict[str, int]]) -> list[Path]:
    """The files of which every line is in others too, letter for letter; of two that are the same, one."""
    left = dict(lines)
    found = []
    for path in sorted(lines, key=lambda one: sum(lines[one].values())):
        names = lines[path]
        others = [other for other in left if other != path and not names.keys().isdisjoint(left[other])]
        if not names.keys() <= {name for other in others for name in left[other]}:
            continue
        columns = f"SELECT file, number, line FROM {PARQUET}"
        (more,) = connection.execute(
            f"SELECT count(*) FROM ({columns} EXCEPT {columns})", [str(path), [str(other) for other in others]]
        ).fetchone() or (1,)
        if not more:
            found.append(path)
            del left[path]
    return found


def _alone(lines: dict[Path, dict[str, int]]) -> list[Path]:
    """The files that share no name with another: where copies differ, one counts, and none is mixed with another."""
    number = Counter(name for names in lines.values() for name in names)
    return [path for path, names in lines.items() if all(number[name] == 1 for name in names)]


def _together(paths: Sequence[Path], lines: dict[Path, int]) -> list[list[Path]]:
    """Small files in groups of at least two that have at most `MOST_LINES`."""
    groups: list[list[Path]] = [[]]
    number = 0
    for path in paths:
        if groups[-1] and number + lines[path] > MOST_LINES:
            groups.append([])
            number = 0
        groups[-1].append(path)
        number += lines[path]
    return [group for group in groups if len(group) > 1]


def _join(connection: duckdb.DuckDBPyConnection, paths: Sequence[Path], month: Path) -> Path:
    """One file of the lines of several that share no name."""
    digest = hashlib.sha256("".join(f"{path.name}\n" for path in paths).encode()).hexdigest()[:16]
    texts = ", ".join(f"'{quoted(path)}'" for path in paths)
    source = f"read_parquet([{texts}], hive_partitioning=false, union_by_name=true)"
    rows = f"SELECT {', '.join(('file', 'number', *COLUMNS, 'line'))} FROM {source}"
    wanted = f"SELECT file, number, line FROM {source}"
    return write_verified(connection, rows, wanted, month / f"part-{digest}{SUFFIX}")[0]
