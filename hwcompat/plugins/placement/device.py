"""`Device`: one place that work can be put on, with what is known of it. A figure is never invented: it has a source,
or it is `None` and has a reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hwcompat.plugins.stress.result import Figure as Figure


@dataclass(frozen=True, kw_only=True)
class Device:
    """One device of one machine.

    `name` is its own among all that are looked at (`cuda:0`; `lab1/cuda:0` where there are several machines),
    `target` what a cell calls it (`cuda`). Memory is in bytes, `tflops` by precision (`float32`), `bandwidth_gbps` in
    10^9 bytes a second.
    """

    name: str
    target: str
    vendor: str = ""
    device_name: str = ""
    memory_total: Figure = field(default_factory=Figure)
    memory_free: Figure = field(default_factory=Figure)
    tflops: Mapping[str, Figure] = field(default_factory=dict)
    bandwidth_gbps: Figure = field(default_factory=Figure)
    unusable: str = ""
    """Why no model can run there as things are; empty where one may (only a probe says that one does)."""

    @property
    def selector(self) -> str:
        """What selects it on its machine: `cuda:1` of `lab1/cuda:1`, and `cpu` for every rank on a processor."""
        return self.target if self.target == "cpu" else self.name.rpartition("/")[2]
