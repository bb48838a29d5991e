"""The lines of a folder as tables in DuckDB: columns that tell lines apart, and the lines themselves where they lie.

A million lines are told apart in seconds, where an object of each takes minutes. Only lines that are asked for become
objects. A file in which anything but whole lines of this version shows is read line by line in Python, so that there
is one way only to tell what is broken.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from ..errors import HwCompatError
from ..untrusted import opened
from .columns import PLAN, connect, read_raw, unusual_paths
from .compacted import compacted_files, no_evidence, quoted
from .record import CheckLine, EndLine, Line, RunLine
from .seals import altered_files
from .store import BrokenLine, check_folder, evidence_files, read_file, read_line, sealed_off, whole_lines
from .unpacked_size import check_unpacked

_FILE = 1 << 40
"""A line's place in a folder is one number: its file's, by name, times this, and its own in that file."""

_CHECK_NAMES = (
    "run_id",
    "cell_id",
    "check_name",
    "requested_target",
    "accelerator",
    "outcome",
    "error_type",
    "started_at",
    "origin",
)
_CHECKS = f"place BIGINT, {', '.join(f'{name} VARCHAR' for name in _CHECK_NAMES)}"
_RUN_NAMES = ("run_id", "started_at", "machine", "origin")
_RUNS = (
    f"place BIGINT, {', '.join(f'{name} VARCHAR' for name in _RUN_NAMES)}, versions VARCHAR, resumes VARCHAR[], "
    f"plan {PLAN}"
)
_PLAN_NAMES = ("cell_id", "suite", "suite_hash", "subject", "made_from")
_CHECK_VALUES = (
    "first + number AS place, run_id, cell_id, check_name, requested_target, accelerator, outcome, "
    "coalesce(error_type, '') AS error_type, started_at, coalesce(origin, 'hwcompat') AS origin"
)
_RUN_VALUES = (
    "first + number AS place, run_id, started_at, machine, coalesce(origin, 'hwcompat') AS origin, versions, "
    "coalesce(resumes, []) AS resumes, plan"
)
_AT_ONCE = 10_000


class UnusualEvidenceError(Exception):
    """The tables can't be believed: somebody has to read the folder as objects."""


