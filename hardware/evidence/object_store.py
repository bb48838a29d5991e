"""Read and write object storage through fsspec and its installed implementations.

Nothing in a store is trusted: names are checked against those of evidence, sizes against limits, and an object that
changes while it is read is refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, BinaryIO

from ..errors import BrokenInput, HwCompatError, OutputError, UsageError, did_you_mean
from ..plain_text import one_line, size_text
from ..redaction import redact
from .address import Address
from .parquet import PARTITION

_OURS = ("s3", "s3a")
"""Protocols whose implementation is in the extra `object-storage`."""

MOST_OBJECTS = 100_000
LARGEST_OBJECT = 4 * 1024**3
"""In bytes. A run of all types has 10 MB, a Parquet file of ours 20 MB."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,180}\.(?:jsonl|parquet)")
_STAMPS = ("ETag", "etag", "generation", "md5Hash", "content_md5", "crc32c", "version_id", "mtime", "created")
_WEAK_STAMPS = ("LastModified", "last_modified", "updated", "modified")
_PIECE = 8 * 1024 * 1024

_NO_METADATA_SERVICE = {"AWS_EC2_METADATA_DISABLED": "true", "NO_GCE_CHECK": "true"}
"""Without these, clients without credentials ask the metadata service at 169.254.169.254. On a cloud machine with a
role, set them to `false`."""

_WHOLE = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "memory", "oss", "oci", "r2"})
"""Stores in which an object appears whole or not at all."""


@dataclass(frozen=True, kw_only=True)
class StoredObject:
    """An object of evidence: its name below the prefix, its key in the store, its size in bytes, and a stamp of its
    version, empty if the store has none."""

    name: str
    key: str
    size: int
    stamp: str


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The objects below an address: evidence by name, and what else is there in words."""

    found: Mapping[str, StoredObject]
    others: str = ""


class ObjectStore:
    """A place in object storage. Raises `UsageError` if fsspec lacks a package for it."""

    def __init__(self, address: Address) -> None:
        self.address = address
        for name, value in _NO_METADATA_SERVICE.items():
            os.environ.setdefault(name, value)
        self._files, self._root = _filesystem(address)

    def listing(self) -> Listing:
        """Return the objects of evidence. Raises `BrokenInput` if there is no such place or it holds too much."""
        with self._with_our_errors("list"):
            self._files.invalidate_cache()
            rows = self._files.find(self._root, maxdepth=2, detail=True)
        if len(rows) > MOST_OBJECTS:
            raise BrokenInput(
                f"{self.address} has more than {MOST_OBJECTS:,} objects", fix="Give a prefix inside it."
            )
        found: dict[str, StoredObject] = {}
        others: list[str] = []
        for key, entry in rows.items():
            name = str(key).removeprefix(self._root).lstrip("/")
            size = entry.get("size")
            if entry.get("type") != "file" or not is_name(name) or entry.get("islink") or not isinstance(size, int):
                others.append(name)
                continue
            if not 0 <= size <= LARGEST_OBJECT:
                raise BrokenInput(
                    f"{one_line(name, longest=120)} in {self.address} is refused",
                    why=f"it is larger than {size_text(LARGEST_OBJECT)}",
                )
            found[name] = StoredObject(name=name, key=str(key), size=size, stamp=_stamp(entry))
        more = f"{len(others)} other object(s), for example {one_line(others[0], longest=80)!r}" if others else ""
        return Listing(found=found, others=more)

    def read(self, one: StoredObject, file: BinaryIO) -> None:
        """Copy an object's bytes. Raises `BrokenInput` if it is no longer the listed object."""
        with self._with_our_errors(f"read {one.name} of"):
            left = one.size
            with self._files.open(one.key, "rb", block_size=_PIECE, cache_type="readahead") as source:
                while data := source.read(min(_PIECE, left + 1)):
                    file.write(data)
                    left -= len(data)
                    if left < 0:
                        break
            self._files.invalidate_cache(self._files._parent(one.key))
            entry = self._files.info(one.key)
        if left or entry.get("size") != one.size or (one.stamp and _stamp(entry) not in ("", one.stamp)):
            raise ChangedObjectError(f"{one.name} in {self.address} changed while it was read")

    def put(self, name: str, data: bytes, before: StoredObject | None) -> None:
        """Write a whole object, new or in the place of `before`, and read it back.

        Raises `OutputError`, also if another process has written there in the meantime.
        """
        key = f"{self._root}/{name}"
        with self._with_our_errors(f"write {name} to", writes=True):
            if self.address.protocol in _WHOLE:
                self._put_whole(key, data, before)
            else:  # a file on a disk appears before it is whole
                if before is None and self._files.exists(key):
                    raise FileExistsError
                self._files.makedirs(self._files._parent(key), exist_ok=True)
                self._files.pipe_file(f"{key}.part", data)
                self._files.mv(f"{key}.part", key)
            self._files.invalidate_cache(self._files._parent(key))
            if self._files.cat_file(key) != data:
                raise OSError("the stored object differs from what was written")

    def _put_whole(self, key: str, data: bytes, before: StoredObject | None) -> None:
        if before is None:
            self._files.pipe_file(key, data, mode="create")
            return
        self._files.invalidate_cache(self._files._parent(key))
        if _stamp(self._files.info(key)) != before.stamp:
            raise OSError("another process wrote it in the meantime")
        self._files.pipe_file(key, data)

    @contextmanager
    def _with_our_errors(self, what: str, *, writes: bool = False) -> Iterator[None]:
        """Convert whatever a store's library raises to one of our errors, without secrets."""
        kind = OutputError if writes else BrokenInput
        try:
            yield
        except HwCompatError:
            raise
        except FileExistsError as error:
            raise kind(f"can't {what} {self.address}", why="an object already exists there") from error
        except FileNotFoundError as error:
            raise kind(f"can't {what} {self.address}", why="no such bucket or object") from error
        except Exception as error:  # implementations share no other base class
            if getattr(error, "errno", None) == _EXPIRED:
                raise ChangedObjectError(f"an object in {self.address} changed while it was read") from error
            why = one_line(redact(f"{type(error).__name__}: {error}"), longest=200)
            fix = ""
            if isinstance(error, PermissionError) or "redential" in type(error).__name__ + str(error):
                fix = "Set credentials in the store's own variables or files, for example AWS_PROFILE."
            raise kind(f"can't {what} {self.address}", why=why, fix=fix) from error


