"""Evidence as Parquet: the lines of many finished files in one, each as it was written, beside the columns of it.

`compact` changes no line: what is read from Parquet is what was read before, and file names and numbers stay. A file
whose run goes on, or that holds anything but whole lines, is left as it is.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BrokenInput, OutputError, echo
from ..untrusted import is_plain_file
from .columns import COLUMNS, LONGEST_LINE, connect, read_raw, unusual_paths
from .seals import altered_files
from .unpacked_size import check_unpacked

if TYPE_CHECKING:
    import duckdb

SUFFIX = ".parquet"

_AT_ONCE = 64
"""Lines that are fetched together: each may have 16 MiB."""


@dataclass(frozen=True, kw_only=True)
class Compacted:
    """What `compact` did: the file it made (None where there was nothing to do), and which it left and why."""

    path: Path | None
    files: int
    lines: int
    left: tuple[tuple[str, str], ...]


def compacted_files(folder: Path) -> list[Path]:
    """The Parquet files of a folder, by name; what is no regular file is left out."""
    return sorted(path for path in folder.glob(f"*{SUFFIX}") if is_plain_file(path))


def compacted_lines(path: Path, run_id: str = "") -> Iterator[tuple[str, bytes]]:
    """The lines of a Parquet file with the names of the files that they were in; `run_id` asks for one run's alone.

    Raises `BrokenInput` for a file of another kind.
    """
    import duckdb

    with tempfile.TemporaryDirectory() as temporary:
        connection = connect(Path(temporary))
        try:
            check_unpacked(connection, path)
            found = connection.execute(
                "SELECT file, line FROM read_parquet(?) WHERE starts_with(file, ?) ORDER BY file, number",
                [str(path), f"{run_id}-" if run_id else ""],
            )
            while rows := found.fetchmany(_AT_ONCE):
                yield from ((str(name), str(line).encode()) for name, line in rows)
        except (duckdb.Error, OSError, UnicodeError) as error:
            raise no_evidence(path, error) from error
        finally:
            connection.close()


def no_evidence(path: Path, error: Exception) -> BrokenInput:
    """The error for a Parquet file that holds something else."""
    why = str(error).splitlines()[0][:160]
    return BrokenInput(f"{echo(str(path))} is no compacted evidence", why=why, fix="Take it out of the folder.")


def compact(folder: Path) -> Compacted:
    """Put the lines of a folder's finished files into one Parquet file, and remove those files once it was read back.

    Raises `BrokenInput` where there is no such folder, `OutputError` where the new file can't be written.
    """
    import duckdb

    if not folder.is_dir():
        raise BrokenInput(f"{echo(str(folder))} is no folder of evidence", fix="Name one with --evidence.")
    paths = sorted(path for path in folder.glob("*.jsonl") if is_plain_file(path))
    if not paths:
        return Compacted(path=None, files=0, lines=0, left=())
    sizes = {path: path.stat().st_size for path in paths}
    with tempfile.TemporaryDirectory() as temporary:
        connection = connect(Path(temporary))
        try:
            read_raw(connection, paths)
            left = _left(connection, paths, folder)
            chosen = [path for path in paths if path.name not in left]
            made, lines = _written(connection, chosen, folder) if chosen else (None, 0)
        except (duckdb.Error, OSError) as error:
            raise OutputError(
                f"the evidence in {folder} can't be compacted", why=str(error).splitlines()[0][:160]
            ) from error
        finally:
            connection.close()
    for path in chosen:
        if path.stat().st_size == sizes[path]:  # one that grew meanwhile stays, and counts instead of its copy
            path.unlink()
    return Compacted(path=made, files=len(chosen), lines=lines, left=tuple(sorted(left.items())))


def _left(connection: duckdb.DuckDBPyConnection, paths: Sequence[Path], folder: Path) -> dict[str, str]:
    """The files that stay as they are, by name, each with the reason."""
    before = [str(path) for path in compacted_files(folder)]
    ended = {run for (run,) in connection.execute("SELECT run_id FROM raw WHERE kind = 'end'").fetchall()}
    ended |= {run for (run,) in connection.execute("SELECT unnest(resumes) FROM raw WHERE kind = 'run'").fetchall()}
    for path in compacted_files(folder):
        check_unpacked(connection, path)
    if before:
        found = connection.execute("SELECT run_id FROM read_parquet(?) WHERE kind = 'end'", [before]).fetchall()
        ended |= {run for (run,) in found}
    left = {}
    rows = connection.execute("SELECT path, list(DISTINCT run_id) FROM raw GROUP BY path").fetchall()
    runs = {Path(path).name: names for path, names in rows}
    unusual = {Path(path).name for path in unusual_paths(connection)}
    altered = altered_files(paths)
    for path in paths:
        if path in altered:
            left[path.name] = altered[path]
        elif path.name in unusual:
            left[path.name] = "not all of its lines are whole lines of this version"
        elif path.is_symlink() or path.name not in runs:
            left[path.name] = "it is a link or empty"
        elif not ended.issuperset(runs[path.name]):
            left[path.name] = "its run has no end"
    return left


def _written(connection: duckdb.DuckDBPyConnection, paths: Sequence[Path], folder: Path) -> tuple[Path, int]:
    sizes = "".join(f"{path.name} {path.stat().st_size}\n" for path in paths)
    made = folder / f"compacted-{hashlib.sha256(sizes.encode()).hexdigest()[:16]}{SUFFIX}"
    part = made.with_suffix(".part")
    names = [str(path) for path in paths]
    shape = ", ".join(f"raw.{name}" for name in COLUMNS)
    objects = f"read_json_objects(?, format='newline_delimited', filename='path', maximum_object_size={LONGEST_LINE})"
    connection.execute(f"CREATE TEMP TABLE texts AS SELECT path AS text_path, json AS line FROM {objects}", [names])
    connection.execute(
        "CREATE TEMP TABLE placed AS SELECT text_path, line, texts.rowid - first AS place FROM texts JOIN "
        "(SELECT text_path, min(rowid) AS first FROM texts GROUP BY text_path) USING (text_path)"
    )
    try:
        connection.execute(
            f"COPY (SELECT parse_filename(raw.path) AS file, raw.number AS number, {shape}, line::VARCHAR AS line "
            "FROM raw JOIN placed ON raw.path = text_path AND raw.number = place ORDER BY file, number) "
            f"TO '{quoted(part)}' (FORMAT parquet, COMPRESSION zstd)"
        )
        total = "SELECT count(*), bit_xor(hash(file, number, line)) FROM"
        before = "(SELECT parse_filename(text_path) AS file, place AS number, line::VARCHAR AS line FROM placed)"
        wanted = connection.execute(f"{total} {before}").fetchall()
        found = connection.execute(f"{total} read_parquet(?)", [str(part)]).fetchall()
        if wanted != found:
            raise OSError("what was written isn't what was read")
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(made)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return made, int(found[0][0])


def quoted(path: Path) -> str:
    """A path for a text of SQL, in single quotes."""
    return str(path).replace("'", "''")
