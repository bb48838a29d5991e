"""A copy of evidence that lies in object storage, so that one reader reads both.

Whole objects are copied, and only those that changed; the copy has what the place has and nothing else. Columns
aren't read straight from the store: how much text a Parquet file comes to has to be known before it is read, and that
takes all of it (measured in docs/EVIDENCE_AT_SCALE.md).
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from ..errors import BrokenInput, OutputError
from ..plain_text import size_text
from ..untrusted import read_json
from ..whole_file import one_at_a_time, write_whole
from .address import Address
from .object_store import ChangedObjectError, Listing, ObjectStore, StoredObject

_INDEX = "copied.json"
_LARGEST_INDEX = 64 * 1024 * 1024
_AT_ONCE = 8
"""Objects that are copied at the same time."""

_TRIES = 3
_FREE = 1024**3
"""Bytes of the disk that are left to others."""


@dataclass(frozen=True, kw_only=True)
class Mirrored:
    """What was done: how many objects there are, how many of them were copied now, and how many bytes that were;
    how many others lie there that are no evidence, with one of them as an example."""

    objects: int
    copied: int
    size: int
    others: int
    example: str


@dataclass(frozen=True, kw_only=True)
class _Copied:
    """An object as it was copied: what the store said of it, and what its file was like afterwards."""

    size: int
    stamp: str
    changed_ns: int


def mirror(
    address: Address, wanted: Callable[[str], bool] = lambda name: True, *, may_be_empty: bool = False
) -> Mirrored:
    """Bring the copy of a place up to date; of objects that aren't `wanted`, by name, nothing is copied or removed.

    Raises `BrokenInput` where there is no such place, or nothing in it, unless it `may_be_empty`; where an object
    changes again and again while it is read. `UsageError`, `OutputError`.
    """
    store = ObjectStore(address)
    folder = address.copy
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with one_at_a_time(folder):
            for _ in range(_TRIES):
                listing = store.listing()
                if not (listing.found or may_be_empty):
                    raise BrokenInput(f"{address} holds no evidence", why=_what_else(listing), fix=_FIX)
                try:
                    return _brought_home(store, listing, folder, wanted)
                except ChangedObjectError as error:
                    changed = error
            raise changed
    except OSError as error:
        raise OutputError(f"{address} can't be copied to {folder}", why=error.strerror or str(error)) from error


_FIX = "Put some there with: hardware_compatibility_reporter.py --evidence FOLDER --publish ADDRESS"


def _what_else(listing: Listing) -> str:
    return f"{listing.others} other object(s) lie there, {listing.example!r} among them" if listing.others else ""


def _brought_home(store: ObjectStore, listing: Listing, folder: Path, wanted: Callable[[str], bool]) -> Mirrored:
    before = _read_index(folder)
    found = {name: one for name, one in listing.found.items() if wanted(name)}
    new = [one for name, one in found.items() if not _is_same(folder / name, one, before.get(name))]
    _check_room(store.address, folder, sum(one.size for one in new))
    kept = {name: told for name, told in before.items() if not wanted(name)}
    kept |= {name: before[name] for name in found.keys() - {one.name for one in new}}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        waiting = [(one, pool.submit(_copy, store, one, folder)) for one in new]
        try:
            for one, copied in waiting:
                kept[one.name] = copied.result()
        finally:
            for _, copied in waiting:
                copied.cancel()
            _write_index(folder, kept)
    _remove_others(folder, kept)
    return Mirrored(
        objects=len(found),
        copied=len(new),
        size=sum(one.size for one in new),
        others=listing.others,
        example=listing.example,
    )


def _is_same(path: Path, one: StoredObject, before: _Copied | None) -> bool:
    """Whether the copy is of this very object, and nobody touched it."""
    if before is None or not one.stamp or (one.stamp, one.size) != (before.stamp, before.size):
        return False
    try:
        told = path.lstat()
    except OSError:
        return False
    return (told.st_size, told.st_mtime_ns) == (before.size, before.changed_ns)


def _check_room(address: Address, folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if size > free - _FREE:
        raise OutputError(
            f"{address} can't be copied",
            why=f"{size_text(size)} are new there, and {folder} has {size_text(free)} free",
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
    """What the place has no more, and what a process that was killed left."""
    for path in (*folder.glob("*.*"), *folder.glob("month=*/*")):
        name = path.relative_to(folder).as_posix()
        if name not in kept and name not in (_INDEX, ".lock") and not path.is_dir():
            path.unlink()


def _read_index(folder: Path) -> dict[str, _Copied]:
    try:
        found = read_json(folder / _INDEX, longest=_LARGEST_INDEX)
        return {str(name): _Copied(**told) for name, told in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _write_index(folder: Path, kept: Mapping[str, _Copied]) -> None:
    write_whole(folder / _INDEX, json.dumps({name: asdict(told) for name, told in sorted(kept.items())}))