_EXPIRED = 16
"""EBUSY, which s3fs raises if an object isn't the one that was opened."""


class ChangedObjectError(BrokenInput):
    """The object isn't the one that was listed."""


def is_name(name: str) -> bool:
    """Whether an object below the prefix has the name of an evidence file or of a Parquet file of a month."""
    month, _, last = name.rpartition("/")
    plain = _NAME.fullmatch(last) is not None and ".." not in last
    return plain and (not month or (PARTITION.fullmatch(month) is not None and last.endswith(".parquet")))


def _stamp(entry: Mapping[str, Any]) -> str:
    """Return a stamp that differs between versions of an object, from its properties in the store."""
    stamps = [f"{name}={_plain(entry[name])}" for name in _STAMPS if entry.get(name) is not None]
    stamps = stamps or [f"{name}={_plain(entry[name])}" for name in _WEAK_STAMPS if entry.get(name) is not None]
    return " ".join(stamps)


def _plain(value: Any) -> str:
    """Return seconds for a date: one store reports the same moment in both forms."""
    value = value.timestamp() if isinstance(value, datetime) else value
    return f"{value:.6f}" if isinstance(value, float) else str(value)


def _filesystem(address: Address) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError as error:
        raise UsageError(
            f"{address} can't be reached", why="fsspec isn't installed", fix="make setup-object-storage"
        ) from error
    from fsspec.registry import known_implementations

    try:
        files, root = fsspec.url_to_fs(str(address))
    except ImportError as error:
        entry = known_implementations.get(address.protocol, {})
        fix = (
            "make setup-object-storage"
            if address.protocol in _OURS
            else f"{entry.get('err', 'Install the package for this protocol')}."
        )
        why = f"the fsspec package for {address.protocol}:// isn't installed"
        raise UsageError(f"{address} can't be reached", why=why, fix=fix) from error
    except ValueError as error:
        raise UsageError(
            f"{address} can't be reached",
            why=f"fsspec doesn't support {address.protocol}://",
            fix=did_you_mean(address.protocol, known_implementations),
        ) from error
    return files, str(root).rstrip("/")
