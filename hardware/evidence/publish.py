"""Puts the evidence of finished runs into object storage: what is there is never replaced by anything but its own
continuation."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import BrokenInput, OutputError, echo
from ..untrusted import is_plain_file, read_bytes
from .address import Address
from .batches import ended_runs
from .columns import connect, unusual_paths
from .compacted import examined_in, no_evidence
from .merge import LARGEST_MERGE, Lines, check_lines, whole_lines_of
from .mirror import mirror
from .object_store import LARGEST_OBJECT, ObjectStore, StoredObject, is_name
from .partitions import compacted_files, held, quoted
from .seals import run_of
from .store import check_folder


@dataclass(frozen=True, kw_only=True)
class Published:
    """What became of each file: its name, and one of `put`, `longer` (it had grown), `known` (nothing new), `left`
    with the reason."""

    name: str
    state: str
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class _Upload:
    name: str
    path: Path
    size: int
    before: StoredObject | None


def publish(folder: Path, address: Address) -> tuple[Published, ...]:
    """Put the files of a folder's finished runs, and its Parquet files, to a place, or none of them.

    Lines that are new there are held against schema and plan, as when evidence is merged; each object is read back.
    Files of runs that go on, and those that were changed, are left. Raises `BrokenInput` where something else lies
    there under one of these names, or a file is no evidence; `OutputError`, `UsageError`.
    """
    check_folder(folder)
    paths, left = _finished(folder)
    paths |= {path.relative_to(folder).as_posix(): path for path in compacted_files(folder)}
    for name in paths:
        if not is_name(name):
            raise BrokenInput(f"{echo(name)} is not the name of an evidence file", fix="Take it out of the folder.")
    store = ObjectStore(address)
    mirror(address, lambda name: name in paths, may_be_empty=True)
    there = store.listing().found
    uploads, known = [], []
    for name, path in sorted(paths.items()):
        state = _state(path, address.copy / name, name in there, address)
        if state == "known":
            known.append(Published(name=name, state="known"))
        else:
            uploads.append(_Upload(name=name, path=path, size=path.stat().st_size, before=there.get(name)))
    _check(folder, uploads)
    put = [_put(store, one) for one in uploads]
    return (*known, *put, *left)


def _finished(folder: Path) -> tuple[dict[str, Path], list[Published]]:
    """The files of JSON lines that can be published, and those that are left."""
    found = {path.name: path for path in sorted(folder.glob("*.jsonl")) if is_plain_file(path)}
    refused = examined_in(folder, found).refused
    ended = ended_runs(found.values())
    left = []
    for name, path in list(found.items()):
        why = refused.get(name) or ("it is a link" if path.is_symlink() else "")
        why = why or ("" if run_of(name) in ended else "its run has no end")
        if why:
            left.append(Published(name=name, state="left", why=why))
            del found[name]
    return found, left


def _state(path: Path, copy: Path, is_there: bool, address: Address) -> str:
    """Whether a file is new at a place, a continuation of what is there, or nothing new. Raises `BrokenInput`."""
    if not is_there:
        return "put"
    if not copy.exists():
        why = f"somebody put {path.name} there just now"
        raise OutputError(f"{address} is written to by others", why=why, fix="Publish again.")
    own, other = path.stat().st_size, copy.stat().st_size
    length = min(own, other)
    if _beginning(path, length) != _beginning(copy, length) or (path.suffix != ".jsonl" and own != other):
        raise BrokenInput(
            f"{echo(path.name)} is in {address} already and holds something else",
            why="evidence is only ever appended to, so that one of the two was changed",
        )
    return "known" if own <= other else "longer"


def _beginning(path: Path, length: int) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while length and (data := file.read(min(length, 1 << 20))):
            found.update(data)
            length -= len(data)
    return found.hexdigest()


def _check(folder: Path, uploads: list[_Upload]) -> None:
    """Raise `BrokenInput` for what is no evidence. A run is looked at as a whole, as far as its files lie here."""
    for run_id, own in _runs(folder, uploads):
        read: dict[str, Lines] = {path.name: whole_lines_of(path) for path in own}
        cut = next((name for name, (_, _, is_cut) in read.items() if is_cut), None)
        if cut is not None:
            raise BrokenInput(f"{echo(cut)} is refused", why=f"its last line was cut off, though {run_id} has ended")
        check_lines(read)
    with tempfile.TemporaryDirectory() as temporary:
        connection = connect(Path(temporary))
        try:
            for one in uploads:
                if one.path.suffix != ".jsonl":
                    held(connection, [one.path])
                    source = f"read_parquet('{quoted(one.path)}', hive_partitioning=false)"
                    connection.execute(
                        f"CREATE OR REPLACE TEMP VIEW columns AS SELECT * EXCLUDE (line), file AS path FROM {source}"
                    )
                    if unusual := unusual_paths(connection, "columns"):
                        error = ValueError(f"{sorted(unusual)[0]} has lines that are none of this version")
                        raise no_evidence(one.path, error)
        finally:
            connection.close()


def _runs(folder: Path, uploads: list[_Upload]) -> Iterator[tuple[str, list[Path]]]:
    names = sorted({one.name.rpartition("-")[0] for one in uploads if one.path.suffix == ".jsonl"})
    for run_id in names:
        own = [path for path in sorted(folder.glob("*.jsonl")) if path.name.rpartition("-")[0] == run_id]
        yield run_id, own


def _put(store: ObjectStore, one: _Upload) -> Published:
    longest = LARGEST_MERGE if one.path.suffix == ".jsonl" else LARGEST_OBJECT
    data = read_bytes(one.path, longest=longest)[: one.size]
    store.put(one.name, data, one.before)
    return Published(name=one.name, state="longer" if one.before else "put")
