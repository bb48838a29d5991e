"""Copy evidence from object storage, and publish evidence to it.

Whole objects are copied, and only those that changed; afterwards the copy holds exactly the objects at the address.
Columns aren't read directly from the store, because the size of a Parquet file's text has to be known before it is
read, which takes the whole file (measured in docs/measured/evidence-at-scale.md). An object is only ever replaced by
its own continuation.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from ..errors import BrokenInput, OutputError, echo
from ..files import one_at_a_time, write_whole, writing
from ..plain_text import size_text
from ..safe_read import is_plain_file, read_bytes, read_json
from .address import Address
from .columns import connected, unusual_paths
from .compacted import ended_runs
from .merge import LARGEST_MERGE, Lines, check_lines, whole_lines_of
from .object_store import LARGEST_OBJECT, ChangedObjectError, Listing, ObjectStore, StoredObject, is_name
from .parquet import compacted_files, examined_in, held, quoted, reading
from .seals import run_of
from .store import check_folder

_INDEX = "copied.json"
_LARGEST_INDEX = 64 * 1024 * 1024
_AT_ONCE = 8
"""The number of objects that are copied at the same time."""

_TRIES = 3
_FREE = 1024**3
"""The number of bytes of the disk that stay free."""


@dataclass(frozen=True, kw_only=True)
class Mirrored:
    """The result of `mirror`: the number of objects, how many of them were copied, and what else is there."""

    objects: int
    copied: int
    size: int
    others: str


@dataclass(frozen=True, kw_only=True)
class _Copied:
    """A copied object: its properties in the store, and those of its file afterwards."""

    size: int
    stamp: str
    changed_ns: int


def mirror(
    address: Address, wanted: Callable[[str], bool] = lambda name: True, *, may_be_empty: bool = False
) -> Mirrored:
    """Bring the copy of an address up to date. Objects whose names aren't `wanted` are neither copied nor removed.

    Raises `BrokenInput` if there is no such place, if it is empty (unless `may_be_empty`), or if an object keeps
    changing while it is read; `UsageError`, `OutputError`.
    """
    store = ObjectStore(address)
    folder = address.copy
    with writing(f"{address} can't be copied to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        with one_at_a_time(folder):
            for _ in range(_TRIES):
                listing = store.listing()
                if not (listing.found or may_be_empty):
                    raise BrokenInput(
                        f"no evidence in {address}",
                        why=f"it has {listing.others}" if listing.others else "",
                        fix="Publish evidence there: hwcompat evidence publish ADDRESS --evidence FOLDER",
                    )
                try:
                    return _mirror_listed(store, listing, folder, wanted)
                except ChangedObjectError as error:
                    changed = error
            raise changed


def _mirror_listed(store: ObjectStore, listing: Listing, folder: Path, wanted: Callable[[str], bool]) -> Mirrored:
    before = _read_index(folder)
    found = {name: one for name, one in listing.found.items() if wanted(name)}
    new = [one for name, one in found.items() if not _is_same(folder / name, one, before.get(name))]
    _check_room(store.address, folder, sum(one.size for one in new))
    kept = {name: copied for name, copied in before.items() if not wanted(name)}
    kept |= {name: before[name] for name in found.keys() - {one.name for one in new}}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        waiting = [(one, pool.submit(_copy, store, one, folder)) for one in new]
        try:
            for one, copied in waiting:
                kept[one.name] = copied.result()
        finally:
            for _, copied in waiting:
                copied.cancel()
            index = {name: asdict(copied) for name, copied in sorted(kept.items())}
            write_whole(folder / _INDEX, json.dumps(index))
    _remove_others(folder, kept)
    size = sum(one.size for one in new)
    return Mirrored(objects=len(found), copied=len(new), size=size, others=listing.others)


def _is_same(path: Path, one: StoredObject, before: _Copied | None) -> bool:
    """Whether a copy was made from this object and hasn't been changed since."""
    if before is None or not one.stamp or (one.stamp, one.size) != (before.stamp, before.size):
        return False
    try:
        found = path.lstat()
    except OSError:
        return False
    return (found.st_size, found.st_mtime_ns) == (before.size, before.changed_ns)


