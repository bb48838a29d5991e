"""Reads of a disk past the system's cache: large blocks in order, and small ones at random places.

The whole disk is read, and nothing is written, or a temporary file on it is written first and then read. Blocks of a
disk that were never written, as in a new virtual disk, may be read faster than others.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from hwcompat.hardware.files import cache_folder

from .loads import StressLoad, WrongResult

STORAGE = "storage"
WRITES, IN_ORDER, AT_RANDOM = "sequential write", "sequential read", "random read"
_MOST_BYTES = 2**30


@dataclass(frozen=True, kw_only=True)
class DiskPattern:
    """Passes over blocks of `block_bytes`, `waiting` of them at a time."""

    name: str
    block_bytes: int
    waiting: int


PATTERNS = (
    DiskPattern(name=WRITES, block_bytes=2**20, waiting=4),
    DiskPattern(name=IN_ORDER, block_bytes=2**20, waiting=4),
    DiskPattern(name=AT_RANDOM, block_bytes=2**12, waiting=32),
)


def disk_of(target: str) -> Path:
    """Return the device file of a target: `/dev/nvme0n1` for `storage:nvme0n1`."""
    return Path("/dev") / target.partition(":")[2]


def why_unreadable(disk: Path) -> str:
    """Return why a disk can't be read past the system's cache; empty if it can."""
    if not hasattr(os, "O_DIRECT"):
        return "only Linux reads disks past its cache"
    try:
        os.close(os.open(disk, os.O_RDONLY | os.O_DIRECT))
    except PermissionError as error:
        return f"reading {disk} needs root: {error.strerror}. --write measures with a temporary file instead"
    except OSError as error:
        return f"{disk} can't be read: {error.strerror}"
    return ""


def folder_on(mount_points: Sequence[str]) -> str:
    """Return a writable folder on a disk with these mounts; empty if there is none."""
    places = set(filter(None, map(_filesystem, mount_points)))
    for folder in (cache_folder("rates"), Path(tempfile.gettempdir()), *map(Path, mount_points)):
        if _filesystem(folder) in places and os.access(folder, os.W_OK):
            return str(folder)
    return ""


def _filesystem(path: Path | str) -> int | None:
    with contextlib.suppress(OSError):
        return os.stat(path).st_dev
    return None


class Blocks(StressLoad):
    """Repeated reads or writes of blocks of a file, or of a whole disk. Close it to end its threads."""

    unit = "bytes"

    def __init__(self, path: Path, pattern: DiskPattern) -> None:
        self.name, self.pattern = pattern.name, pattern
        self.array_bytes = pattern.block_bytes
        self.work = float(pattern.block_bytes)
        self._file = os.open(path, (os.O_RDWR if pattern.name == WRITES else os.O_RDONLY) | os.O_DIRECT)
        self._count = os.lseek(self._file, 0, os.SEEK_END) // pattern.block_bytes
        if not self._count:
            os.close(self._file)
            raise OSError(f"{path} has less than {pattern.block_bytes} bytes")
        self._random = random.Random(0)
        self._last = 0
        self._own = threading.local()
        self._written = mmap.mmap(-1, pattern.block_bytes)
        self._written.write(self._random.randbytes(pattern.block_bytes))
        self._pool = ThreadPoolExecutor(pattern.waiting)
        self._short = 0

    def run(self, times: int) -> None:
        """Pass over `times` blocks. Raises `OSError` of a disk that fails."""
        self._short += sum(self._pool.map(self._pass, [self._place() for _ in range(times)]))

    def _place(self) -> int:
        in_order = self.name != AT_RANDOM
        self._last = (self._last + 1) % self._count if in_order else self._random.randrange(self._count)
        return self._last * self.pattern.block_bytes

    def _pass(self, place: int) -> bool:
        """Read or write a block; return whether less was read or written than asked for."""
        if self.name == WRITES:
            return os.pwritev(self._file, [self._written], place) != self.pattern.block_bytes
        return os.preadv(self._file, [self._buffer()], place) != self.pattern.block_bytes

    def _buffer(self) -> mmap.mmap:
        if not hasattr(self._own, "buffer"):
            self._own.buffer = mmap.mmap(-1, self.pattern.block_bytes)  # whole pages, as direct reads need
        buffer: mmap.mmap = self._own.buffer
        return buffer

    def wait(self) -> None:
        return  # `run` waits for its blocks

    def forget(self) -> None:
        self._short = 0
        self._written[:8] = self._random.randbytes(8)

    def check(self) -> None:
        """Raises `WrongResult` if blocks were too short, or the last written one isn't read as it was written."""
        if self._short:
            raise WrongResult(f"{self._short} blocks were shorter than asked for")
        if self.name == WRITES:
            os.preadv(self._file, [self._buffer()], self._last * self.pattern.block_bytes)
            if self._buffer()[:] != self._written[:]:
                raise WrongResult("a block isn't read as it was written")

    def close(self) -> None:
        """End the threads and close the file."""
        self._pool.shutdown()
        os.close(self._file)


@contextlib.contextmanager
def _temporary_file(folder: str) -> Iterator[Path]:
    free = os.statvfs(folder)
    size = min(_MOST_BYTES, free.f_bavail * free.f_frsize // 4) // 2**20 * 2**20
    if not size:
        raise OSError(f"there are less than {4 * 2**20} bytes free on the disk")
    with tempfile.NamedTemporaryFile(dir=folder, prefix="hwcompat-stress-") as file:
        os.posix_fallocate(file.fileno(), 0, size)
        block = os.urandom(2**20)
        for start in range(0, size, len(block)):
            os.pwrite(file.fileno(), block, start)
        os.fsync(file.fileno())
        yield Path(file.name)


def stress_disk(
    target: str, folder: str, run_load: Callable[..., dict[str, float]], say: Callable[..., None]
) -> None:
    """Read a disk, or write and read a temporary file in `folder` on it. Reads in order are sustained; `run_load`
    runs a load and returns what it did."""
    say("device", name=str(disk_of(target)))
    with _temporary_file(folder) if folder else contextlib.nullcontext(disk_of(target)) as path:
        for pattern in PATTERNS if folder else PATTERNS[1:]:
            blocks = Blocks(path, pattern)
            try:
                done = run_load(blocks, sustained=pattern.name == IN_ORDER)
            finally:
                blocks.close()
            remark = f"{done['calls'] / done['seconds']:,.0f} reads per second" if pattern.name == AT_RANDOM else ""
            say("bandwidth", kernel=pattern.name, array_bytes=pattern.block_bytes, remark=remark, **done)
