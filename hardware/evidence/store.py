"""Read folders of evidence: every whole line of every file, and the broken lines.

`read_folder` returns records, from JSON lines and from Parquet alike; `query` runs SQL on JSON lines.
"""

from __future__ import annotations

import functools
import glob
import itertools
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import IO, Any

from ..errors import BrokenInput, HwCompatError, UsageError
from ..safe_read import DEEPEST, check_depth, is_plain_file, no_number, opened, reason_of
from ..software import is_installed
from .columns import LONGEST_LINE, MOST_BRACKETS, every_column
from .parquet import compacted_files, examined_in, owned_lines, quoted
from .record import READABLE, CheckLine, EndLine, Line, Origin, RunLine, from_dict
from .renamed import with_current_names
from .seals import Examined, is_evidence_name, run_of


@dataclass(frozen=True, kw_only=True)
class BrokenLine:
    """A line that can't be used: its file's name, its number (from 1) and the reason."""

    file: str
    number: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class Damage:
    """A run that lost results written until `until`.

    Lost are the results of all its planned cells and of `cells`, or of `cells` alone unless `whole`.
    """

    run_id: str
    until: str
    cells: frozenset[str] = frozenset()
    whole: bool = True


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The evidence in a folder, in the order of file names and lines.

    `runs` and `checks` are our own, from which verdicts are made. Results of other projects' tests, and ours under a
    changed condition, are in `other_runs` and `other_checks`, so that no reader takes them for a measurement.
    `broken` can't be used, and `damaged` are lost results.
    """

    runs: tuple[RunLine, ...] = ()
    checks: tuple[CheckLine, ...] = ()
    ends: tuple[EndLine, ...] = ()
    broken: tuple[BrokenLine, ...] = ()
    damaged: tuple[Damage, ...] = ()
    other_runs: tuple[RunLine, ...] = ()
    other_checks: tuple[CheckLine, ...] = ()

    def run(self, run_id: str) -> RunLine | None:
        """Return the run line of a run, or None."""
        return next((run for run in self.runs if run.run_id == run_id), None)


def read_file(path: Path) -> tuple[list[Line], list[BrokenLine]]:
    """Return the whole lines of one file, and the broken ones: a killed process may leave half a line.

    A result that was written again with the speed of its cell is one line.
    """
    try:
        with opened(path) as file:
            return _read(whole_lines(file), path.name)
    except OSError as error:
        return [], [BrokenLine(file=path.name, number=1, reason=reason_of(error))]


def whole_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file; of a line that is longer than any may be, only the beginning."""
    if os.fstat(file.fileno()).st_size <= LONGEST_LINE:
        yield from file
        return
    while data := file.readline(LONGEST_LINE + 1):
        yield data
        while len(data) > LONGEST_LINE and not data.endswith(b"\n"):
            data = file.readline(LONGEST_LINE + 1)


def evidence_files(folder: Path) -> tuple[dict[str, Path], list[BrokenLine]]:
    """Return the files of JSON lines in a folder by name, and irregular files with such a name."""
    found = {path.name: path for path in sorted(folder.glob("*.jsonl"))}
    plain = {name: path for name, path in found.items() if is_plain_file(path)}
    wrong = [
        BrokenLine(file=name, number=1, reason="it is not a regular file") for name in found if name not in plain
    ]
    return plain, wrong


def lost(examined: Examined, files: Mapping[str, Path]) -> tuple[list[BrokenLine], list[Damage]]:
    """Return what is wrong with the files of a folder, and the results lost with changed and missing ones."""
    broken = [BrokenLine(file=name, number=1, reason=why) for name, why in sorted(examined.reasons.items())]
    damaged = []
    for name, seal in {**examined.missing, **examined.changed}.items():
        lines = read_file(files[name])[0] if name in files else []
        run_id = run_of(name)
        damaged.append(Damage(run_id=run_id, until=seal.until(run_id), cells=_named(lines)))
    return broken, damaged


def _named(lines: Iterable[Line]) -> frozenset[str]:
    """Return the cells in some lines."""
    found = set()
    for line in lines:
        if isinstance(line, CheckLine):
            found.add(line.cell_id)
        elif isinstance(line, RunLine):
            found |= {planned.cell_id for planned in line.plan}
    return frozenset(found)


def is_foreign(run_id: str, name: str, runs: Collection[str]) -> bool:
    """Whether a run's lines don't belong into the file with a name. `runs` are those that the folder's files are
    named after. A file with a name of another kind may hold lines of any other run."""
    return run_of(name) != run_id and (is_evidence_name(name) or run_id in runs)


def _read(texts: Iterable[bytes], name: str) -> tuple[list[Line], list[BrokenLine]]:
    lines: list[Line] = []
    broken: list[BrokenLine] = []
    for number, data in enumerate(texts, start=1):
        if not data.strip():
            continue
        try:
            line = read_line(data)
        except (ValueError, HwCompatError) as error:
            broken.append(BrokenLine(file=name, number=number, reason=str(error)[:200]))
            continue
        if lines and isinstance(line, CheckLine) and line.speed and lines[-1] == replace(line, speed={}):
            lines.pop()
        lines.append(line)
    return lines, broken


