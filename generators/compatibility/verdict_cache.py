"""The verdicts of a folder of evidence, cached if they took long.

The cache key covers the bytes of the evidence, the versions of this machine, our own sources and data, the installed
modeling files, and the local recipes. Nothing is cached if the answer may depend on the day.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hwcompat.generators.models.recipe import DERIVED
from hwcompat.hardware.errors import HwCompatError, OutputError
from hwcompat.hardware.evidence.latest import Latest, read_latest
from hwcompat.hardware.evidence.modeling_files import modeling_stamp
from hwcompat.hardware.evidence.parquet import compacted_files
from hwcompat.hardware.evidence.store import BrokenLine
from hwcompat.hardware.evidence.versions import versions_of
from hwcompat.hardware.files import cache_folder, write_whole
from hwcompat.hardware.inventory.hardware_info import HardwareInfo
from hwcompat.hardware.safe_read import opened

from .imported import ReferenceTests, reference_tests
from .judge import judge
from .matrix_groups import Measured, by_device
from .verdict import Verdict

log = logging.getLogger(__name__)

_MIN_RESULTS = 2_000
"""Number of latest results from which verdicts are cached: fewer are judged in less than a second."""

_MAX_FOLDERS = 8
"""Number of folders whose verdicts stay in the cache."""

_ROOT = Path(__file__).parents[2]
_SOURCE_FOLDERS = ("generators", "hardware", "templates")


@dataclass(frozen=True, kw_only=True)
class Judged:
    """`measured` has a verdict for each cell that the evidence names, `devices` those of single accelerators and
    machines, by view and name. `opinions` are the results of other people's tests, `broken` the unreadable lines."""

    measured: tuple[Verdict, ...] = ()
    devices: Mapping[str, Measured] = field(default_factory=lambda: MappingProxyType({}))
    opinions: tuple[ReferenceTests, ...] = ()
    broken: tuple[BrokenLine, ...] = ()


def judged_of(
    latest: Latest, inventory: HardwareInfo, own_limits: Mapping[str, float] = MappingProxyType({})
) -> Judged:
    """Return the verdicts of the latest results, over all devices and for each; `own_limits` as `judge` has them."""
    measured = judge(latest, inventory, own_limits=own_limits)
    return Judged(
        measured=measured,
        devices=by_device(latest, measured, lambda some: judge(some, inventory, own_limits=own_limits)),
        opinions=reference_tests(latest.others, inventory),
        broken=latest.broken,
    )


def judged_in(
    folder: Path, inventory: HardwareInfo, limits_of: Callable[[Iterable[str]], Mapping[str, float]] | None = None
) -> Judged:
    """Return the verdicts of a folder's evidence. Raises `BrokenInput` if there is no such folder.

    `limits_of` returns a project's tolerances for cells by id; such verdicts aren't cached.
    """
    if limits_of is not None:
        latest = read_latest(folder)
        return judged_of(latest, inventory, limits_of(latest.cells))
    kept = _place(folder, inventory)
    if kept is not None and (found := _read(kept)) is not None:
        return found
    latest = read_latest(folder)
    found = judged_of(latest, inventory)
    plain = not (found.opinions or found.broken or latest.others.other_checks or latest.imported or latest.ahead)
    if kept is not None and plain and len(latest.checks) >= _MIN_RESULTS:
        _keep(kept, found)
    return found


def _place(folder: Path, inventory: HardwareInfo) -> Path | None:
    """Return where the verdicts of this evidence are cached; None if it can't be read."""
    digest = hashlib.blake2b(digest_size=20)
    try:
        for path in sorted([*folder.glob("*.jsonl"), *compacted_files(folder)]):
            with opened(path) as file:
                whole = hashlib.file_digest(file, "blake2b").hexdigest()
            digest.update(f"{path.relative_to(folder)} {whole}\n".encode())
        digest.update(json.dumps(versions_of(inventory), sort_keys=True).encode())
        digest.update(modeling_stamp().encode())
        roots = [*(_ROOT / name for name in _SOURCE_FOLDERS), cache_folder(DERIVED)]
        for line in sorted(line for root in roots for line in _files(root)):
            digest.update(line.encode())
        return cache_folder("verdicts") / f"{digest.hexdigest()}.json"
    except (OSError, OutputError) as error:
        log.debug("verdicts of %s are not cached: %s", folder, error)
        return None


def _files(root: Path) -> Iterator[str]:
    """Yield each file below a folder with its size and modification time."""
    for parent, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            path = os.path.join(parent, name)
            status = os.stat(path)
            yield f"{path} {status.st_size} {status.st_mtime_ns}\n"


def _keep(path: Path, found: Judged) -> None:
    places = {id(verdict): place for place, verdict in enumerate(found.measured)}
    own: list[Verdict] = []

    def place_of(verdict: Verdict) -> int:
        if id(verdict) not in places:
            places[id(verdict)] = len(found.measured) + len(own)
            own.append(verdict)
        return places[id(verdict)]

    devices = {
        view: {name: [place_of(one) for one in verdicts] for name, verdicts in by_name.items()}
        for view, by_name in found.devices.items()
    }
    said = {
        "verdicts": [one.to_dict() for one in (*found.measured, *own)],
        "measured": len(found.measured),
        "devices": devices,
    }
    try:
        write_whole(path, json.dumps(said))
        for old in sorted(path.parent.glob("*.json"), key=lambda one: one.stat().st_mtime)[:-_MAX_FOLDERS]:
            old.unlink(missing_ok=True)
    except (OSError, HwCompatError) as error:
        log.debug("%s isn't cached: %s", path.name, error)


def _read(path: Path) -> Judged | None:
    try:
        said: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        verdicts: Sequence[Verdict] = [Verdict.from_dict(one) for one in said["verdicts"]]
        return Judged(
            measured=tuple(verdicts[: said["measured"]]),
            devices={
                view: {name: [verdicts[place] for place in places] for name, places in by_name.items()}
                for view, by_name in said["devices"].items()
            },
        )
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, HwCompatError):
        return None
