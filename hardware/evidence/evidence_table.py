"""The lines of a folder as tables in DuckDB: the columns that select lines, while the lines stay in their files.

DuckDB selects from a million lines in seconds, where building an object of each takes minutes; only selected lines
become objects. A file with anything but whole lines of this version is read line by line in Python, so that one
function decides what is broken.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from ..errors import HwCompatError
from ..safe_read import opened
from .columns import COLUMNS, PLAN_NAMES, connected, read_raw, unusual_paths
from .parquet import compacted_files, held, owners, packed_seals, quoted
from .record import Line, RunLine
from .renamed import IS_EARLIER
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
"""The place of a line in a folder is one number: its file's number, times this, plus its number in the file."""

_CHECK_VALUES = (
    "first + number AS place, run_id, cell_id, check_name, requested_target, accelerator, outcome, "
    "coalesce(error_type, '') AS error_type, started_at, coalesce(origin, 'hwcompat') AS origin"
)
_RUN_VALUES = (
    "first + number AS place, run_id, started_at, machine, coalesce(origin, 'hwcompat') AS origin, versions, "
    "coalesce(resumes, []) AS resumes, plan"
)
_REPLACED = (
    "CREATE TABLE replaced AS SELECT one.place FROM every_check AS one JOIN every_check AS later "
    "ON later.place = one.place + 1 AND later.run_id = one.run_id AND later.cell_id = one.cell_id "
    "AND later.check_name = one.check_name AND later.outcome = one.outcome AND later.started_at = one.started_at; "
    "CREATE VIEW checks AS SELECT * FROM every_check WHERE place NOT IN (SELECT place FROM replaced); "
)
"""Leave out a result that the next line has again, with the speed of its cell."""
_PLACED = "JOIN files ON files.file = one.file AND files.path = one.part"
_WANTED = "SELECT unnest(?::VARCHAR[]) AS file, unnest(?::BIGINT[]) AS number, unnest(?::BIGINT[]) AS place"
_AT_ONCE = 10_000


_RUNS_AT_ONCE = 16
"""Run lines that are read at the same time: each contains a plan, 1 MB for all types."""


class UnusualEvidenceError(Exception):
    """The tables can't be trusted: the folder has to be read as objects."""