def read_line(data: bytes) -> Line:
    """Return the line in some bytes. Raises `ValueError` or `HwCompatError` if there is none."""
    if len(data) > LONGEST_LINE:
        raise ValueError("longer than 16 MiB")
    brackets = data.count(b"{") + data.count(b"[")
    if brackets > MOST_BRACKETS:  # 2 bytes each in the file, 60 in memory
        raise ValueError(f"more than {MOST_BRACKETS:,} lists and objects")
    if brackets <= DEEPEST and (check := _check_in(data)) is not None:
        return check
    try:
        parsed = _DECODER.decode(data.decode("utf-8"))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(parsed, dict):
        raise ValueError("not an object")
    if brackets > DEEPEST:
        check_depth(parsed)
    return from_dict(parsed)


def _check_in(data: bytes) -> CheckLine | None:
    """Return the result in a line if msgspec reads it, which takes a third of the time. None for all else: what is
    broken is decided by `from_dict` alone."""
    decoders = _fast_decoders()
    if decoders is None or _LONG_NUMBER.search(data):
        return None
    import msgspec

    try:
        data.decode()  # msgspec skips unknown fields unread
        head, line = (one.decode(data) for one in decoders)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    found: CheckLine = line
    return found if head.kind == "check" and head.schema_version in READABLE else None


_LONG_NUMBER = re.compile(rb"[0-9]{4300}")
"""Python's limit, which doesn't hold for numbers in fields that msgspec skips."""


@functools.cache
def _fast_decoders() -> tuple[Any, Any] | None:
    """Return readers of what a line has to name, and of a result; None without msgspec."""
    if not is_installed("msgspec"):
        return None
    import msgspec

    head = msgspec.defstruct("Head", [("kind", str), ("schema_version", int)])
    return msgspec.json.Decoder(head), msgspec.json.Decoder(CheckLine)


_DECODER = json.JSONDecoder(parse_constant=no_number)
"""Made once, since making it takes longer than decoding a line."""


def read_folder(*folders: Path) -> Evidence:
    """Return all evidence in some folders. Raises `BrokenInput` if one isn't there; an empty one is fine."""
    for folder in folders:
        check_folder(folder)
    return _gather([read for folder in folders for read in _files(folder)])


def check_folder(folder: Path) -> None:
    """Raise `BrokenInput` if there is no such folder, or if all evidence in it is packed."""
    if not folder.is_dir():
        raise BrokenInput(f"evidence folder {folder} not found", fix="Run suites first: hwcompat run --model bert")
    if any(folder.glob("*.jsonl.gz")) and not any(folder.glob("*.jsonl")) and not compacted_files(folder):
        raise BrokenInput(
            f"the evidence in {folder} is compressed and can't be read directly",
            fix=f"Unpack it into a separate folder, for example: "
            f"mkdir unpacked && gunzip --stdout {folder}/cpu.jsonl.gz > unpacked/cpu.jsonl",
        )


@dataclass(frozen=True, kw_only=True)
class _Read:
    """The lines of one file, or what is wrong with the folder."""

    name: str = ""
    lines: Sequence[Line] = ()
    broken: Sequence[BrokenLine] = ()
    damaged: Sequence[Damage] = ()


def _files(folder: Path, run_id: str = "") -> Iterator[_Read]:
    """Yield what each file of a folder holds, by name, as JSON lines or compacted; only of one run if it is named. A
    file that exists in both forms may have grown and counts itself; an empty one is ignored."""
    named = folder.glob(f"{glob.escape(run_id)}-*.jsonl" if run_id else "*.jsonl")
    raw = {path.name: path for path in named if not (is_plain_file(path) and not path.stat().st_size)}
    examined = examined_in(folder, raw, run_id)
    if run_id:  # files of resumed runs weren't read
        missing = {name: seal for name, seal in examined.missing.items() if run_of(name) == run_id}
        examined = replace(examined, missing=missing)
    broken, damaged = lost(examined, raw)
    yield _Read(broken=broken, damaged=damaged)
    yield from (_Read(name=name) for name in examined.reasons)
    found = {name: read_file(path) for name, path in raw.items() if name not in examined.refused}
    for name, rows in itertools.groupby(owned_lines(folder, run_id), key=lambda row: row[0]):
        if name not in raw:
            found[name] = _read((data for _, data in rows), name)
    for name, (lines, bad) in sorted(found.items()):
        yield _Read(name=name, lines=lines, broken=bad)


def differing(runs: Iterable[RunLine]) -> dict[str, list[RunLine]]:
    """Return the runs that several lines describe differently, each with those lines.

    A kept run on two targets has two lines, each with its part of the plan: these are one run.
    """
    found: dict[str, list[RunLine]] = {}
    for run in runs:
        found.setdefault(run.run_id, []).append(run)
    return {run_id: own for run_id, own in found.items() if len(own) > 1 and not _are_one(own)}


def _are_one(runs: Sequence[RunLine]) -> bool:
    first, *others = runs
    for run in others:
        both = {planned.cell_id for planned in first.plan} & {planned.cell_id for planned in run.plan}
        shared = ([planned for planned in one.plan if planned.cell_id in both] for one in (first, run))
        if replace(run, plan=first.plan) != first or next(shared) != next(shared):
            return False
    return True


