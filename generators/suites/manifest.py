"""Remember what a generation was made from, so that the same request changes nothing and takes no time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hwcompat.hardware.errors import OutputError
from hwcompat.hardware.files import cache_folder, write_whole

_ROOT = Path(__file__).parents[2]
_SOURCES = ("generators", "hardware", "templates")
_CHANGING = frozenset({"available_bytes", "swap_free_bytes", "cgroup_used_bytes", "current_frequency_mhz", "storage"})
"""Readings of an inventory that no suite depends on and that vary over time."""


def generation_key(
    asked: Mapping[str, Any],
    inventory: Mapping[str, Any],
    recipe_folders: Sequence[Path],
    template_folder: Path | None,
) -> str:
    """Return a hash over all that suites are made from: the request, this machine, our files, recipes and templates.

    Files count by size and modification time. The same key means the same suites; other keys may mean the same too.
    """
    folders = [*(_ROOT / name for name in _SOURCES), *recipe_folders, *filter(None, [template_folder])]
    parts = {"asked": dict(asked), "inventory": _lasting(inventory), "files": [_stamps(folder) for folder in folders]}
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def _lasting(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _lasting(item) for key, item in value.items() if key not in _CHANGING}
    if isinstance(value, list | tuple):
        return [_lasting(item) for item in value]
    return value


def _stamps(folder: Path) -> list[tuple[str, int, int]]:
    found = []
    for path in folder.rglob("*"):
        if path.suffix in (".py", ".toml", ".json", ".j2"):
            state = path.lstat()  # a user's folder may hold broken links
            found.append((str(path), state.st_size, state.st_mtime_ns))
    return sorted(found)


def what_is_there(folder: Path, key: str) -> tuple[dict[str, str], list[str]] | None:
    """Return what was reported for each suite that a generation with this key left in `folder`, and the notes on
    models without a suite; None unless every file is unchanged."""
    try:
        kept = json.loads(_path(folder).read_text(encoding="utf-8"))
        files: dict[str, dict[str, str]] = kept["files"]
        same = kept["key"] == key and all(_sha256(folder / name) == one["sha256"] for name, one in files.items())
        reported = {name: one["said"] for name, one in files.items()}
        return (reported, [str(note) for note in kept["notes"]]) if same and reported else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # unusable, so it's generated again
        return None


def remember(folder: Path, key: str, reported: Mapping[str, str], notes: Sequence[str] = ()) -> None:
    """Store what was reported for each file that a generation left in `folder`, and the notes."""
    files = {name: {"sha256": _sha256(folder / name), "said": text} for name, text in reported.items()}
    path = _path(folder)
    try:
        write_whole(path, json.dumps({"key": key, "files": files, "notes": list(notes)}))
    except OSError as error:
        raise OutputError(f"{path} can't be written", why=error.strerror or str(error)) from error


def _path(folder: Path) -> Path:
    name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:32]
    return cache_folder("generated") / f"{name}.json"


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
