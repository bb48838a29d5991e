"""Settings to start with on a target, each with the reason for it; the values are `_settings.toml`."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from ..errors import UsageError, did_you_mean, echo
from ..target import Target

_FILE = Path(__file__).with_name("_settings.toml")
OWN = "chosen by the caller"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One value and why."""

    value: Any
    reason: str


@dataclass(frozen=True, kw_only=True)
class DeviceSettings:
    """`precision` of weights, `batch_size` in rows, `threads` (0: as the runtime does), `memory_format` of images."""

    precision: Setting
    batch_size: Setting
    threads: Setting
    memory_format: Setting

    def with_own(self, own: Mapping[str, Any]) -> DeviceSettings:
        """The same with values of one's own. Raises `UsageError` for an unknown name or a value of another kind."""
        known = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, value in own.items():
            if name not in known:
                raise UsageError(
                    f"unknown setting {echo(name)}",
                    fix=f"{did_you_mean(name, known)} Known: {', '.join(known)}.".strip(),
                )
            if type(value) is not type(known[name].value) or value == "" or (isinstance(value, int) and value < 0):
                raise UsageError(
                    f"{name} can't be {echo(str(value))}", fix=f"A value like {known[name].value!r} is wanted."
                )
        return replace(self, **{name: Setting(value=value, reason=OWN) for name, value in own.items()})

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


@functools.cache
def _entries() -> tuple[Mapping[str, Any], ...]:
    return tuple(tomllib.loads(_FILE.read_text(encoding="utf-8"))["settings"])


def settings_for(target: Target) -> DeviceSettings:
    """What to start with: every value from the most specific entry that has it."""
    found: dict[str, Setting] = {}
    for name in ("*", target.name, str(target.kind)):
        for entry in _entries():
            if entry["target"] == name:
                found |= {key: Setting(**value) for key, value in entry.items() if key != "target"}
    return DeviceSettings(**found)
