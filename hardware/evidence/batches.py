"""Which files of evidence are compacted together, which are left, and one Parquet file of some of them."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..untrusted import opened
from .columns import COLUMNS, LONGEST_LINE, read_raw, unusual_paths
from .partitions import PARQUET, SUFFIX, partition_of, quoted
from .seals import end_of

if TYPE_CHECKING:
    import duckdb

BATCH = 256 * 1024 * 1024
"""In bytes of JSON lines: what is put into one Parquet file, unless a single run has more. It takes a gigabyte of
memory, however much the folder holds."""

ROW_GROUP = 8192
"""Lines that are packed together: a run of all types has ten thousand. Of a larger group all must be unpacked to read
one line; a twentieth of the space would be saved."""

COPY = f"(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {ROW_GROUP})"
PART = ".part"

_RESUMES = re.compile(rb'"resumes": ?\[([^\]]*)\]')
_RUN_ID = re.compile(rb'"([^"\\]{1,200})"')


def batches(paths: Iterable[Path], most: int = BATCH) -> Iterator[list[Path]]:
    """Files by month, those of one run together, up to `most` bytes at a time."""
    waiting: list[Path] = []
    size, month = 0, ""
    for run_id, own in itertools.groupby(sorted(paths), key=lambda path: path.name.rpartition("-")[0]):
        files = list(own)
        more = sum(path.stat().st_size for path in files)
        if waiting and (size + more > most or partition_of(run_id) != month):
            yield waiting
            waiting, size = [], 0
        waiting += files
        size, month = size + more, partition_of(run_id)
    if waiting:
        yield waiting


def ended_runs(paths: Iterable[Path]) -> set[str]:
    """The runs that have an end as the last line of a file, and those that another one resumed as its first says."""
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


def chosen_of(
    connection: duckdb.DuckDBPyConnection, paths: Sequence[Path], ended: Collection[str]
) -> tuple[list[Path], dict[str, str]]:
    """Of some files those that can be compacted, and the others by name, each with the reason. Their lines stand in
    the table `raw` afterwards. `ended` are runs that are known to be over."""
    read_raw(connection, paths)
    over = {run for (run,) in connection.execute("SELECT run_id FROM raw WHERE kind = 'end'").fetchall()}
    over |= {run for (run,) in connection.execute("SELECT unnest(resumes) FROM raw WHERE kind = 'run'").fetchall()}
    over |= set(ended)
    rows = connection.execute("SELECT path, list(DISTINCT run_id) FROM raw GROUP BY path").fetchall()
    runs = {Path(path).name: names for path, names in rows}
    unusual = {Path(path).name for path in unusual_paths(connection)}
    left = {}
    for path in paths:
        if path.name in unusual:
            left[path.name] = "not all of its lines are whole lines of this version"
        elif path.is_symlink() or path.name not in runs:
            left[path.name] = "it is a link or empty"
        elif not over.issuperset(runs[path.name]):
            left[path.name] = "its run has no end"
    return [path for path in paths if path.name not in left], left


def write_batch(connection: duckdb.DuckDBPyConnection, paths: Sequence[Path], folder: Path) -> tuple[Path, int]:
    """One Parquet file of the lines of some files of one month that stand in `raw`; returns where it is, and how many
    lines it has. It appears when it was read back. Raises `OSError`, `duckdb.Error`."""
    sizes = "".join(f"{path.name} {path.stat().st_size}\n" for path in paths)
    place = folder / partition_of(paths[0].name)
    shape = ", ".join(f"raw.{name}" for name in COLUMNS)
    objects = f"read_json_objects(?, format='newline_delimited', filename='path', maximum_object_size={LONGEST_LINE})"
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
    return write_verified(connection, rows, wanted, place / f"part-{_digest(sizes)}{SUFFIX}")


def write_verified(connection: duckdb.DuckDBPyConnection, rows: str, wanted: str, made: Path) -> tuple[Path, int]:
    """Write what the query `rows` gives, by file and number, to `made`, once it was read back and is what `wanted`
    gives: file, number and line. Returns where it is and how many lines it has."""
    made.parent.mkdir(exist_ok=True)
    if made.parent.is_symlink():
        raise OSError(f"{made.parent.name} is a link to another folder")
    part = made.with_suffix(PART)
    total = "SELECT count(*), bit_xor(hash(file, number, line)), sum(hash(number, file, line)) FROM"
    try:
        connection.execute(f"COPY ({rows} ORDER BY file, number) TO '{quoted(part)}' {COPY}")
        before = connection.execute(f"{total} ({wanted})").fetchall()
        found = connection.execute(f"{total} {PARQUET}", [str(part)]).fetchall()
        if before != found:
            raise OSError("what was written isn't what was read")
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(made)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return made, int(found[0][0])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
