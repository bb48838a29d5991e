"""Reads the config.json of a checkpoint's folder, and refuses what would be loaded from elsewhere because of it.

Own modelling code is never run, since classes are the library's. What else a library would fetch or load for a
configuration is refused by name: kernels (`attn_implementation = "somebody/kernels"`) and adapters, whose base lies
wherever their file says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .errors import BrokenInput, echo
from .untrusted import is_plain_file, read_json, reason_of

_LARGEST_CONFIG = 10 * 2**20
_ADAPTER = "adapter_config.json"
_IMPLEMENTATIONS = frozenset({"attn_implementation", "experts_implementation"})


def read_config(folder: Path) -> dict[str, Any] | None:
    """What config.json says; `None` where there is none. Raises `BrokenInput` where it can't be read."""
    path = folder / "config.json"
    if not is_plain_file(path):
        return None
    try:
        config = read_json(path, longest=_LARGEST_CONFIG, finite=False)  # transformers writes Infinity
        if not isinstance(config, dict):
            raise ValueError("it holds no JSON object")
    except (OSError, ValueError) as error:
        raise BrokenInput(
            f"config.json in {echo(str(folder))} cannot be read",
            why=f"it is corrupt or truncated: {reason_of(error)}",
            fix="Fetch it again.",
        ) from error
    return config


def refuse_foreign(folder: Path, config: Mapping[str, Any]) -> None:
    """Raises `BrokenInput` where loading would take code or weights from elsewhere."""
    where = echo(str(folder))
    if (folder / _ADAPTER).exists():
        raise BrokenInput(
            f"the checkpoint {where} is refused",
            why=f"it is an adapter: {_ADAPTER} names another model, and that one would be loaded",
            fix="Merge the adapter into its model, and save that.",
        )
    for name, value in _settings(config):
        if name.strip("_").removesuffix("_internal") in _IMPLEMENTATIONS and "/" in str(value):
            raise BrokenInput(
                f"the checkpoint {where} is refused",
                why=f"its config.json sets {name} to {echo(str(value))}, which is code that somebody else keeps",
                fix=f"Take {name} out of config.json.",
            )


def _settings(config: Any) -> Iterator[tuple[str, Any]]:
    """All names with their values in a configuration and those inside it."""
    if isinstance(config, Mapping):
        for name, value in config.items():
            yield str(name), value
            yield from _settings(value)
    elif isinstance(config, list):
        for value in config:
            yield from _settings(value)