def _gather(files: Iterable[_Read]) -> Evidence:
    """Return the evidence of some files without the lines that can't be trusted."""
    read = list(files)
    names = {run_of(one.name) for one in read if one.name}
    all_runs = [line for one in read for line in one.lines if isinstance(line, RunLine)]
    doubtful, origins = differing(all_runs), {run.run_id: run.origin for run in all_runs}
    lines: list[Line] = []
    broken = [line for one in read for line in one.broken]
    damaged = [damage for one in read for damage in one.damaged]
    for one in read:
        for number, line in enumerate(one.lines, start=1):
            foreign = is_foreign(line.run_id, one.name, names)
            if foreign:
                why = f"it belongs to run {line.run_id}, but {one.name} isn't a file of that run"
            elif line.run_id in doubtful:
                why = f"run {line.run_id} has several run lines that differ"
            elif isinstance(line, CheckLine) and origins.get(line.run_id, line.origin) is not line.origin:
                why = f"its origin is {line.origin}, but its run's origin is {origins[line.run_id]}"
            else:
                lines.append(line)
                continue
            broken.append(BrokenLine(file=one.name, number=number, reason=why[:200]))
            if not foreign and not isinstance(line, EndLine):  # its results may be lost, whatever its origin
                damaged.append(Damage(run_id=line.run_id, until=line.started_at, cells=_named([line]), whole=False))
    named = with_current_names(lines)
    runs = [line for line in named if isinstance(line, RunLine)]
    checks = [line for line in named if isinstance(line, CheckLine)]
    return Evidence(
        runs=tuple(line for line in runs if line.origin is Origin.HWCOMPAT),
        checks=tuple(line for line in checks if line.origin is Origin.HWCOMPAT),
        ends=tuple(line for line in lines if isinstance(line, EndLine)),
        broken=tuple(broken),
        damaged=tuple(damaged),
        other_runs=tuple(line for line in runs if line.origin is not Origin.HWCOMPAT),
        other_checks=tuple(line for line in checks if line.origin is not Origin.HWCOMPAT),
    )


def read_run(folder: Path, run_id: str) -> Evidence:
    """Return the evidence of one run; only its own files are read."""
    return _gather(_files(folder, run_id))


def read_cells(folder: Path, runs: Mapping[str, str], *, also: Sequence[str] = ()) -> Evidence:
    """Return the evidence of cells, each from the run that `runs` gives by cell.

    The plans hold only those cells. `also` are runs whose run lines are included in any case.
    """
    parts = []
    for run_id in dict.fromkeys([*also, *runs.values()]):
        own = read_run(folder, run_id)
        cells = {cell for cell, its in runs.items() if its == run_id}
        plans = (replace(run, plan=tuple(one for one in run.plan if one.cell_id in cells)) for run in own.runs)
        checks = tuple(line for line in own.checks if line.cell_id in cells)
        parts.append(replace(own, runs=tuple(plans), checks=checks, other_runs=(), other_checks=()))
    names = [one.name for one in fields(Evidence)]
    return Evidence(**{name: tuple(one for part in parts for one in getattr(part, name)) for name in names})


def lines_by_cell(lines: Iterable[CheckLine]) -> dict[str, list[CheckLine]]:
    """Return lines by the id of their cell, in their order."""
    found: dict[str, list[CheckLine]] = {}
    for line in lines:
        found.setdefault(line.cell_id, []).append(line)
    return found


def query(folder: Path, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Return the rows of a SELECT over the view `lines` of a folder's evidence, in an in-memory DuckDB.

    The view has a column for every field that a line may have: text and numbers as they are, mappings as MAP
    (`conditions['attention']`), `plan` and `inventory` as JSON. Broken lines are left out. A measured cell has its
    last result twice, once with `speed`. DuckDB can't fetch extensions or read other files. Raises `UsageError` for
    anything but a SELECT.
    """
    import duckdb

    paths = list(evidence_files(folder)[0].values())
    if not paths:
        return []
    files = f"[{', '.join(map(quoted, paths))}]"
    columns = ", ".join(f"{quoted(name)}: {quoted(kind)}" for name, kind in every_column().items())
    connection = duckdb.connect(config={"autoinstall_known_extensions": False, "autoload_known_extensions": False})
    try:
        if any(one.type != duckdb.StatementType.SELECT for one in connection.extract_statements(sql)):
            raise UsageError("only SELECT statements are allowed", fix="Query the view `lines` with a SELECT.")
        connection.execute(f"SET allowed_paths={files}")
        connection.execute("SET enable_external_access=false")
        connection.execute(
            f"CREATE VIEW lines AS SELECT * FROM read_json({files}, format='newline_delimited', ignore_errors=true, "
            f"hive_partitioning=false, maximum_object_size={LONGEST_LINE}, columns={{{columns}}})"
        )
        rows: list[tuple[Any, ...]] = connection.execute(sql, list(parameters)).fetchall()
        return rows
    finally:
        connection.close()
