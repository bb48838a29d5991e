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
    """A zip archive, and the folder that it becomes there; a bundle lies beside the `package` that it was packed
    with."""

    place: str
    data: bytes
    package: str = ""

    def told(self) -> dict[str, str | int]:
        """What the other side has to know to unpack it; the hash tells that it arrived."""
        digest = hashlib.sha256(self.data).hexdigest()
        return {"place": self.place, "size": len(self.data), "sha256": digest, "package": self.package}


def packed_package() -> Packed:
    """The package `hardware`: what a suite needs of us where it runs."""
    return _packed("packages", package_part())


def packed_bundle(written: Sequence[WrittenSuite], versions: Mapping[str, str], package: Packed) -> Packed:
    """The suites as they lie on disk, edited or not, with their sealed predictions. Raises `UsageError` for suites
    of a user's own code."""
    planned = [replace(one.planned, text=one.path.read_text(encoding="utf-8")) for one in written]
    return _packed("bundles", bundle_files("lab", planned, versions), package.place)


def key_of(written: Sequence[WrittenSuite], words: Sequence[str], package: Packed) -> str:
    """Names a run by all that decides what it does, so that the same request finds it again: suites, words for
    run.py, package. What was predicted of it isn't in it."""
    suites = sorted((one.planned.cell.id, hashlib.sha256(one.path.read_bytes()).hexdigest()) for one in written)
    return hashlib.sha256(json.dumps([suites, list(words), package.place]).encode()).hexdigest()[:_DIGITS]


def _packed(kind: str, files: Mapping[str, bytes], package: str = "") -> Packed:
    files = {name: files[name] for name in sorted(files)}
    digest = hashlib.sha256(package.encode())
    for name, data in files.items():
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return Packed(place=f"{kind}/{digest.hexdigest()[:_DIGITS]}", data=zipped(files), package=package)
