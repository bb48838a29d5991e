"""Merge evidence from elsewhere into a folder after every line was checked against the schema and its run."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import BrokenInput, HwCompatError, echo
from ..files import write_whole, writing
from ..plain_text import one_line, size_text
from ..safe_read import check_depth, finite_number, is_plain_file, no_number, read_bytes, reason_of
from ..values import data_file
from .columns import LONGEST_LINE, MOST_BRACKETS
from .damage import cell_named, contradiction
from .page_lines import check_page, is_of_page
from .parquet import compacted_files, examined_in, owned_lines
from .record import CheckLine, EndLine, Origin, PlannedCell, RunLine, from_dict
from .seals import is_evidence_name, run_of
from .store import Evidence, differing, read_run

_SCHEMA = Path(__file__).with_name("schemas") / "evidence.json"
LARGEST_MERGE = 256 * 1024 * 1024
"""In bytes. A run of all types on one target has 10 MB."""

Lines = tuple[bytes, list[dict[str, Any]], bool]
"""The whole lines of a file as bytes, the objects in them, and whether the last line was cut off."""

Read = Mapping[str, Lines]


@dataclass(frozen=True, kw_only=True)
class Merged:
    """The result for one file: its name, and one of `taken`, `longer` (it had grown), `known` (nothing new)."""

    name: str
    state: str
    lines: int
    cut: bool = False


def merge_evidence(source: Path, folder: Path) -> tuple[Merged, ...]:
    """Copy the evidence file `source`, or all files of the folder `source`, into `folder`: all of them or none.

    Every line must fit the published schema, belong to the run in the file's name, and be of a check that the run
    planned. Only the last line of a file may be cut off, and is dropped. Files that a page saved are checked against
    the seal in `folder`. A single file gets back the name it was written under. Raises `BrokenInput` with file and
    line, or if a file of the same name has other content; `OutputError`.
    """
    if source.is_file():
        data, objects, cut = whole_lines_of(source)
        name = _own_name(source, objects)
        read: dict[str, Lines] = {name: (data, objects, cut)}
        files: dict[str, Path | bytes] = {name: source}
    elif source.is_dir():
        read, files = _read_all(source)
    else:
        raise BrokenInput(
            f"{echo(str(source))}: no such file or folder",
            fix="Give the `evidence` folder of a bundle, or the file that a page saved.",
        )
    check_lines(read)
    for name, (_, objects, _) in read.items():
        if is_of_page(objects):
            _check_alone(name, read)
            check_page(name, objects, folder)
    _check_runs(read, files, folder)
    present = {name: _present(folder / name, data) for name, (data, _, _) in read.items()}
    return tuple(_take(name, data, cut, folder, present[name]) for name, (data, _, cut) in read.items())


def _read_all(source: Path) -> tuple[dict[str, Lines], dict[str, Path | bytes]]:
    """Return the lines of each file of a folder, compacted ones included, and each whole file as a path or bytes.
    Raises `BrokenInput`."""
    paths = sorted(source.glob("*.jsonl"))
    if not paths and not compacted_files(source):
        raise BrokenInput(f"no evidence in {echo(str(source))}", why="it contains no .jsonl file")
    size = sum(path.stat().st_size for path in paths if is_plain_file(path))
    if size > LARGEST_MERGE:  # all lines stay in memory until each was checked
        raise _too_much(source, size_text(size))
    files: dict[str, Path | bytes] = {path.name: path for path in paths}
    read = {_right_name(path): whole_lines_of(path) for path in paths}
    left = LARGEST_MERGE - sum(len(data) for data, _, _ in read.values())
    for name, rows in itertools.groupby(owned_lines(source), key=lambda row: row[0]):
        if name in read:
            continue
        _right_name(Path(name))
        data = b""
        for _, line in rows:
            data += line + b"\n"
            if len(data) > left:
                raise _too_much(source, f"more than {size_text(LARGEST_MERGE)}")
        left -= len(data)
        read[name] = parsed_lines(name, data)
        files[name] = data
    return read, files


def _check_runs(read: Read, files: Mapping[str, Path | bytes], folder: Path) -> None:
    """Check files against the ends of their runs and against the files in `folder`. Raises `BrokenInput`."""
    runs = {run_of(name) for name in read}
    there = {path.name: path for run_id in sorted(runs) for path in folder.glob(f"{run_id}-*.jsonl")}
    longer = {name: path for name, path in there.items() if name not in files or _size(path) > _size(files[name])}
    for name, why in examined_in(folder, {**files, **longer}).refused.items():
        if name in read:
            raise BrokenInput(f"{echo(name)} is refused", why=why)
    own = [from_dict(line) for _, lines, _ in read.values() for line in lines if line["kind"] == "run"]
    for run in own:
        others = any(name not in read and run_of(name) == run.run_id for name in there)
        home = read_run(folder, run.run_id) if others or compacted_files(folder, run.run_id) else Evidence()
        if isinstance(run, RunLine) and differing([run, *home.runs, *home.other_runs]):
            raise BrokenInput(f"run {run.run_id} already exists in {folder} with a different description")


def _size(file: Path | bytes) -> int:
    return len(file) if isinstance(file, bytes) else file.stat().st_size


def _too_much(source: Path, size: str) -> BrokenInput:
    return BrokenInput(
        f"{echo(str(source))} is refused",
        why=f"it contains {size} of evidence; one merge takes at most {size_text(LARGEST_MERGE)}",
        fix="Split its files into several folders and merge each.",
    )


def _check_alone(name: str, read: Mapping[str, object]) -> None:
    """Check that a file that a page saved is the only one of its run: another one could contradict it."""
    run_id = run_of(name)
    other = next((one for one in read if one != name and one.startswith(f"{run_id}-")), None)
    if other is not None:
        raise BrokenInput(
            f"{other} is refused", why=f"{name} was saved by a page, and a page saves only one file per run"
        )


def _right_name(path: Path) -> str:
    if path.is_symlink() or not is_evidence_name(path.name):
        raise BrokenInput(f"{echo(path.name)} is not a valid evidence file name", fix="Remove it from the folder.")
    return path.name


def _own_name(path: Path, objects: list[Any]) -> str:
    """Return the name under which a file was written: browsers and mail programs add to it."""
    if is_evidence_name(path.name):
        return path.name
    first = objects[0] if objects else None
    name = f"{first.get('run_id')}-1.jsonl" if isinstance(first, dict) else ""
    if not is_evidence_name(name):
        raise BrokenInput(f"{echo(path.name)} is not an evidence file", why="its first line has no run id")
    return name


def _present(there: Path, data: bytes) -> bytes | None:
    """Return the content of `there`, a prefix of `data` or longer than it, or None if there is no such file."""
    with writing(f"{there} cannot be read"):
        try:
            before = there.read_bytes()
        except FileNotFoundError:
            return None
    if not before.startswith(data) and not data.startswith(before):
        raise BrokenInput(
            f"{there.name} already exists in {there.parent} with different content",
            why="evidence is append-only, so one of the two files was modified",
        )
    return before


def whole_lines_of(path: Path) -> Lines:
    """Return the whole lines of a file as bytes, the objects in them, and whether the last line was cut off."""
    try:
        data = read_bytes(path, longest=LARGEST_MERGE)
    except OSError as error:
        raise BrokenInput(f"{echo(path.name)} is refused", why=reason_of(error)) from error
    return parsed_lines(path.name, data)


def parsed_lines(name: str, data: bytes) -> Lines:
    """Return the same for the bytes of a file. Raises `BrokenInput`."""
    if data.startswith(b"PK\x03\x04") or data.lstrip()[:1] == b"<":
        raise BrokenInput(
            f"{echo(name)} is not evidence",
            why="it is a page or a bundle itself, not its results",
            fix="Give the file that the page saved on the other device, or the `evidence` folder of the bundle.",
        )
    whole, _, rest = data.rpartition(b"\n")
    objects = []
    for number, line in enumerate(whole.split(b"\n") if whole else [], start=1):
        where = f"line {number} of {echo(name)}"
        if len(line) > LONGEST_LINE or line.count(b"{") + line.count(b"[") > MOST_BRACKETS:
            raise BrokenInput(f"{where} is refused", why="it exceeds 16 MiB, or has too many lists and objects")
        try:
            text = line.decode("utf-8")  # json.loads would accept UTF-16 too
            found = json.loads(
                text, parse_constant=no_number, parse_float=finite_number, object_pairs_hook=_each_once
            )
            check_depth(found)
        except RecursionError as error:
            raise BrokenInput(f"{where} is broken", why="it is nested too deeply") from error
        except ValueError as error:
            raise BrokenInput(f"{where} is broken", why=one_line(str(error), longest=120)) from error
        objects.append(found)
    return (whole + b"\n" if whole else b""), objects, bool(rest)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse duplicate keys in untrusted lines: some readers use the first value and others the last."""
    found = dict(pairs)
    if len(found) < len(pairs):
        ((name, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"duplicate key {echo(name)}")
    return found


def check_lines(read: Read) -> None:
    """Check every line against the schema and its run. Raises `BrokenInput` for lines that no run writes."""
    schemas = {kind: _LineSchema(kind) for kind in ("run", "check", "end")}
    runs: dict[str, RunLine] = {}
    lines: list[tuple[str, RunLine | CheckLine | EndLine]] = []
    for name, (_, objects, _) in read.items():
        for number, plain in enumerate(objects, start=1):
            where = f"line {number} of {name}"
            wrong = _reason(schemas, plain)
            if wrong:
                raise BrokenInput(f"{where} doesn't match the evidence schema", why=wrong)
            try:
                line = from_dict(plain)
            except HwCompatError as error:
                raise BrokenInput(f"{where} is broken", why=str(error)) from error
            if not name.startswith(f"{line.run_id}-"):
                raise BrokenInput(f"{where} belongs to another run", why=f"it names {echo(line.run_id)}")
            if isinstance(line, RunLine):
                if line.run_id in runs:
                    raise BrokenInput(f"{where} is a duplicate run line", why=f"run {line.run_id}")
                runs[line.run_id] = line
                if ids := [cell.cell_id for cell in line.plan if cell_named(cell.cell_id) is None]:
                    raise BrokenInput(f"{where} is broken", why=f"{echo(ids[0])} is not the id of a cell")
            lines.append((where, line))
    planned = {run_id: {cell.cell_id: cell for cell in run.plan} for run_id, run in runs.items()}
    for where, line in lines:
        if line.run_id not in runs:
            raise BrokenInput(f"{where} has no plan", why=f"no file contains the run line of {line.run_id}")
        if isinstance(line, CheckLine):
            run = runs[line.run_id]
            _check_planned(where, line, planned[run.run_id].get(line.cell_id), run)
            if line.origin is not run.origin:
                why = f"the check's origin is {line.origin}, the run's is {run.origin}"
                raise BrokenInput(f"{where} has a different origin than its run", why=why)


def _check_planned(where: str, line: CheckLine, cell: PlannedCell | None, run: RunLine) -> None:
    if cell is None or line.check_name not in cell.checks:
        raise BrokenInput(f"{where} is not a planned check", why=echo(f"{line.cell_id} {line.check_name}"))
    if line.suite_hash != cell.suite_hash:
        raise BrokenInput(f"{where} is from a different suite than planned", why=f"the hash of {cell.suite} differs")
    contradicts = contradiction(line, weights=[cell.subject], run_started_at=run.started_at)
    if contradicts and run.origin is Origin.HWCOMPAT:
        raise BrokenInput(f"{where} contradicts itself or its run", why=contradicts)


class _LineSchema:
    """The published schema of one kind of line. Short values, which many lines share, are checked once each."""

    def __init__(self, kind: str) -> None:
        from jsonschema import Draft202012Validator

        definitions = data_file(_SCHEMA)["$defs"]
        outer = {name: rule for name, rule in definitions[kind].items() if name != "properties"}
        self._outer = Draft202012Validator(outer)
        self._values = Draft202012Validator({"properties": definitions[kind]["properties"], "$defs": definitions})
        self._valid: set[tuple[str, type, Any]] = set()

    def reason(self, plain: Mapping[str, Any]) -> str:
        """Return why a line doesn't match, or an empty text."""
        unchecked, short = dict(plain), set()
        for name, value in plain.items():
            if not isinstance(value, dict | list) and len(str(value)) < 80:
                if (key := (name, type(value), value)) in self._valid:
                    del unchecked[name]
                short.add(key)
        for error in itertools.chain(self._outer.iter_errors(plain), self._values.iter_errors(unchecked)):
            place = ".".join(str(part) for part in error.absolute_path) or "the line"
            return f"{place}: {error.message[:160]}"
        self._valid |= short
        return ""


def _reason(schemas: Mapping[str, _LineSchema], plain: Any) -> str:
    """Return why an object isn't a line of evidence, or an empty text."""
    kind = plain.get("kind") if isinstance(plain, dict) else None
    if not isinstance(kind, str) or kind not in schemas:
        return f"its kind must be one of {', '.join(schemas)}"
    return schemas[kind].reason(plain)


def _take(name: str, data: bytes, cut: bool, folder: Path, before: bytes | None) -> Merged:
    lines = data.count(b"\n")
    if before is not None and before.startswith(data):
        return Merged(name=name, state="known", lines=lines, cut=cut)
    with writing(f"evidence cannot be written to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / name, data)
    return Merged(name=name, state="taken" if before is None else "longer", lines=lines, cut=cut)
