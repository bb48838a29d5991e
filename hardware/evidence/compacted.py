"""Compact evidence: store the lines of many finished files in one Parquet file, unchanged, with their columns.

File names and line numbers are kept, so that Parquet gives the same evidence as JSON lines. Files of unfinished runs
and files with broken lines are left alone. Nothing is removed before its replacement was read back: a killed process
leaves lines in two places, of which one is read, and never in none.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BrokenInput, OutputError, echo
from ..files import one_at_a_time
from ..safe_read import is_plain_file, opened
from .columns import COLUMNS, LONGEST_LINE, connected, read_raw, unusual_paths
from .parquet import PARQUET, PARTITION, SUFFIX, compacted_files, examined_in, held, partition_of, quoted
from .seals import end_of, run_of

if TYPE_CHECKING:
    import duckdb

BATCH = 256 * 1024 * 1024
"""Bytes of JSON lines in one Parquet file, unless a single run has more. Writing it takes 1 GB of memory, however
large the folder is."""

SMALL = 16 * 1024 * 1024
"""In bytes. Larger Parquet files aren't joined, so that a line is rewritten only a few times."""

MOST_LINES = 250_000
"""The largest number of lines in a joined file: lines may compress well, and memory holds them uncompressed."""

_ROW_GROUP = 8192
"""Lines that are compressed together; a run of all types has 10,000. Reading one line decompresses its whole group. A
larger group would save 5 % of the space."""

_COPY = f"(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {_ROW_GROUP})"
_PART = ".part"

_DAMAGED_RUN = "another file of its run was changed, added or removed after the run ended"
"""Why a file is left: with the end of its run in Parquet, the damage could no longer be detected."""

_RESUMES = re.compile(rb'"resumes": ?\[([^\]]*)\]')
_RUN_ID = re.compile(rb'"([^"\\]{1,200})"')


@dataclass(frozen=True, kw_only=True)
class Compacted:
    """The result of `compact`: the Parquet files it wrote, the number of files and lines in them, the files it left
    with the reasons, and in `joined` earlier Parquet files whose lines are now in one of the new ones."""

    paths: tuple[Path, ...] = ()
    files: int = 0
    lines: int = 0
    left: tuple[tuple[str, str], ...] = ()
    joined: int = 0


def compact(folder: Path) -> Compacted:
    """Move the lines of finished files into Parquet files by month, in batches that fit in memory.

    Each file is removed after its lines were read back; then the small Parquet files of each month are joined. One
    process at a time compacts a folder. Raises `BrokenInput` if there is no such folder or it has a foreign Parquet
    file; `OutputError` if a new file can't be written, which undoes nothing that was done before.
    """
    import duckdb

    if not folder.is_dir():
        raise BrokenInput(f"{echo(str(folder))} is not an evidence folder", fix="Give one with --evidence.")
    try:
        with one_at_a_time(folder):
            _remove_leftovers(folder)
            done = _compacted(folder)
            made, joined = _join_small(folder)
    except (duckdb.Error, OSError) as error:
        raise OutputError(
            f"the evidence in {folder} can't be compacted", why=str(error).splitlines()[0][:160]
        ) from error
    paths = tuple(path for path in (*done.paths, *made) if path.exists())
    return Compacted(paths=paths, files=done.files, lines=done.lines, left=done.left, joined=joined)


def _remove_leftovers(folder: Path) -> None:
    """Remove unfinished files of a killed process. No other process writes while this one holds the folder's lock."""
    for place in (folder, *folder.glob("month=*")):
        if place == folder or (PARTITION.fullmatch(place.name) and not place.is_symlink()):
            for path in (*place.glob(f"part-*{_PART}"), *place.glob(f"compacted-*{_PART}")):
                path.unlink(missing_ok=True)


# From JSON lines


