"""The GPU of a Jetson, from the kernel's files.

Sources: Jetson Linux Developer Guide (device tree model, GPU load in tenths of a percent), and the kernel's thermal
ABI.
"""

from __future__ import annotations

from ...machine import Machine, SourceReading
from ._sources import Source
from ._tool_values import celsius, given, number, rates
from .vendor import AcceleratorInfo

_MODEL = "/proc/device-tree/model"
_COMPATIBLE = "/proc/device-tree/compatible"
_LOADS = (
    "/sys/devices/platform/gpu.0/load",
    "/sys/devices/gpu.0/load",
    "/sys/class/devfreq/17000000.gpu/device/load",
)
_THERMAL = "/sys/class/thermal"


def is_jetson(machine: Machine) -> bool:
    """Return whether the device tree names an NVIDIA system-on-chip."""
    return "nvidia,tegra" in (machine.text(_COMPATIBLE) or "")


class TegraSource(Source):
    """The GPU of a Jetson, which has no memory of its own."""

    NAME = "the device tree"

    def count(self) -> SourceReading[int]:
        return SourceReading(value=1)

    def describe(self, index: int) -> AcceleratorInfo:
        names = [
            word for word in (self.machine.text(_COMPATIBLE) or "").split("\0") if word.startswith("nvidia,tegra")
        ]
        model = (self.machine.text(_MODEL) or "").strip("\0 \n")
        version = (self.machine.text("/sys/module/nvidia/version") or "") or None
        return AcceleratorInfo(
            vendor="NVIDIA",
            device_type="gpu",
            model=f"GPU of {model or 'an NVIDIA system-on-chip'}",
            index=index,
            memory_type="unified",
            bus_type="integrated",
            driver_version=version,
            extra_info={
                "system_on_chip": names[-1].partition(",")[2] if names else "tegra",
                "reason": "it has no dedicated memory and uses the system's",
            },
        )

    def temperature(self, index: int) -> SourceReading[float]:
        for zone in self.machine.names(_THERMAL) or ():
            kind = (self.machine.text(f"{_THERMAL}/{zone}/type") or "").lower()
            millidegrees = self.machine.text(f"{_THERMAL}/{zone}/temp")
            if kind.startswith("gpu") and number(millidegrees) is not None:
                return given(celsius(millidegrees, per=1000), "its sensor is switched off")
        return SourceReading(value=None, reason="no thermal zone of the GPU found")

    def utilization(self, index: int) -> SourceReading[dict[str, float | None]]:
        for path in _LOADS:
            permille = number(self.machine.text(path))
            if permille is not None and 0 <= permille <= 1000:
                return rates(permille / 10, None, "")
        return SourceReading(value=None, reason="the load of the GPU isn't reported")
