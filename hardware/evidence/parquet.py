"""Read compacted evidence: Parquet files in a folder and in its folders by month.

All lines of a file of JSON lines are in one Parquet file, in the month in which the run started, which its name
contains: reading one run opens no other month. There are no partitions by target, since one run has lines of many.
The size of a file's text is checked before it is read: a few hundred kB can expand to hundreds of GB.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BrokenInput, OutputError, echo
from ..files import cache_folder, write_whole
from ..plain_text import size_text
from ..safe_read import is_plain_file, opened
from .columns import COLUMNS, LONGEST_LINE, connected
from .seals import Examined, Seal, as_end, examine, run_of

if TYPE_CHECKING:
    import duckdb

SUFFIX = ".parquet"
UNKNOWN = "month=unknown"
"""The folder for files whose names contain no date."""

PARTITION = re.compile(r"month=(?:[0-9]{4}-(?:0[1-9]|1[0-2])|unknown)")
_STARTED = re.compile(r"(?P<year>[0-9]{4})(?P<month>0[1-9]|1[0-2])[0-9]{2}T")

PARQUET = "read_parquet(?, hive_partitioning=false)"
"""Read columns from files only: a folder called `kind=check` isn't a column."""

MOST_ROWS = 20_000_000
LARGEST_TEXT = 4 * 1024**3
"""In bytes, over all columns that are read: a million lines have a third of it."""

_OWN = {"file": "VARCHAR", "number": "BIGINT", "line": "VARCHAR"}
"""Columns that every compacted file has; others may be of another version."""

_AT_ONCE = 64
"""Lines that are fetched together: each may have 16 MiB."""

_checked: set[tuple[str, int, int, int, int]] = set()


def partition_of(name: str) -> str:
    """Return the folder in which a file of evidence is compacted: `month=2026-11`."""
    found = _STARTED.match(name)
    return f"month={found['year']}-{found['month']}" if found else UNKNOWN


def compacted_files(folder: Path, run_id: str = "") -> list[Path]:
    """Return the Parquet files of a folder and of its months by name, or those that may hold the lines of one run.

    Irregular files and links to folders are left out.
    """
    months = [path for path in folder.glob("month=*") if PARTITION.fullmatch(path.name) and not path.is_symlink()]
    if run_id:
        months = [path for path in months if path.name == partition_of(run_id)]
    found = [path for place in (folder, *months) for path in place.glob(f"*{SUFFIX}")]
    return sorted(path for path in found if is_plain_file(path))


def quoted(text: Path | str) -> str:
    """Return a text or path as an SQL literal."""
    return "'" + str(text).replace("'", "''") + "'"


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise `BrokenInput` if a Parquet file isn't compacted evidence."""
    import duckdb

    try:
        yield
    except (duckdb.Error, OSError, ValueError) as error:
        why = str(error).splitlines()[0][:160]
        fix = "Remove it from the folder."
        raise BrokenInput(f"{echo(str(path))} is not compacted evidence", why=why, fix=fix) from error


# Content of files


def held(
    connection: duckdb.DuckDBPyConnection, paths: Iterable[Path], run_id: str = ""
) -> dict[Path, dict[str, int]]:
    """Return the names of the files whose lines are in each Parquet file, with their number of lines. With `run_id`,
    those of one run. Raises `BrokenInput` if a file isn't evidence or has lines of another month than its
    folder's."""
    # A condition that column statistics can answer: names between `run-` and the next prefix.
    where, values = ("WHERE file >= ? AND file < ?", [f"{run_id}-", f"{run_id}."]) if run_id else ("", [])
    asked = f"SELECT file, count(*) FROM {PARQUET} {where} GROUP BY file"
    found: dict[Path, dict[str, int]] = {}
    for path in paths:
        with reading(path):
            _check_unpacked(connection, path)
            rows = connection.execute(asked, [str(path), *values]).fetchall()
        found[path] = {str(name): int(lines) for name, lines in rows}
        wrong = next((name for name in found[path] if partition_of(name) != path.parent.name), None)
        if wrong is not None and PARTITION.fullmatch(path.parent.name):
            raise BrokenInput(
                f"{echo(str(path))} is in the wrong folder",
                why=f"{echo(wrong)} belongs to {partition_of(wrong)}",
                fix=f"Move it from {path.parent.name} to the evidence folder itself.",
            )
    return found


def owners(lines: Mapping[Path, Mapping[str, int]]) -> dict[str, Path]:
    """Return the Parquet file from which the lines of each name are read. If several have some, it is the one with
    most lines, since evidence only grows; of equals, the first by name."""
    found: dict[str, Path] = {}
    for path, names in lines.items():
        for name, number in names.items():
            if name not in found or number > lines[found[name]][name]:
                found[name] = path
    return found


def owned_lines(folder: Path, run_id: str = "") -> Iterator[tuple[str, bytes]]:
    """Yield the lines of a folder's Parquet files with the names of their files, ordered by file and number. The
    lines of a name come from one Parquet file. Raises `BrokenInput`."""
    paths = compacted_files(folder, run_id)
    if not paths:  # as in a bundle, which reads its folder with the packages of the lab machine
        return
    with connected() as connection:
        found = held(connection, paths, run_id)
        owner = owners(found)
        for path in paths:
            yield from _lines_in(connection, path, [name for name in found[path] if owner[name] == path])


def _lines_in(
    connection: duckdb.DuckDBPyConnection, path: Path, names: Collection[str]
) -> Iterator[tuple[str, bytes]]:
    if not names:
        return
    with reading(path):
        found = connection.execute(
            f"SELECT file, line FROM {PARQUET} WHERE file >= ? AND file <= ? "
            "AND file IN (SELECT unnest(?::VARCHAR[])) ORDER BY file, number",
            [str(path), min(names), max(names), list(names)],
        )
        while rows := found.fetchmany(_AT_ONCE):
            yield from ((str(name), str(line).encode()) for name, line in rows)