def _compacted(folder: Path) -> Compacted:
    paths = sorted(path for path in folder.glob("*.jsonl") if is_plain_file(path))
    ended = ended_runs(paths) | _ended_before(folder) if paths else set()
    found = examined_in(folder, {path.name: path for path in paths if path.stat().st_size})
    left = {path.name: _DAMAGED_RUN for path in paths if run_of(path.name) in found.runs} | found.refused
    made: list[Path] = []
    files = lines = 0
    for batch in batches([path for path in paths if path.name not in left]):
        sizes = {path: path.stat().st_size for path in batch}
        with connected() as connection:
            chosen, other = _chosen_of(connection, batch, ended)
            left |= other
            if chosen:
                path, number = _write_batch(connection, chosen, folder)
                made.append(path)
                files, lines = files + len(chosen), lines + number
        for path in chosen:
            if path.stat().st_size == sizes[path]:  # one that has grown replaces its copy
                path.unlink()
    return Compacted(paths=tuple(made), files=files, lines=lines, left=tuple(sorted(left.items())))


def ended_runs(paths: Iterable[Path]) -> set[str]:
    """Return the runs whose end is the last line of a file, and the runs that another one resumed."""
    found: set[str] = set()
    for path in paths:
        _, end = end_of(path)
        found |= {str(end["run_id"])} if "run_id" in end else set()
        with opened(path) as file:
            first = file.readline(LONGEST_LINE)
        if b'"kind": "run"' in first or b'"kind":"run"' in first:
            resumed = b",".join(one.group(1) for one in _RESUMES.finditer(first))
            found |= {one.decode("utf-8", "replace") for one in _RUN_ID.findall(resumed)}
    return found


def _ended_before(folder: Path) -> set[str]:
    """Return the runs whose end is compacted already."""
    with connected() as connection:
        rows = [
            connection.execute(f"SELECT run_id FROM {PARQUET} WHERE kind = 'end'", [str(path)]).fetchall()
            for path in held(connection, compacted_files(folder))
        ]
    return {run_id for some in rows for (run_id,) in some}


def batches(paths: Iterable[Path], most: int = BATCH) -> Iterator[list[Path]]:
    """Yield files by month, those of one run together, in batches of up to `most` bytes."""
    for _, month in groupby(sorted(paths), key=lambda path: partition_of(path.name)):
        runs = [list(own) for _, own in groupby(month, key=lambda path: run_of(path.name))]
        yield from _in_batches(most, ((own, sum(path.stat().st_size for path in own)) for own in runs))


def _in_batches(most: int, groups: Iterable[tuple[Sequence[Path], int]]) -> Iterator[list[Path]]:
    """Yield groups of files, each with its size, joined into batches of at most `most`."""
    waiting: list[Path] = []
    size = 0
    for files, more in groups:
        if waiting and size + more > most:
            yield waiting
            waiting, size = [], 0
        waiting = [*waiting, *files]
        size += more
    if waiting:
        yield waiting


def _chosen_of(
    connection: duckdb.DuckDBPyConnection, paths: Sequence[Path], ended: set[str]
) -> tuple[list[Path], dict[str, str]]:
    """Return the files that can be compacted, and the others by name with the reason. `ended` are finished runs. The
    lines of all files are in the table `raw` afterwards."""
    read_raw(connection, paths)
    rows = connection.execute("SELECT path, list(DISTINCT run_id) FROM raw GROUP BY path").fetchall()
    runs = {Path(path).name: names for path, names in rows}
    unusual = {Path(path).name for path in unusual_paths(connection)}
    left = {}
    for path in paths:
        if path.name in unusual:
            left[path.name] = "it has incomplete lines, or lines that this version can't read"
        elif path.is_symlink() or path.name not in runs:
            left[path.name] = "it is a symbolic link or empty"
        elif not ended >= set(runs[path.name]):
            left[path.name] = "its run has not ended"
    return [path for path in paths if path.name not in left], left


