"""Facts about the device that a backend computes on, and recommended settings."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ..errors import UsageError, did_you_mean, echo
from ..target import Target


@dataclass(frozen=True, kw_only=True)
class DeviceInfo:
    """The device that a backend computes on. Memory is in bytes; `None` means unknown.

    `device_type` is the runtime's name of the device (`cuda:0`, `CPU`). `properties` are JSON values; if the runtime
    reports them, `bf16` and `fp8_supported` say whether the device computes in these types, and `topology` how it is
    connected. `backend` is the target (`cuda`), `vendor` its vendor in lowercase (`nvidia`), empty for the host and
    for runtimes of several vendors. If `is_available` is False, `reason` says why.
    """

    backend: str
    device_type: str
    device_id: int
    device_name: str
    compute_capability: str | None = None
    total_memory_bytes: int | None = None
    driver_version: str | None = None
    is_available: bool = True
    vendor: str = ""
    reason: str = ""
    properties: Mapping[str, Any] = field(default_factory=dict)

    @property
    def total_memory_gb(self) -> float | None:
        """Total memory in GiB."""
        return None if self.total_memory_bytes is None else self.total_memory_bytes / 2**30

    @property
    def total_memory_mb(self) -> float | None:
        """Total memory in MiB."""
        return None if self.total_memory_bytes is None else self.total_memory_bytes / 2**20

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, including the derived sizes."""
        return {**asdict(self), "total_memory_gb": self.total_memory_gb, "total_memory_mb": self.total_memory_mb}


_FILE = Path(__file__).with_name("_settings.toml")
OWN = "chosen by the caller"


@dataclass(frozen=True, kw_only=True)
class DeviceSetting:
    """A value and its reason."""

    value: Any
    reason: str


@dataclass(frozen=True, kw_only=True)
class DeviceSettings:
    """`precision` of weights, `batch_size` in rows, `threads` (0: runtime's default), `memory_format` of images."""

    precision: DeviceSetting
    batch_size: DeviceSetting
    threads: DeviceSetting
    memory_format: DeviceSetting

    def with_own(self, own: Mapping[str, Any]) -> DeviceSettings:
        """Return the settings with some values replaced. Raises `UsageError` for an unknown name or a wrong type."""
        known = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, value in own.items():
            if name not in known:
                raise UsageError(
                    f"unknown setting {echo(name)}",
                    fix=f"{did_you_mean(name, known)} Known: {', '.join(known)}.".strip(),
                )
            if type(value) is not type(known[name].value) or value == "" or (isinstance(value, int) and value < 0):
                raise UsageError(
                    f"{echo(str(value))} is not a valid value of {name}",
                    fix=f"Give a value like {known[name].value!r}.",
                )
        return replace(self, **{name: DeviceSetting(value=value, reason=OWN) for name, value in own.items()})

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


@functools.cache
def _entries() -> tuple[Mapping[str, Any], ...]:
    return tuple(tomllib.loads(_FILE.read_text(encoding="utf-8"))["settings"])


def settings_for(target: Target) -> DeviceSettings:
    """Return the recommended settings: each value from the most specific entry that has it."""
    found: dict[str, DeviceSetting] = {}
    for name in ("*", target.name, str(target.kind)):
        for entry in _entries():
            if entry["target"] == name:
                found |= {key: DeviceSetting(**value) for key, value in entry.items() if key != "target"}
    return DeviceSettings(**found)