def examined_in(folder: Path, files: Mapping[str, Path | bytes], run_id: str = "") -> Examined:
    """Check files of a folder against the ends of their runs, which may be compacted. Raises `BrokenInput`."""
    paths = compacted_files(folder, run_id) if files else []
    if not paths:
        return examine(files)
    with connected() as connection:
        names = {name for own in held(connection, paths, run_id).values() for name in own}
        seals = packed_seals(connection, paths, {run_of(name) for name in files})
    return examine(files, packed=names, packed_seals=seals)


def packed_seals(
    connection: duckdb.DuckDBPyConnection, paths: Iterable[Path], run_ids: Collection[str]
) -> list[Seal]:
    """Return the seals of some runs in Parquet files: their own ends and those of runs that resume them.

    Raises `BrokenInput`.
    """
    found = []
    rows = f"FROM {PARQUET} WHERE kind ="
    for path in paths if run_ids else ():
        with reading(path):
            resuming = connection.execute(
                f"SELECT run_id, coalesce(resumes, []), started_at {rows} 'run' "
                "AND (list_has_any(resumes, ?::VARCHAR[]) OR list_contains(?::VARCHAR[], run_id))",
                [str(path), sorted(run_ids), sorted(run_ids)],
            ).fetchall()
            runs = {run_id: {"resumes": tuple(resumes), "began": began} for run_id, resumes, began in resuming}
            ends = connection.execute(
                f"SELECT run_id, file, line {rows} 'end' AND run_id IN (SELECT unnest(?::VARCHAR[]))",
                [str(path), sorted({*run_ids, *runs})],
            ).fetchall()
        seals = ((run_id, Seal.of(file, as_end(str(line).encode()))) for run_id, file, line in ends)
        found += [replace(seal, **runs.get(run_id, {})) for run_id, seal in seals if seal]
    return found


# Size of the text


def _check_unpacked(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Raise `ValueError` for a Parquet file that isn't evidence, or whose text doesn't fit in memory.

    Only lengths are read, which takes 0.5 s for 200,000 lines; the cache keeps which bytes were checked under which
    limits. Raises `duckdb.Error` for anything but Parquet.
    """
    stamp = _stamp(path)
    if stamp in _checked:
        return
    kept = _kept(path)
    if kept is None or not kept.exists():
        if wrong := _wrong_with(connection, str(path)):
            raise ValueError(wrong)
        if kept is not None and _stamp(path) == stamp:  # otherwise the file changed while it was checked
            with contextlib.suppress(OSError):
                write_whole(kept, b"")
    _checked.add(stamp)


def _stamp(path: Path) -> tuple[str, int, int, int, int]:
    found = path.stat()
    return str(path), found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _kept(path: Path) -> Path | None:
    """Return the file in the cache that records that these bytes were checked, or None if there is no cache."""
    limits = f"{MOST_ROWS} {LARGEST_TEXT} {LONGEST_LINE} {sorted(COLUMNS)} {sorted(_OWN)}"
    try:
        with opened(path) as file:
            digest = hashlib.file_digest(file, "sha256")
        digest.update(limits.encode())
        return cache_folder("looked-at-parquet") / digest.hexdigest()
    except (OSError, OutputError):
        return None


def _wrong_with(connection: duckdb.DuckDBPyConnection, path: str) -> str:
    names = connection.execute(f"SELECT * FROM {PARQUET} LIMIT 0", [path]).description or []
    kinds: dict[str, Any] = {name: kind for name, kind, *_ in names}
    for name, kind in _OWN.items():
        if str(kinds.get(name)) != kind:
            return f"it has no column {name} of type {kind}"
    (rows,) = connection.execute("SELECT sum(num_rows) FROM parquet_file_metadata(?)", [path]).fetchone() or (0,)
    if not 0 <= int(rows or 0) <= MOST_ROWS:
        return f"it has more than {MOST_ROWS:,} lines"
    read = [name for name in (*_OWN, *COLUMNS) if name in kinds]
    try:
        sizes = ", ".join(f"coalesce(sum({_length(name, kinds[name])}), 0)::HUGEINT" for name in read)
    except KeyError as error:
        return f"it has a column of type {error.args[0]}"
    (longest, *found) = connection.execute(
        f"SELECT max(strlen(line)), {sizes} FROM {PARQUET}", [path]
    ).fetchone() or (0,)
    if (longest or 0) > LONGEST_LINE:
        return f"it has a line of {size_text(longest)}"
    total = sum(map(int, found))
    return f"its text has {size_text(total)} in total" if total > LARGEST_TEXT else ""


def _length(name: str, kind: Any, depth: int = 0) -> str:
    """Return SQL for the length of a column's values. Raises `KeyError` for a type that evidence doesn't have."""
    if kind.id in ("varchar", "json"):
        return f"coalesce(strlen({name}::VARCHAR), 0)"
    if kind.id == "list":
        one = f"one_{depth}"
        ((_, inner),) = kind.children
        return f"coalesce(list_sum(list_transform({name}, lambda {one}: {_length(one, inner, depth + 1)} + 8)), 0)"
    if kind.id == "struct":
        return " + ".join(_length(f"{name}[{quoted(field)}]", inner, depth) for field, inner in kind.children)
    if kind.id in ("bigint", "integer", "boolean", "double"):
        return "8"
    raise KeyError(str(kind.id))