def _write_batch(connection: duckdb.DuckDBPyConnection, paths: Sequence[Path], folder: Path) -> tuple[Path, int]:
    """Write the lines of files of one month, which are in `raw`, to a Parquet file. Return its path and its number of
    lines."""
    sizes = "".join(f"{path.name} {path.stat().st_size}\n" for path in paths)
    shape = ", ".join(f"raw.{name}" for name in COLUMNS)
    options = f"filename='path', hive_partitioning=false, maximum_object_size={LONGEST_LINE}"
    objects = f"read_json_objects(?, format='newline_delimited', {options})"
    connection.execute(
        f"CREATE TEMP TABLE texts AS SELECT path AS text_path, json AS line FROM {objects}",
        [[str(path) for path in paths]],
    )
    connection.execute(
        "CREATE TEMP TABLE placed AS SELECT text_path, line, texts.rowid - first AS place FROM texts JOIN "
        "(SELECT text_path, min(rowid) AS first FROM texts GROUP BY text_path) USING (text_path)"
    )
    rows = (
        f"SELECT parse_filename(raw.path) AS file, raw.number AS number, {shape}, line::VARCHAR AS line "
        "FROM raw JOIN placed ON raw.path = text_path AND raw.number = place"
    )
    wanted = "SELECT parse_filename(text_path) AS file, place AS number, line::VARCHAR AS line FROM placed"
    return _write_verified(connection, rows, wanted, folder / partition_of(paths[0].name), sizes)


def _write_verified(
    connection: duckdb.DuckDBPyConnection, rows: str, wanted: str, month: Path, of: str
) -> tuple[Path, int]:
    """Write the result of the query `rows`, ordered by file and number, to a file of a month that is named after
    `of`. Return its path and its number of lines. The file appears after it was read back and equals the result of
    `wanted`. Raises `OSError`, `duckdb.Error`."""
    month.mkdir(exist_ok=True)
    if month.is_symlink():
        raise OSError(f"{month.name} is a symbolic link")
    made = month / f"part-{hashlib.sha256(of.encode()).hexdigest()[:16]}{SUFFIX}"
    part = made.with_suffix(_PART)
    total = "SELECT count(*), bit_xor(hash(file, number, line)), sum(hash(number, file, line)) FROM"
    try:
        connection.execute(f"COPY ({rows} ORDER BY file, number) TO {quoted(part)} {_COPY}")
        before = connection.execute(f"{total} ({wanted})").fetchall()
        found = connection.execute(f"{total} {PARQUET}", [str(part)]).fetchall()
        if before != found:
            raise OSError("the written file differs from its source")
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(made)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return made, int(found[0][0])


# From small Parquet files of one month


def _join_small(folder: Path) -> tuple[list[Path], int]:
    """Join the small files of each month. Return the new files and the number of files that they replace.

    A replaced file is removed after the new one was read back, and so is a file whose lines are all in others: a
    process that is killed in between leaves such files.
    """
    made: list[Path] = []
    gone: list[Path] = []
    with connected() as connection:
        for month, group in groupby(compacted_files(folder), key=lambda path: path.parent):
            if month == folder:
                continue
            lines = held(connection, group)
            for path in _duplicates(connection, lines):
                path.unlink()
                gone.append(path)
                del lines[path]
            # If copies of a name differ, one counts; they aren't mixed.
            number = Counter(name for names in lines.values() for name in names)
            alone = [path for path, names in lines.items() if all(number[name] == 1 for name in names)]
            small = [path for path in alone if path.stat().st_size < SMALL]
            for some in _in_batches(MOST_LINES, (([path], sum(lines[path].values())) for path in small)):
                if len(some) > 1:
                    made.append(_join(connection, some, month))
                    for path in some:
                        path.unlink()
                    gone += some
    return made, len(gone)


def _duplicates(connection: duckdb.DuckDBPyConnection, lines: Mapping[Path, Mapping[str, int]]) -> list[Path]:
    """Return the files whose every line is in other files too, byte for byte; one of two equal files."""
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


def _join(connection: duckdb.DuckDBPyConnection, paths: Sequence[Path], month: Path) -> Path:
    """Write the lines of several files that share no name to one file."""
    source = f"read_parquet([{', '.join(map(quoted, paths))}], hive_partitioning=false, union_by_name=true)"
    rows = f"SELECT {', '.join(('file', 'number', *COLUMNS, 'line'))} FROM {source}"
    wanted = f"SELECT file, number, line FROM {source}"
    return _write_verified(connection, rows, wanted, month, "".join(f"{path.name}\n" for path in paths))[0]
