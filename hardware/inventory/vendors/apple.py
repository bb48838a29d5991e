"""GPU and Neural Engine of Apple silicon through system_profiler and IOKit's registry (ioreg).

AMD and Intel GPUs of older Macs are listed by their vendors. Memory is unified: that of the GPU is the system's, and
marked so.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

from ...errors import UsageError
from ...machine import SourceReading
from ...values import after, data_file, inside, tables, whole, words
from ..system._macos import profiler
from ..system.main_memory import read_memory
from ._sources import ListedAccelerators
from ._tool_values import percent, watts, without
from .vendor import AcceleratorInfo, DriverState, HardwareState, LibraryState, VendorFacts

_CHIPS = Path(__file__).with_name("apple_chips.toml")
_ROOT_ONLY = "only powermetrics reports it, for root"
_GPU, _NEURAL_ENGINE = "gpu", "npu"

_REGISTRY = ("ioreg", "-r", "-d", "1", "-w", "0", "-c")
_POWER = ("powermetrics", "-n", "1", "-i", "100", "--samplers", "cpu_power,gpu_power,thermal")


class AppleAccelerators(ListedAccelerators):
    """Inventory of Apple silicon, and the telemetry available without root."""

    VENDOR_NAME = "Apple"
    DEVICE_TYPE = "gpu"
    DEVICE_STRINGS: ClassVar[dict[str, str]] = {
        "pytorch": "mps",
        "tensorflow": "GPU:{index}",
        "jax": "METAL:{index}",
        "onnxruntime": "CoreMLExecutionProvider",
    }
    """TensorFlow through tensorflow-metal, JAX through jax-metal. ONNX Runtime has a provider and no device."""

    def facts(self) -> VendorFacts:
        if self.machine.host().system != "Darwin":
            return self._elsewhere()
        found = self.driven()
        profile = profiler(self.machine)
        registry = self.printed(*_REGISTRY, "AGXAccelerator")
        reason, driver = "", DriverState.UNKNOWN
        if found:
            hardware = HardwareState.PRESENT
            driver = DriverState.OK if registry.value and "AGXAccelerator" in registry.value else DriverState.UNKNOWN
            reason = "" if driver is DriverState.OK else registry.reason or "ioreg lists no AGXAccelerator"
        elif profile.value is None:
            hardware, reason = HardwareState.UNKNOWN, profile.reason
        else:
            others = ", ".join(filter(None, (words(one.get("sppci_model")) for one in self._displays())))
            hardware = HardwareState.ABSENT if others else HardwareState.UNKNOWN
            reason = f"this Mac has no Apple GPU, but {others}" if others else "system_profiler lists no GPU"
        return VendorFacts(
            vendor=self.VENDOR_NAME,
            hardware=hardware,
            driver=driver,
            library=LibraryState.OK,  # Metal and IOKit are part of macOS
            reason=reason,
        )

    def find(self) -> tuple[AcceleratorInfo, ...]:
        if self.machine.host().system != "Darwin":
            return ()
        chips = [one for one in self._displays() if _is_apple(one)]
        found = [self._describe_gpu(one) for one in chips]
        engine = self.printed(*_REGISTRY, "H11ANEIn", keep=True).value or ""
        if found and re.search(r"<class H11ANE", engine):
            found.append(self._describe_engine(engine))
        return tuple(found)

    def get_framework_device_string(self, device_id: int, framework: str = "pytorch") -> str:
        devices = self.driven()
        if framework.lower() in self.DEVICE_STRINGS and 0 <= device_id < len(devices):
            device = devices[device_id]
            if device.device_type == _NEURAL_ENGINE and framework.lower() != "onnxruntime":
                raise UsageError(
                    f"{framework} has no name for {device.model}",
                    fix="Use Core ML, for example ONNX Runtime's CoreMLExecutionProvider.",
                )
        return super().get_framework_device_string(device_id, framework)

    def utilization(self, device: AcceleratorInfo) -> SourceReading[dict[str, float | None]]:
        if device.device_type == _NEURAL_ENGINE:
            return SourceReading(value=None, reason="macOS doesn't report the utilization of the Neural Engine")
        printed = self.printed(*_REGISTRY, "AGXAccelerator")
        compute = percent(_property("Device Utilization %", printed.value))
        if compute is None:
            return SourceReading(value=None, reason=printed.reason or "ioreg doesn't report utilization")
        return SourceReading(value={"compute": compute})

    def memory(self, device: AcceleratorInfo) -> SourceReading[dict[str, int]]:
        """Return the memory: `used` is that of the GPU in the unified memory, `free` is unused; the system uses
        the rest."""
        if device.device_type == _NEURAL_ENGINE:
            return SourceReading(value=None, reason="the Neural Engine uses unified memory and has none of its own")
        printed, memory = self.printed(*_REGISTRY, "AGXAccelerator"), read_memory(self.machine)
        total, free = memory.total_bytes, memory.available_bytes
        used = whole(_property("In use system memory", printed.value))
        if total is None or used is None or free is None or used + free > total:
            return SourceReading(
                value=None, reason=printed.reason or memory.reason or "ioreg and the system report different values"
            )
        return SourceReading(value={"total": total, "used": used, "free": free})

    def temperature(self, device: AcceleratorInfo) -> SourceReading[float]:
        return SourceReading(
            value=None, reason="macOS doesn't report the temperature of the GPU or the Neural Engine"
        )

    def power(self, device: AcceleratorInfo) -> SourceReading[float]:
        printed = self.printed(*_POWER)
        label = "ANE Power:" if device.device_type == _NEURAL_ENGINE else "GPU Power:"
        power = watts(after(label, printed.value or ""), per=1000)
        if power is None:
            return SourceReading(value=None, reason=f"{_ROOT_ONLY} ({printed.reason or 'not this time'})")
        return SourceReading(value=power)

    def throttle(self, device: AcceleratorInfo) -> SourceReading[tuple[str, ...]]:
        printed = self.printed(*_POWER)
        level = after("Current pressure level:", printed.value or "")
        if level is None:
            return SourceReading(value=None, reason=f"{_ROOT_ONLY} ({printed.reason or 'not this time'})")
        return SourceReading(value=() if level == "Nominal" else ("thermal",))

    def _elsewhere(self) -> VendorFacts:
        """Return the facts on another system; Apple silicon can run Linux, without these programs."""
        silicon = "apple,arm-platform" in (self.machine.text("/proc/device-tree/compatible") or "")
        why = f"Metal and Core ML need macOS; this is {self.machine.host().system}"
        return self.seen(DriverState.MISSING, LibraryState.MISSING, [why]) if silicon else self.unseen(why)

    def _displays(self) -> list[dict[str, Any]]:
        return tables(inside(profiler(self.machine).value, "SPDisplaysDataType"))

    def _describe_gpu(self, display: dict[str, Any]) -> AcceleratorInfo:
        hardware = next(iter(tables(inside(profiler(self.machine).value, "SPHardwareDataType"))), {})
        model = words(display.get("sppci_model")) or words(display.get("_name"))
        model = words(hardware.get("chip_type")) if model.startswith("kHW_") else model
        cores = whole(display.get("sppci_cores"))
        family = words(display.get("spdisplays_mtlgpufamilysupport")) or words(display.get("spdisplays_metalfamily"))
        bandwidth = _bandwidth(model, cores)
        extra = {
            "gpu_cores": cores or None,
            "machine_model": words(hardware.get("machine_model")) or None,
            "bandwidth_source": None if bandwidth is None else "a table of Apple's specifications, apple_chips.toml",
            "telemetry": "powermetrics reports power and throttling, for root only",
        }
        return AcceleratorInfo(
            vendor=self.VENDOR_NAME,
            device_type=_GPU,
            model=model or "Apple GPU",
            compute_capability=family.removeprefix("spdisplays_") or None,
            memory_bytes=read_memory(self.machine).total_bytes,
            memory_type="unified",
            bus_type="integrated",
            bandwidth_gbps=bandwidth,
            firmware_version=words(hardware.get("boot_rom_version")) or None,
            extra_info=without(extra),
        )

    def _describe_engine(self, registry: str) -> AcceleratorInfo:
        extra = {
            "unified_memory": "reported with the GPU",
            "cores": whole(_property("ANEDevicePropertyNumANECores", registry)) or None,
            "architecture": _property("ANEDevicePropertyTypeANEArchitectureTypeStr", registry),
        }
        return AcceleratorInfo(
            vendor=self.VENDOR_NAME,
            device_type=_NEURAL_ENGINE,
            model="Apple Neural Engine",
            bus_type="integrated",
            extra_info=without(extra),
        )


def _is_apple(display: dict[str, Any]) -> bool:
    maker = words(display.get("spdisplays_vendor"))
    return maker == "sppci_vendor_Apple" or (not maker and words(display.get("sppci_model")).startswith("Apple "))


def _property(name: str, registry: str | None) -> str | None:
    """Return a value of ioreg's text, where a property is `"name" = 16` on its own line or `"name"=16` in a table."""
    found = re.search(rf'"{re.escape(name)}"\s*=\s*"?([^",}}\n]+)', registry or "")
    return found[1].strip() if found else None


def _bandwidth(model: str, cores: int | None) -> float | None:
    return next(
        (
            float(one["bandwidth_gbps"])
            for one in data_file(_CHIPS)["chip"]
            if one["name"] == model and one.get("gpu_cores") in (None, cores)
        ),
        None,
    )
