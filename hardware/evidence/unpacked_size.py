"""How much text a Parquet file comes to before any of it is read: a few hundred kB can stand for hundreds of GB."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BrokenInput, OutputError, echo
from ..paths import cache_folder
from ..plain_text import size_text
from ..untrusted import opened
from ..whole_file import write_whole
from .columns import COLUMNS, LONGEST_LINE

if TYPE_CHECKING:
    import duckdb

MOST_ROWS = 20_000_000
LARGEST_TEXT = 4 * 1024**3
"""In bytes, of all columns that are read: a million lines come to a third of it."""

_OWN = {"file": "VARCHAR", "number": "BIGINT", "line": "VARCHAR"}
"""Without these nothing was compacted here; what else there is may be of another version."""

_checked: set[tuple[str, int, int, int, int]] = set()


def check_unpacked(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Raise `BrokenInput` for a Parquet file that isn't evidence, or whose text is more than memory holds.

    Nothing of the text is copied: lengths alone are read. That takes half a second for 200,000 lines: what is kept in
    the cache is which bytes were looked at under which limits. Raises `duckdb.Error` for what is no Parquet.
    """
    stamp = _stamp(path)
    if stamp in _checked:
        return
    kept = _kept(path)
    if kept is None or not kept.exists():
        if wrong := _wrong_with(connection, str(path)):
            fix = "Take it out of the folder."
            raise BrokenInput(f"{echo(str(path))} is no compacted evidence", why=wrong, fix=fix)
        if kept is not None and _stamp(path) == stamp:  # else other bytes were looked at than those that were hashed
            with contextlib.suppress(OSError):
                write_whole(kept, b"")
    _checked.add(stamp)


def _stamp(path: Path) -> tuple[str, int, int, int, int]:
    told = path.stat()
    return str(path), told.st_ino, told.st_size, told.st_mtime_ns, told.st_ctime_ns


def _kept(path: Path) -> Path | None:
    """The file in the cache that says that these very bytes were looked at; None where there is no cache."""
    limits = f"{MOST_ROWS} {LARGEST_TEXT} {LONGEST_LINE} {sorted(COLUMNS)} {sorted(_OWN)}"
    try:
        with opened(path) as file:
            digest = hashlib.file_digest(file, "sha256")
        digest.update(limits.encode())
        return cache_folder("looked-at-parquet") / digest.hexdigest()
    except (OSError, OutputError):
        return None


def _wrong_with(connection: duckdb.DuckDBPyConnection, path: str) -> str:
    names = (
        connection.execute("SELECT * FROM read_parquet(?, hive_partitioning=false) LIMIT 0", [path]).description or []
    )
    kinds: dict[str, Any] = {name: kind for name, kind, *_ in names}
    for name, kind in _OWN.items():
        if str(kinds.get(name)) != kind:
            return f"it has no column {name} of {kind}"
    (rows,) = connection.execute("SELECT sum(num_rows) FROM parquet_file_metadata(?)", [path]).fetchone() or (0,)
    if not 0 <= int(rows or 0) <= MOST_ROWS:
        return f"it has more than {MOST_ROWS:,} lines"
    read = [name for name in (*_OWN, *COLUMNS) if name in kinds]
    try:
        sizes = ", ".join(f"coalesce(sum({_length(name, kinds[name])}), 0)::HUGEINT" for name in read)
    except KeyError as error:
        return f"it has a column of {error.args[0]}"
    (longest, *found) = connection.execute(
        f"SELECT max(strlen(line)), {sizes} FROM read_parquet(?, hive_partitioning=false)", [path]
    ).fetchone() or (0,)
    if (longest or 0) > LONGEST_LINE:
        return f"it has a line of {size_text(longest)}"
    total = sum(map(int, found))
    return f"its text comes to {size_text(total)}" if total > LARGEST_TEXT else ""


def _length(name: str, kind: Any, depth: int = 0) -> str:
    """SQL for the length of what a column holds. Raises `KeyError` for a kind that evidence has none of."""
    if kind.id in ("varchar", "json"):
        return f"coalesce(strlen({name}::VARCHAR), 0)"
    if kind.id == "list":
        one = f"one_{depth}"
        ((_, inner),) = kind.children
        return f"coalesce(list_sum(list_transform({name}, lambda {one}: {_length(one, inner, depth + 1)} + 8)), 0)"
    if kind.id == "struct":
        return " + ".join(f"{_length(f'{name}[{_quoted(field)}]', inner, depth)}" for field, inner in kind.children)
    if kind.id in ("bigint", "integer", "boolean", "double"):
        return "8"
    raise KeyError(str(kind.id))


def _quoted(field: str) -> str:
    return "'" + field.replace("'", "''") + "'"