def _check_room(address: Address, folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if size > free - _FREE:
        raise OutputError(
            f"{address} can't be copied",
            why=f"{size_text(size)} must be copied, but {folder} has only {size_text(free)} free",
        )


def _copy(store: ObjectStore, one: StoredObject, folder: Path) -> _Copied:
    path = folder / one.name
    path.parent.mkdir(exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".", suffix=".part", delete=False) as part:
        try:
            store.read(one, part)  # type: ignore[arg-type] # it has all that a BinaryIO has
            part.close()
            Path(part.name).replace(path)
        except BaseException:
            Path(part.name).unlink(missing_ok=True)
            raise
    return _Copied(size=one.size, stamp=one.stamp, changed_ns=path.stat().st_mtime_ns)


def _remove_others(folder: Path, kept: Mapping[str, _Copied]) -> None:
    """Remove files that are no longer in the store, and those that a killed process left behind."""
    for path in (*folder.glob("*.*"), *folder.glob("month=*/*")):
        name = path.relative_to(folder).as_posix()
        if name not in kept and name not in (_INDEX, ".lock") and not path.is_dir():
            path.unlink()


def _read_index(folder: Path) -> dict[str, _Copied]:
    try:
        found = read_json(folder / _INDEX, longest=_LARGEST_INDEX)
        return {str(name): _Copied(**fields) for name, fields in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


# Publishing


@dataclass(frozen=True, kw_only=True)
class Published:
    """The result for one file: its name, and one of `put`, `longer` (it had grown), `known` (nothing new), or `left`
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
    """Publish the files of a folder's finished runs and its Parquet files: all of them or none.

    New lines are checked against the schema and the plan, as `merge_evidence` does, and each object is read back.
    Files of unfinished runs and changed files are left out. Raises `BrokenInput` if an object with one of these
    names has other content or a file isn't evidence; `OutputError`, `UsageError`.
    """
    check_folder(folder)
    paths, left = _finished(folder)
    paths |= {path.relative_to(folder).as_posix(): path for path in compacted_files(folder)}
    for name in paths:
        if not is_name(name):
            raise BrokenInput(f"{echo(name)} is not a valid evidence file name", fix="Remove it from the folder.")
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
    """Return the files of JSON lines that can be published, and those that can't."""
    found = {path.name: path for path in sorted(folder.glob("*.jsonl")) if is_plain_file(path)}
    refused = examined_in(folder, found).refused
    ended = ended_runs(found.values())
    left = []
    for name, path in list(found.items()):
        why = refused.get(name) or ("it is a link" if path.is_symlink() else "")
        why = why or ("" if run_of(name) in ended else "its run has not ended")
        if why:
            left.append(Published(name=name, state="left", why=why))
            del found[name]
    return found, left


def _state(path: Path, copy: Path, is_there: bool, address: Address) -> str:
    """Return whether a file is new in the store, continues the object there, or adds nothing. Raises
    `BrokenInput`."""
    if not is_there:
        return "put"
    if not copy.exists():
        why = f"another process wrote {path.name} at the same time"
        raise OutputError(f"{address} was changed during publishing", why=why, fix="Publish again.")
    own, other = path.stat().st_size, copy.stat().st_size
    length = min(own, other)
    if _beginning(path, length) != _beginning(copy, length) or (path.suffix != ".jsonl" and own != other):
        raise BrokenInput(
            f"{echo(path.name)} already exists in {address} with different content",
            why="evidence is append-only, so one of the two files was modified",
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
    """Raise `BrokenInput` for files that aren't evidence. A run's files in this folder are checked together."""
    for run_id in sorted({run_of(one.name) for one in uploads if one.path.suffix == ".jsonl"}):
        own = [path for path in sorted(folder.glob("*.jsonl")) if run_of(path.name) == run_id]
        read: dict[str, Lines] = {path.name: whole_lines_of(path) for path in own}
        cut = next((name for name, (_, _, is_cut) in read.items() if is_cut), None)
        if cut is not None:
            raise BrokenInput(
                f"{echo(cut)} is refused", why=f"its last line is truncated, although run {run_id} has ended"
            )
        check_lines(read)
    packed = [one.path for one in uploads if one.path.suffix != ".jsonl"]
    with connected() as connection:
        for path in held(connection, packed):
            source = f"read_parquet({quoted(path)}, hive_partitioning=false)"
            connection.execute(
                f"CREATE OR REPLACE TEMP VIEW columns AS SELECT * EXCLUDE (line), file AS path FROM {source}"
            )
            with reading(path):
                if unusual := unusual_paths(connection, "columns"):
                    raise ValueError(f"{min(unusual)} has lines that this version can't read")


def _put(store: ObjectStore, one: _Upload) -> Published:
    longest = LARGEST_MERGE if one.path.suffix == ".jsonl" else LARGEST_OBJECT
    data = read_bytes(one.path, longest=longest)[: one.size]
    store.put(one.name, data, one.before)
    return Published(name=one.name, state="longer" if one.before else "put")
