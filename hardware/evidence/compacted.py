"""Evidence as Parquet: the lines of many finished files in one, each as it was written, beside the columns of it.

`compact` changes no line: what is read from Parquet is what was read before, and file names and numbers stay. A file
whose run goes on, or that holds anything but whole lines, is left as it is. Nothing is removed before what takes its
place was read back: a process that is killed leaves lines in two places, which are read from one, and never in none.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import BrokenInput, OutputError, echo
from ..untrusted import is_plain_file
from ..whole_file import one_at_a_time
from .batches import batches, chosen_of, ended_runs, write_batch
from .columns import connect
from .joining import join_small, remove_leftovers
from .partitions import SUFFIX, compacted_files, held, lines_in, owners, packed_seals
from .seals import Examined, examine, run_of

__all__ = [
    "SUFFIX",
    "Compacted",
    "compact",
    "compacted_files",
    "compacted_lines",
    "examined_in",
    "no_evidence",
    "owned_lines",
]
_BESIDE = "another file of its run was changed, added or lost after the run had ended"
"""Why a file is left: with its run's end in Parquet, nothing would tell any more."""


@dataclass(frozen=True, kw_only=True)
class Compacted:
    """What `compact` did: the Parquet files that it made, how many files and lines went into them, and which files
    it left and why. `joined` are earlier Parquet files whose lines are in one of the new ones now."""

    paths: tuple[Path, ...] = ()
    files: int = 0
    lines: int = 0
    left: tuple[tuple[str, str], ...] = ()
    joined: int = 0


def compacted_lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """The lines of a Parquet file with the names of the files that they were in.

    Raises `BrokenInput` for a file of another kind.
    """
    yield from _lines([path], "")


def owned_lines(folder: Path, run_id: str = "") -> Iterator[tuple[str, bytes]]:
    """The lines of a folder's Parquet files, each name's from one of them. Raises `BrokenInput`."""
    yield from _lines(compacted_files(folder, run_id), run_id)


def _lines(paths: Sequence[Path], run_id: str) -> Iterator[tuple[str, bytes]]:
    if not paths:
        return
    # A bundle reads its folder with the packages of the lab machine, and holds nothing compacted.
    import duckdb

    path = paths[0]
    with tempfile.TemporaryDirectory() as temporary:
        connection = connect(Path(temporary))
        try:
            found: dict[Path, dict[str, int]] = {}
            for path in paths:
                found |= held(connection, [path], run_id)
            owner = owners(found)
            for path in paths:
                yield from lines_in(connection, path, [name for name in found[path] if owner[name] == path])
        except (duckdb.Error, OSError, UnicodeError) as error:
            raise no_evidence(path, error) from error
        finally:
            connection.close()


def examined_in(folder: Path, files: Mapping[str, Path | bytes], run_id: str = "") -> Examined:
    """Hold files of a folder against the ends of their runs, which may be compacted. Raises `BrokenInput`."""
    paths = compacted_files(folder, run_id)
    if not (paths and files):
        return examine(files)
    import duckdb

    path = paths[0]
    with tempfile.TemporaryDirectory() as temporary:
        connection = connect(Path(temporary))
        try:
            names = {name for path in paths for name in held(connection, [path], run_id)[path]}
            seals = packed_seals(connection, paths, {run_of(name) for name in files})
        except (duckdb.Error, OSError) as error:
            raise no_evidence(path, error) from error
        finally:
            connection.close()
    return examine(files, packed=names, packed_seals=seals)


def no_evidence(path: Path, error: Exception) -> BrokenInput:
    """The error for a Parquet file that holds something else."""
    why = str(error).splitlines()[0][:160]
    return BrokenInput(f"{echo(str(path))} is no compacted evidence", why=why, fix="Take it out of the folder.")


def compact(folder: Path) -> Compacted:
    """Put the lines of a folder's finished files into Parquet files by month, so many at a time that memory holds
    them, and remove those files once each was read back; then join the small Parquet files of each month.

    One process at a time compacts a folder. Raises `BrokenInput` where there is no such folder, or one of its Parquet
    files is of another kind; `OutputError` where a new file can't be written: what was done before that stays done.
    """
    import duckdb

    if not folder.is_dir():
        raise BrokenInput(f"{echo(str(folder))} is no folder of evidence", fix="Name one with --evidence.")
    try:
        with one_at_a_time(folder):
            remove_leftovers(folder)
            done = _compacted(folder)
            made, joined = join_small(folder)
    except (duckdb.Error, OSError) as error:
        raise OutputError(
            f"the evidence in {folder} can't be compacted", why=str(error).splitlines()[0][:160]
        ) from error
    paths = tuple(path for path in (*done.paths, *made) if path.exists())
    return Compacted(paths=paths, files=done.files, lines=done.lines, left=done.left, joined=joined)


def _compacted(folder: Path) -> Compacted:
    paths = sorted(path for path in folder.glob("*.jsonl") if is_plain_file(path))
    ended = ended_runs(paths) | _ended_before(folder) if paths else set()
    found = examined_in(folder, {path.name: path for path in paths if path.stat().st_size})
    left = {path.name: _BESIDE for path in paths if run_of(path.name) in found.runs} | found.refused
    made: list[Path] = []
    files = lines = 0
    for batch in batches([path for path in paths if path.name not in left]):
        sizes = {path: path.stat().st_size for path in batch}
        with tempfile.TemporaryDirectory() as temporary:
            connection = connect(Path(temporary))
            try:
                chosen, other = chosen_of(connection, batch, ended)
                left |= other
                if chosen:
                    path, number = write_batch(connection, chosen, folder)
                    made.append(path)
                    files, lines = files + len(chosen), lines + number
            finally:
                connection.close()
        _remove(chosen, sizes)
    return Compacted(paths=tuple(made), files=files, lines=lines, left=tuple(sorted(left.items())))


def _remove(paths: Sequence[Path], sizes: Mapping[Path, int]) -> None:
    """One that grew meanwhile stays, and counts instead of its copy."""
    for path in paths:
        if path.stat().st_size == sizes[path]:
            path.unlink()


def _ended_before(folder: Path) -> set[str]:
    """The runs of which an end was compacted already."""
    found: set[str] = set()
    with tempfile.TemporaryDirectory() as temporary:
        connection = connect(Path(temporary))
        try:
            for path in compacted_files(folder):
                held(connection, [path])
                rows = connection.execute(
                    "SELECT run_id FROM read_parquet(?, hive_partitioning=false) WHERE kind = 'end'", [str(path)]
                ).fetchall()
                found |= {run_id for (run_id,) in rows}
        finally:
            connection.close()
    return found
