"""What is sent to a lab machine: the package that suites need, once, and the bundle of a run, each under its hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from generators.job import WrittenSuite
from generators.suites.bundle import bundle_files, package_part, zipped

_DIGITS = 16


@dataclass(frozen=True, kw_only=True)
class Packed:
    """A zip archive and the name of the folder that it becomes there."""

    name: str
    data: bytes

    @property
    def sha256(self) -> str:
        """The hash by which the other side sees that it arrived."""
        return hashlib.sha256(self.data).hexdigest()


def packed_package() -> Packed:
    """The package `hardware`: what a suite needs of us where it runs."""
    return _packed(package_part())


def packed_bundle(written: Sequence[WrittenSuite], versions: Mapping[str, str], package: Packed) -> Packed:
    """The suites as they lie on disk, edited or not, with their sealed predictions. Raises `UsageError` for suites
    of a user's own code."""
    planned = [replace(one.planned, text=one.path.read_text(encoding="utf-8")) for one in written]
    return _packed(bundle_files("lab", planned, versions), beside=package.name)


def key_of(written: Sequence[WrittenSuite], words: Sequence[str], package: Packed) -> str:
    """Names a run by all that decides what it does, so that the same request finds it again: suites, words for
    run.py, package. What was predicted of it isn't in it."""
    suites = sorted((one.planned.cell.id, hashlib.sha256(one.path.read_bytes()).hexdigest()) for one in written)
    return hashlib.sha256(json.dumps([suites, list(words), package.name]).encode()).hexdigest()[:_DIGITS]


def _packed(files: Mapping[str, bytes], beside: str = "") -> Packed:
    digest = hashlib.sha256(beside.encode())
    for name in sorted(files):
        digest.update(f"{name}\0{len(files[name])}\0".encode() + files[name])
    return Packed(name=digest.hexdigest()[:_DIGITS], data=zipped({name: files[name] for name in sorted(files)}))
