"""Where compacted evidence lies: Parquet in a folder itself, and in folders of the month in which its runs started.

A file of JSON lines is in one Parquet file as a whole, and its name alone says in which month: who asks about one run
opens nothing else. By target nothing is divided: a run has lines of many, and would be torn apart.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BrokenInput, echo
from ..untrusted import is_plain_file
from .seals import Seal, as_end
from .unpacked_size import check_unpacked

if TYPE_CHECKING:
    import duckdb

SUFFIX = ".parquet"
UNKNOWN = "month=unknown"
"""Where files lie whose names tell no moment."""

PARTITION = re.compile(r"month=(?:[0-9]{4}-(?:0[1-9]|1[0-2])|unknown)")
_STARTED = re.compile(r"(?P<year>[0-9]{4})(?P<month>0[1-9]|1[0-2])[0-9]{2}T")

PARQUET = "read_parquet(?, hive_partitioning=false)"
"""What is in the file counts: a folder on the way to it that is called `kind=check` is no column."""


def partition_of(name: str) -> str:
    """The name of the folder that a file of evidence belongs to once it is compacted: `month=2026-11`."""
    found = _STARTED.match(name)
    return f"month={found['year']}-{found['month']}" if found else UNKNOWN


def compacted_files(folder: Path, run_id: str = "") -> list[Path]:
    """The Parquet files of a folder and of its months, by name; with `run_id` those that may hold that run's lines.

    What is no regular file is left out, and so are links to folders.
    """
    months = [path for path in folder.glob("month=*") if PARTITION.fullmatch(path.name) and not path.is_symlink()]
    if run_id:
        months = [path for path in months if path.name == partition_of(run_id)]
    found = [path for place in (folder, *months) for path in place.glob(f"*{SUFFIX}")]
    return sorted(path for path in found if is_plain_file(path))


def held(
    connection: duckdb.DuckDBPyConnection, paths: Iterable[Path], run_id: str = ""
) -> dict[Path, dict[str, int]]:
    """The names of the files that each Parquet file has lines of, with how many; of one run, where it is named.

    Raises `BrokenInput` where one is no evidence, or has lines of another month than its folder's; `duckdb.Error`,
    `OSError`.
    """
    found: dict[Path, dict[str, int]] = {}
    for path in paths:
        check_unpacked(connection, path)
        where, values = _of_run(run_id)
        rows = connection.execute(f"SELECT file, count(*) FROM {PARQUET} {where} GROUP BY file", [str(path), *values])
        found[path] = {str(name): int(lines) for name, lines in rows.fetchall()}
        if PARTITION.fullmatch(path.parent.name):
            _check_month(path, found[path])
    return found


def _of_run(run_id: str) -> tuple[str, list[str]]:
    """A condition that statistics of columns can be held against: names between `run-` and what follows on it."""
    return ("WHERE file >= ? AND file < ?", [f"{run_id}-", f"{run_id}."]) if run_id else ("", [])


def _check_month(path: Path, names: Iterable[str]) -> None:
    wrong = next((name for name in names if partition_of(name) != path.parent.name), None)
    if wrong is not None:
        raise BrokenInput(
            f"{echo(str(path))} lies in the wrong folder",
            why=f"{echo(wrong)} is of {partition_of(wrong)}",
            fix=f"Move it out of {path.parent.name}, into the folder of evidence itself.",
        )


def owners(lines: Mapping[Path, Mapping[str, int]]) -> dict[str, Path]:
    """Which Parquet file the lines of each name are taken from: where it stands in several, from the one that has
    most of it, since evidence only grows; of two that have as much, the first by name."""
    found: dict[str, Path] = {}
    for path, names in lines.items():
        for name, number in names.items():
            if name not in found or number > lines[found[name]][name]:
                found[name] = path
    return found


def lines_in(connection: duckdb.DuckDBPyConnection, path: Path, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """The lines of some files that a Parquet file holds, with the names of those files, by file and number."""
    wanted = sorted(names)
    if not wanted:
        return
    found = connection.execute(
        f"SELECT file, line FROM {PARQUET} WHERE file >= ? AND file <= ? "
        "AND file IN (SELECT unnest(?::VARCHAR[])) ORDER BY file, number",
        [str(path), wanted[0], wanted[-1], wanted],
    )
    while rows := found.fetchmany(_AT_ONCE):
        yield from ((str(name), str(line).encode()) for name, line in rows)


def packed_seals(
    connection: duckdb.DuckDBPyConnection, paths: Iterable[Path], run_ids: Collection[str]
) -> list[Seal]:
    """The seals in some Parquet files that tell of some runs: their own ends, and those of the runs that resume them.

    Raises `duckdb.Error`.
    """
    found = []
    rows = f"FROM {PARQUET} WHERE kind ="
    for path in paths if run_ids else ():
        resuming = connection.execute(
            f"SELECT run_id, coalesce(resumes, []), started_at {rows} 'run' "
            "AND (list_has_any(resumes, ?::VARCHAR[]) OR list_contains(?::VARCHAR[], run_id))",
            [str(path), sorted(run_ids), sorted(run_ids)],
        ).fetchall()
        runs = {run_id: {"resumes": tuple(resumes), "began": began} for run_id, resumes, began in resuming}
        wanted = sorted({*run_ids, *runs})
        ends = connection.execute(
            f"SELECT run_id, file, line {rows} 'end' AND run_id IN (SELECT unnest(?::VARCHAR[]))", [str(path), wanted]
        ).fetchall()
        seals = ((run_id, Seal.of(file, as_end(str(line).encode()))) for run_id, file, line in ends)
        found += [replace(seal, **runs.get(run_id, {})) for run_id, seal in seals if seal]
    return found


_AT_ONCE = 64
"""Lines that are fetched together: each may have 16 MiB."""


def quoted(path: Path | str) -> str:
    """A path for a text of SQL, in single quotes."""
    return str(path).replace("'", "''")