class EvidenceTable:
    """The tables `checks`, `runs` and `ended` of a folder in `connection`; `broken` are lines that were found broken
    so far. `ended` names the runs that have an end.

    Used as a context. Raises `BrokenInput` where there is no such folder or a Parquet file is of another kind,
    `UnusualEvidenceError` where DuckDB can't read what Python may.
    """

    def __init__(self, folder: Path) -> None:
        check_folder(folder)
        self.folder = folder
        self.broken: list[BrokenLine] = []
        self._temporary = tempfile.TemporaryDirectory()
        self.connection = connect(Path(self._temporary.name))
        self._files: list[str] = []
        self._compacted: dict[str, Path] = {}
        self._objects: dict[int, Line] = {}

    def __enter__(self) -> EvidenceTable:
        import duckdb

        try:
            self._fill()
        except duckdb.Error as error:
            self.close()
            raise UnusualEvidenceError(str(error)) from error
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give back what the tables hold."""
        self.connection.close()
        self._temporary.cleanup()

    def _fill(self) -> None:
        raw, broken = evidence_files(self.folder)
        self.broken += broken
        raw = {name: path for name, path in raw.items() if path.stat().st_size}
        for path in compacted_files(self.folder):
            for name in self._names_in(path):
                if name not in raw:
                    self._compacted.setdefault(name, path)
        self._files = sorted({*raw, *self._compacted})
        self.connection.execute("CREATE TABLE files (path VARCHAR, file VARCHAR, first BIGINT)")
        places = [str(self._compacted.get(name) or raw[name]) for name in self._files]
        firsts = [number * _FILE for number in range(len(self._files))]
        self.connection.execute(
            "INSERT INTO files SELECT unnest(?::VARCHAR[]), unnest(?::VARCHAR[]), unnest(?::BIGINT[])",
            [places, self._files, firsts],
        )
        self.connection.execute(f"CREATE TABLE own_checks ({_CHECKS}); CREATE TABLE own_runs ({_RUNS})")
        self.connection.execute("CREATE TABLE ended (run_id VARCHAR)")
        checks, runs = ["SELECT * FROM own_checks"], ["SELECT * FROM own_runs"]
        altered = altered_files(list(raw.values()))
        for path in altered:
            self.broken += sealed_off(path, altered)[1]
            del raw[path.name]
        if raw:
            self._take_raw(raw)
            checks.append("SELECT * FROM raw_checks")
        for path in sorted(set(self._compacted.values())):
            name = quoted(path)
            source = f"FROM read_parquet('{name}') JOIN files USING (file) WHERE files.path = '{name}'"
            checks.append(f"SELECT {_CHECK_VALUES} {source} AND kind = 'check'")
            runs.append(f"SELECT {_RUN_VALUES} {source} AND kind = 'run'")
            self.connection.execute(f"INSERT INTO ended SELECT run_id {source} AND kind = 'end'")
        self.connection.execute(
            f"CREATE VIEW checks AS {' UNION ALL '.join(checks)}; CREATE TABLE runs AS {' UNION ALL '.join(runs)}"
        )

    def _names_in(self, path: Path) -> list[str]:
        import duckdb

        try:
            check_unpacked(self.connection, path)
            found = self.connection.execute("SELECT DISTINCT file FROM read_parquet(?)", [str(path)]).fetchall()
        except (duckdb.Error, OSError) as error:
            raise no_evidence(path, error) from error
        return [str(name) for (name,) in found]

    def _take_raw(self, raw: dict[str, Path]) -> None:
        """Put the lines of JSON lines into tables: what was scanned once is asked several times."""
        read_raw(self.connection, list(raw.values()))
        unusual = unusual_paths(self.connection)
        for path in raw.values():
            if str(path) in unusual:
                self._read_as_objects(path)
        self.connection.execute(
            "CREATE TABLE usual AS SELECT * FROM files WHERE path NOT IN (SELECT unnest(?::VARCHAR[]))",
            [sorted(unusual)],
        )
        source = "FROM raw JOIN usual USING (path) WHERE kind ="
        self.connection.execute(
            f"CREATE TABLE raw_checks AS SELECT {_CHECK_VALUES} {source} 'check'; "
            f"INSERT INTO own_runs BY NAME SELECT {_RUN_VALUES} {source} 'run'; "
            f"INSERT INTO ended SELECT run_id {source} 'end'; "
            "DROP VIEW raw; DROP TABLE scanned"
        )

    def _read_as_objects(self, path: Path) -> None:
        lines, broken = read_file(path)
        self.broken += broken
        first = self._files.index(path.name) * _FILE
        checks: list[dict[str, Any]] = []
        runs: list[dict[str, Any]] = []
        for place, line in enumerate(lines, start=first):
            self._objects[place] = line
            if isinstance(line, CheckLine):
                checks.append({"place": place} | {name: getattr(line, name) for name in _CHECK_NAMES})
            elif isinstance(line, RunLine):
                plan = [
                    {"checks": one.checks} | {name: getattr(one, name) for name in _PLAN_NAMES} for one in line.plan
                ]
                more = {"place": place, "versions": json.dumps(dict(line.versions)), "plan": plan}
                more["resumes"] = list(line.resumes)
                runs.append(more | {name: getattr(line, name) for name in _RUN_NAMES})
            elif isinstance(line, EndLine):
                self.connection.execute("INSERT INTO ended VALUES (?)", [line.run_id])
        self._insert("own_checks", _CHECKS, checks)
        self._insert("own_runs", _RUNS, runs)

    def _insert(self, table: str, columns: str, rows: Sequence[dict[str, Any]]) -> None:
        for start in range(0, len(rows), _AT_ONCE):
            self.connection.execute(
                f"INSERT INTO {table} BY NAME SELECT one.* FROM (SELECT unnest(?::JSON::STRUCT({columns})[]) AS one)",
                [json.dumps(rows[start : start + _AT_ONCE])],
            )

    def remove_checks(self, places: Sequence[int]) -> None:
        """Take the lines at some places out of `checks`, which is a table from then on."""
        if places:
            self.connection.execute(
                "CREATE OR REPLACE TABLE whole AS "
                "SELECT * FROM checks WHERE place NOT IN (SELECT unnest(?::BIGINT[]))",
                [list(places)],
            )
            self.connection.execute("CREATE OR REPLACE TEMP VIEW checks AS SELECT * FROM whole")

    def run_lines(self) -> dict[int, Line]:
        """The lines of all runs by place, as `lines` gives them: those that were compacted are read at once."""
        found: dict[int, Line] = {}
        for path in sorted(set(self._compacted.values())):
            rows = self.connection.execute(
                "SELECT file, number, line FROM read_parquet(?) WHERE kind = 'run'", [str(path)]
            ).fetchall()
            for name, number, text in rows:
                if self._compacted.get(name) == path:
                    place = self._files.index(name) * _FILE + int(number)
                    found |= self._whole(name, place, str(text).encode())
        places = self.connection.execute("SELECT place FROM runs").fetchall()
        return found | self.lines(place for (place,) in places if self._files[place // _FILE] not in self._compacted)

    def lines(self, places: Iterable[int]) -> dict[int, Line]:
        """The lines at some places; a broken one is left out, and stands in `broken` from then on.

        Raises `UnusualEvidenceError` where a line isn't what the table says.
        """
        found: dict[int, Line] = {}
        for number, wanted in itertools.groupby(sorted(places), key=lambda place: place // _FILE):
            found |= self._lines_of(number, [place % _FILE for place in wanted])
        return found

    def _lines_of(self, file: int, numbers: Sequence[int]) -> dict[int, Line]:
        name, first = self._files[file], file * _FILE
        found = {first + n: self._objects[first + n] for n in numbers if first + n in self._objects}
        left = [n for n in numbers if first + n not in found]
        if not left:
            return found
        texts = self._compacted_texts(name, left) if name in self._compacted else self._raw_texts(name, left)
        for number, data in texts:
            found |= self._whole(name, first + number, data)
        return found

    def _whole(self, name: str, place: int, data: bytes) -> dict[int, Line]:
        try:
            return {place: read_line(data)}
        except (ValueError, RecursionError, HwCompatError) as error:
            self.broken.append(BrokenLine(file=name, number=place % _FILE + 1, reason=str(error)[:200]))
            return {}

    def _raw_texts(self, name: str, numbers: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        wanted = iter(numbers)
        following = next(wanted)
        with contextlib.suppress(OSError), opened(self.folder / name) as file:
            for number, data in enumerate(data for data in whole_lines(file) if not data.isspace()):
                if number == following:
                    yield number, data
                    following = next(wanted, -1)
                    if following < 0:
                        return
        raise UnusualEvidenceError(f"{name} is shorter than it was")

    def _compacted_texts(self, name: str, numbers: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        rows = self.connection.execute(
            "SELECT number, line FROM read_parquet(?) WHERE file = ? AND number BETWEEN ? AND ? "
            "AND number IN (SELECT unnest(?::BIGINT[])) ORDER BY number",
            [str(self._compacted[name]), name, numbers[0], numbers[-1], list(numbers)],
        ).fetchall()
        yield from ((int(number), str(text).encode()) for number, text in rows)
