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
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from ..errors import HwCompatError
from ..untrusted import opened
from .columns import PLAN, PLAN_NAMES, connect, read_raw, unusual_paths
from .compacted import no_evidence
from .partitions import compacted_files, held, owners, packed_seals, quoted
from .record import CheckLine, EndLine, Line, RunLine
from .seals import examine, run_of
from .store import (
    BrokenLine,
    Damage,
    Evidence,
    check_folder,
    differing,
    evidence_files,
    is_foreign,
    lost,
    read_file,
    read_line,
    whole_lines,
)

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
_CHECK_VALUES = (
    "first + number AS place, run_id, cell_id, check_name, requested_target, accelerator, outcome, "
    "coalesce(error_type, '') AS error_type, started_at, coalesce(origin, 'hwcompat') AS origin"
)
_RUN_VALUES = (
    "first + number AS place, run_id, started_at, machine, coalesce(origin, 'hwcompat') AS origin, versions, "
    "coalesce(resumes, []) AS resumes, plan"
)
_PLACED = "JOIN files ON files.file = one.file AND files.path = one.part"
_WANTED = "SELECT unnest(?::VARCHAR[]) AS file, unnest(?::BIGINT[]) AS number, unnest(?::BIGINT[]) AS place"
_AT_ONCE = 10_000


_RUNS_AT_ONCE = 16
"""A run's line holds its plan: a megabyte for all types."""


class UnusualEvidenceError(Exception):
    """The tables can't be believed: somebody has to read the folder as objects."""


def _json(value: object) -> str:
    """JSON that DuckDB can parse: what is no Unicode text (a lone surrogate) becomes a question mark."""
    return as_unicode(json.dumps(value, ensure_ascii=False))


def as_unicode(text: str) -> str:
    """`text` as the tables hold it."""
    return text.encode(errors="replace").decode()


def _sharing(line: Line, before: dict[tuple[str, str], list[object]]) -> Line:
    """The same line; what is equal in one of the machine's latest runs is that very object. Packed runs come in no
    order, so that others may lie between two that plan the same."""
    if not isinstance(line, RunLine):
        return line
    same: dict[str, Any] = {}
    for name in _SHARED:
        own, seen = getattr(line, name), before.setdefault((line.machine, name), [])
        same[name] = next((other for other in seen if other == own), own)
        seen[:] = [same[name], *(other for other in seen if other is not same[name])][:_LATEST]
    return replace(line, **same)


_SHARED = ("plan", "inventory", "versions")
_LATEST = 8


