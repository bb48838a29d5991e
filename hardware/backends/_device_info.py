"""What a backend says of the device that it computes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class DeviceInfo:
    """The device that a backend computes on. Memory in bytes; `None` where it isn't told.

    `device_type` is the runtime's own name of it (`cuda:0`, `CPU`). `properties` are JSON values; where a runtime
    tells of them, `bf16` and `fp8_supported` say whether the device has arithmetic for these, and `topology` how it
    is connected.
    """

    backend: str
    device_type: str
    device_id: int
    device_name: str
    compute_capability: str | None = None
    total_memory_bytes: int | None = None
    driver_version: str | None = None
    is_available: bool = True
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
        """Plain JSON values, the derived sizes with them."""
        return {**asdict(self), "total_memory_gb": self.total_memory_gb, "total_memory_mb": self.total_memory_mb}