def as_unicode(text: str) -> str:
    """Return `text` as the tables hold it: a lone surrogate becomes a question mark."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _columns_of(line: Line) -> str:
    """Return the columns of a line as JSON."""
    found = {name: getattr(line, name, None) for name in COLUMNS}
    if isinstance(line, RunLine):
        plan = [{name: getattr(one, name) for name in PLAN_NAMES} for one in line.plan]
        found |= {"versions": dict(line.versions), "plan": plan}
    return as_unicode(json.dumps(found, ensure_ascii=False))


def _shared(line: Line, before: dict[tuple[str, str], list[object]]) -> Line:
    """Return the line with values that equal those of the machine's latest runs replaced by the same objects. Packed
    runs come in any order, so that others may lie between two with the same plan."""
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
    """The tables `checks`, `runs` and `ended` of a folder, in `connection`; `ended` names the finished runs.

    `broken` are the lines found broken so far, and `damaged` the results lost with them. Use it as a context manager.
    `source` is a folder, or evidence in memory. Raises `BrokenInput` if there is no such folder or it has a foreign
    Parquet file; `UnusualEvidenceError` if DuckDB can't parse a line that Python may be able to.
    """

    def __init__(self, source: Path | Evidence) -> None:
        if isinstance(source, Path):
            check_folder(source)
        self.source = source
        self.broken: list[BrokenLine] = []
        self.damaged: list[Damage] = []
        self._stack = contextlib.ExitStack()
        self.connection = self._stack.enter_context(connected())
        self._files: list[str] = []
        self._compacted: dict[str, Path] = {}
        self._objects: dict[int, Line] = {}

    def __enter__(self) -> EvidenceTable:
        import duckdb

        try:
            if isinstance(self.source, Path):
                self._fill(self.source)
            else:
                self._load(self.source)
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
        """Close the connection and remove temporary files."""
        self._stack.close()

    def _load(self, evidence: Evidence) -> None:
        """Load evidence in memory into the tables."""
        self._files = [""]
        self.broken += evidence.broken
        self.damaged += evidence.damaged
        runs, checks = (*evidence.runs, *evidence.other_runs), (*evidence.checks, *evidence.other_checks)
        path = self._written((*runs, *checks, *evidence.ends), 0)
        self._scan([path])
        self._make_tables({"": path})

    def _fill(self, folder: Path) -> None:
        raw, broken = evidence_files(folder)
        self.broken += broken
        raw = {name: path for name, path in raw.items() if path.stat().st_size}
        packed = owners(held(self.connection, compacted_files(folder)))
        self._compacted = {name: path for name, path in packed.items() if name not in raw}
        self._files = sorted({*raw, *self._compacted})
        seals = packed_seals(self.connection, sorted(set(packed.values())), {run_of(name) for name in raw})
        examined = examine(raw, packed=packed, packed_seals=seals)
        broken, damaged = lost(examined, raw)
        self.broken += broken
        self.damaged += damaged
        raw = {name: path for name, path in raw.items() if name not in examined.refused}
        unusual = self._scan(list(raw.values()))
        if unusual:
            first = self._first_places()
            for name, path in raw.items():
                if str(path) in unusual:
                    lines, broken = read_file(path)
                    self.broken += broken
                    raw[name] = self._written(lines, first[name])
            self._scan(list(raw.values()))
        self._make_tables({**self._compacted, **raw})
        self._check_runs({run_of(name) for name in self._files} | examined.runs)

    def _written(self, lines: Sequence[Line], first: int) -> Path:
        """Keep lines as objects, the first at the place `first`, and write a file from which the tables are made."""
        self._objects |= dict(enumerate(lines, start=first))
        path = Path(self._stack.enter_context(tempfile.TemporaryDirectory())) / "lines.jsonl"
        path.write_text("".join(f"{_columns_of(line)}\n" for line in lines), encoding="utf-8")
        return path

    def _first_places(self) -> dict[str, int]:
        """Return the place of each file's first line."""
        return {name: number * _FILE for number, name in enumerate(self._files)}

    def _scan(self, paths: Sequence[Path]) -> set[str]:
        """Scan files of JSON lines. Return those with anything but whole lines of this version."""
        read_raw(self.connection, paths or [self._written((), 0)])
        return unusual_paths(self.connection)

    def _make_tables(self, places: Mapping[str, Path]) -> None:
        """Create the tables from scanned and compacted lines. `places` is the file from which each name's lines are
        read."""
        first = self._first_places()
        self.connection.execute(
            "CREATE TABLE files AS "
            "SELECT unnest(?::VARCHAR[]) AS path, unnest(?::VARCHAR[]) AS file, unnest(?::BIGINT[]) AS first",
            [list(map(str, places.values())), list(places), [first[name] for name in places]],
        )
        raw, packed = "FROM raw JOIN files USING (path) WHERE kind =", ""
        if self._compacted:
            packed = f"FROM {self._parquet()} AS one {_PLACED} WHERE kind ="

        def both(values: str, kind: str) -> str:
            return " UNION ALL ".join(f"SELECT {values} {source} '{kind}'" for source in (raw, packed) if source)

        more = f" UNION ALL SELECT {_CHECK_VALUES} {packed} 'check'" if packed else ""
        self.connection.execute(
            f"CREATE TABLE raw_checks AS SELECT {_CHECK_VALUES} {raw} 'check'; "
            f"CREATE VIEW every_check AS SELECT * FROM raw_checks{more}; {_REPLACED}"
            f"CREATE TABLE runs AS {both(_RUN_VALUES, 'run')}; CREATE TABLE ended AS {both('run_id', 'end')}; "
            "DROP VIEW raw; DROP TABLE scanned"
        )

    def _check_runs(self, runs: Collection[str]) -> None:
        """Raise `UnusualEvidenceError` if a line is of another run than its file or of another origin than its run,
        if a cell has an earlier name, or if two lines describe a run differently: `store.py` decides what counts
        then. `runs` are those that the folder's files are named after."""
        files = f"SELECT DISTINCT place // {_FILE}, run_id FROM (SELECT place, run_id FROM"
        found = self.connection.execute(f"{files} checks UNION ALL SELECT place, run_id FROM runs)").fetchall()
        if any(is_foreign(run_id, self._files[number], runs) for number, run_id in found):
            raise UnusualEvidenceError("a file contains lines of another run")
        (others,) = self.connection.execute(
            "SELECT count(*) FROM checks JOIN (SELECT run_id, any_value(origin) AS its FROM runs GROUP BY run_id) "
            "USING (run_id) WHERE origin <> its"
        ).fetchone() or (1,)
        if others:
            raise UnusualEvidenceError("a line and its run have different origins")
        if self.connection.execute(f"SELECT place FROM checks WHERE {IS_EARLIER} LIMIT 1").fetchall():
            raise UnusualEvidenceError("a cell has an earlier name")
        twice = self.connection.execute(
            "SELECT place FROM runs WHERE run_id IN (SELECT run_id FROM runs GROUP BY run_id HAVING count(*) > 1)"
        ).fetchall()
        if differing(line for line in self.lines(place for (place,) in twice).values() if isinstance(line, RunLine)):
            raise UnusualEvidenceError("two lines describe the same run differently")

    def _parquet(self, paths: Iterable[Path] = ()) -> str:
        """Return SQL for the rows of Parquet files, by default of all that lines are read from, each with its file as
        `part`."""
        names = ", ".join(map(quoted, sorted(set(paths or self._compacted.values()))))
        return f"read_parquet([{names}], hive_partitioning=false, union_by_name=true, filename='part')"

    def remove_checks(self, places: Sequence[int]) -> None:
        """Remove the lines at some places from `checks`, which becomes a table."""
        if places:
            self.connection.execute(
                "CREATE OR REPLACE TABLE whole AS "
                "SELECT * FROM checks WHERE place NOT IN (SELECT unnest(?::BIGINT[]))",
                [list(places)],
            )
            self.connection.execute("CREATE OR REPLACE TEMP VIEW checks AS SELECT * FROM whole")

    def run_lines(self) -> dict[int, Line]:
        """Return the lines of all runs by place. Equal plans of one machine share memory: a thousand plans of a
        thousand cells wouldn't fit."""
        seen: dict[tuple[str, str], list[object]] = {}
        return {place: _shared(line, seen) for found in self._run_lines() for place, line in found.items()}

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
        """Return the lines at some places. A broken line is left out and added to `broken`.

        Raises `UnusualEvidenceError` if a line differs from its row.
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
        """Yield the lines at some places of one Parquet file, each with its place. Other files in it aren't
        decompressed."""
        names = [self._files[place // _FILE] for place in places]
        found = self.connection.execute(
            f"SELECT wanted.place, line FROM {self._parquet([path])} AS one JOIN ({_WANTED}) AS wanted "
            "USING (file, number) WHERE one.file >= ? AND one.file <= ? ORDER BY wanted.place",
            [names, [place % _FILE for place in places], list(places), min(names), max(names)],
        )
        while rows := found.fetchmany(_AT_ONCE):
            yield from ((int(place), str(text).encode()) for place, text in rows)