class EvidenceTable:
    """The tables `checks`, `runs` and `ended` of a folder in `connection`; `broken` are lines that were found broken
    so far, and `damaged` what is lost with them. `ended` names the runs that have an end.

    Used as a context. `source` is a folder, or evidence that is in memory. Raises `BrokenInput` if there is no
    such folder or a Parquet file is of another kind, `UnusualEvidenceError` if DuckDB can't read a line that Python
    may.
    """

    def __init__(self, source: Path | Evidence) -> None:
        if isinstance(source, Path):
            check_folder(source)
        self.source = source
        self.broken: list[BrokenLine] = []
        self.damaged: list[Damage] = []
        self._temporary = tempfile.TemporaryDirectory()
        self.connection = connect(Path(self._temporary.name))
        self._files: list[str] = []
        self._compacted: dict[str, Path] = {}
        self._objects: dict[int, Line] = {}

    def __enter__(self) -> EvidenceTable:
        import duckdb

        try:
            if isinstance(self.source, Path):
                self._fill(self.source)
            else:
                self._hold(self.source)
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

    def _hold(self, evidence: Evidence) -> None:
        """Put evidence that is in memory into the tables."""
        self._files = [""]
        self._make_tables()
        self.broken += evidence.broken
        self.damaged += evidence.damaged
        lines: tuple[Line, ...] = (
            *evidence.runs,
            *evidence.other_runs,
            *evidence.checks,
            *evidence.other_checks,
            *evidence.ends,
        )
        self._take_objects(lines, 0)
        self.connection.execute(
            "CREATE VIEW checks AS SELECT * FROM own_checks; CREATE TABLE runs AS SELECT * FROM own_runs"
        )

    def _make_tables(self) -> None:
        self.connection.execute(
            f"CREATE TABLE own_checks ({_CHECKS}); CREATE TABLE own_runs ({_RUNS}); "
            "CREATE TABLE ended (run_id VARCHAR)"
        )

    def _fill(self, folder: Path) -> None:
        raw, broken = evidence_files(folder)
        self.broken += broken
        raw = {name: path for name, path in raw.items() if path.stat().st_size}
        packed = owners(self._held(folder))
        self._compacted = {name: path for name, path in packed.items() if name not in raw}
        self._files = sorted({*raw, *self._compacted})
        self.connection.execute("CREATE TABLE files (path VARCHAR, file VARCHAR, first BIGINT)")
        places = [str(self._compacted.get(name) or raw[name]) for name in self._files]
        firsts = [number * _FILE for number in range(len(self._files))]
        self.connection.execute(
            "INSERT INTO files SELECT unnest(?::VARCHAR[]), unnest(?::VARCHAR[]), unnest(?::BIGINT[])",
            [places, self._files, firsts],
        )
        self._make_tables()
        checks, runs = ["SELECT * FROM own_checks"], ["SELECT * FROM own_runs"]
        seals = packed_seals(self.connection, sorted(set(packed.values())), {run_of(name) for name in raw})
        examined = examine(raw, packed=packed, packed_seals=seals)
        broken, damaged = lost(examined, raw)
        self.broken += broken
        self.damaged += damaged
        raw = {name: path for name, path in raw.items() if name not in examined.refused}
        if raw:
            self._take_raw(raw)
            checks.append("SELECT * FROM raw_checks")
        if self._compacted:
            source = f"FROM {self._parquet()} AS one {_PLACED} WHERE kind ="
            checks.append(f"SELECT {_CHECK_VALUES} {source} 'check'")
            runs.append(f"SELECT {_RUN_VALUES} {source} 'run'")
            self.connection.execute(f"INSERT INTO ended SELECT run_id {source} 'end'")
        self.connection.execute(
            f"CREATE VIEW checks AS {' UNION ALL '.join(checks)}; CREATE TABLE runs AS {' UNION ALL '.join(runs)}"
        )
        self._check_runs({run_of(name) for name in self._files} | examined.runs)

    def _check_runs(self, runs: Collection[str]) -> None:
        """Raise `UnusualEvidenceError` if lines are of another run than their file, or of another origin than their
        run, or if two lines describe a run differently: `store.py` tells what then counts. `runs` are those that the
        folder's files are named after."""
        files = f"SELECT DISTINCT place // {_FILE}, run_id FROM (SELECT place, run_id FROM"
        found = self.connection.execute(f"{files} checks UNION ALL SELECT place, run_id FROM runs)").fetchall()
        if any(is_foreign(run_id, self._files[number], runs) for number, run_id in found):
            raise UnusualEvidenceError("a file holds lines of another run")
        (others,) = self.connection.execute(
            "SELECT count(*) FROM checks JOIN (SELECT run_id, any_value(origin) AS its FROM runs GROUP BY run_id) "
            "USING (run_id) WHERE origin <> its"
        ).fetchone() or (1,)
        if others:
            raise UnusualEvidenceError("a line is of another origin than its run")
        twice = self.connection.execute(
            "SELECT place FROM runs WHERE run_id IN (SELECT run_id FROM runs GROUP BY run_id HAVING count(*) > 1)"
        ).fetchall()
        if differing(line for line in self.lines(place for (place,) in twice).values() if isinstance(line, RunLine)):
            raise UnusualEvidenceError("two lines describe one run differently")

    def _held(self, folder: Path) -> dict[Path, dict[str, int]]:
        """The names that each Parquet file has lines of, and how many."""
        import duckdb

        found: dict[Path, dict[str, int]] = {}
        for path in compacted_files(folder):
            try:
                found |= held(self.connection, [path])
            except (duckdb.Error, OSError) as error:
                raise no_evidence(path, error) from error
        return found

    def _parquet(self, paths: Iterable[Path] = ()) -> str:
        """SQL for the rows of some Parquet files, of all that lines are taken from where none is named, each with
        its file as `part`."""
        names = ", ".join(f"'{quoted(path)}'" for path in sorted(set(paths or self._compacted.values())))
        return f"read_parquet([{names}], hive_partitioning=false, union_by_name=true, filename='part')"

    def _take_raw(self, raw: dict[str, Path]) -> None:
        """Put the lines of JSON lines into tables: what was scanned once is asked several times."""
        read_raw(self.connection, list(raw.values()))
        unusual = unusual_paths(self.connection)
        for path in raw.values():
            if str(path) in unusual:
                lines, broken = read_file(path)
                self.broken += broken
                self._take_objects(lines, self._files.index(path.name) * _FILE)
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

    def _take_objects(self, lines: Iterable[Line], first: int) -> None:
        """Put lines that are objects into the tables; the first has the place `first`."""
        checks: list[dict[str, Any]] = []
        runs: list[dict[str, Any]] = []
        for place, line in enumerate(lines, start=first):
            self._objects[place] = line
            if isinstance(line, CheckLine):
                checks.append({"place": place} | {name: getattr(line, name) for name in _CHECK_NAMES})
            elif isinstance(line, RunLine):
                plan = [{name: getattr(one, name) for name in PLAN_NAMES} for one in line.plan]
                more = {"place": place, "versions": _json(dict(line.versions)), "plan": plan}
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
                [_json(rows[start : start + _AT_ONCE])],
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
        """The lines of all runs by place, as `lines` gives them. Runs of one machine that plan the same share it: a
        thousand plans of a thousand cells would fill memory."""
        found: dict[int, Line] = {}
        before: dict[tuple[str, str], list[object]] = {}
        for line in self._run_lines():
            found |= {place: _sharing(one, before) for place, one in line.items()}
        return found

    def _run_lines(self) -> Iterator[dict[int, Line]]:
        if self._compacted:
            rows = self.connection.cursor().execute(
                f"SELECT line, files.first + number FROM {self._parquet()} AS one {_PLACED} WHERE kind = 'run'"
            )
            while some := rows.fetchmany(_RUNS_AT_ONCE):
                yield from (self._whole(place, str(text).encode()) for text, place in some)
        places = self.connection.execute("SELECT place FROM runs ORDER BY place").fetchall()
        yield from (self.lines([place]) for (place,) in places if self._files[place // _FILE] not in self._compacted)

    def lines(self, places: Iterable[int]) -> dict[int, Line]:
        """The lines at some places; a broken one is left out, and stands in `broken` from then on.

        Raises `UnusualEvidenceError` where a line isn't what the table says.
        """
        found: dict[int, Line] = {}
        packed: dict[Path, list[int]] = {}
        for number, wanted in itertools.groupby(sorted(places), key=lambda place: place // _FILE):
            name, first = self._files[number], number * _FILE
            own = list(wanted)
            found |= {place: self._objects[place] for place in own if place in self._objects}
            left = [place for place in own if place not in found]
            if left and name in self._compacted:
                packed.setdefault(self._compacted[name], []).extend(left)
            elif left:
                for place, data in self._raw_texts(name, [place - first for place in left]):
                    found |= self._whole(first + place, data)
        for path, own in packed.items():
            for place, data in self._compacted_texts(path, own):
                found |= self._whole(place, data)
        return found

    def _whole(self, place: int, data: bytes) -> dict[int, Line]:
        try:
            return {place: read_line(data)}
        except (ValueError, RecursionError, HwCompatError) as error:
            self.note(place, str(error))
            return {}

    def note(self, place: int, why: str) -> None:
        """Note that the line at a place is broken."""
        self.broken.append(BrokenLine(file=self._files[place // _FILE], number=place % _FILE + 1, reason=why[:200]))

    def _raw_texts(self, name: str, numbers: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        wanted = iter(numbers)
        following = next(wanted)
        assert isinstance(self.source, Path)
        with contextlib.suppress(OSError), opened(self.source / name) as file:
            for number, data in enumerate(data for data in whole_lines(file) if not data.isspace()):
                if number == following:
                    yield number, data
                    following = next(wanted, -1)
                    if following < 0:
                        return
        raise UnusualEvidenceError(f"{name} is shorter than it was")

    def _compacted_texts(self, path: Path, places: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """The lines at some places of one Parquet file, each with its place; what lies between the files that are
        asked for isn't unpacked."""
        names = [self._files[place // _FILE] for place in places]
        found = self.connection.execute(
            f"SELECT wanted.place, line FROM {self._parquet([path])} AS one JOIN ({_WANTED}) AS wanted "
            "USING (file, number) WHERE one.file >= ? AND one.file <= ? ORDER BY wanted.place",
            [names, [place % _FILE for place in places], list(places), min(names), max(names)],
        )
        while rows := found.fetchmany(_AT_ONCE):
            yield from ((int(place), str(text).encode()) for place, text in rows)
