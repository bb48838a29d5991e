"""AMD GPUs through amdsmi, its tools amd-smi and rocm-smi, the files of amdgpu, and the PCI bus without driver."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from ..machine import Machine, Reading
from ._amd_tools import VIOLATIONS, AmdSmiSource, RocmSmiSource, memory_kind, without
from ._amdgpu import VENDOR_ID, AmdgpuSource, Card, Cards, access, amd_seen, placed, pool
from ._amdsmi import COUNT, Amdsmi
from ._figures import celsius, counted, given, pci_address, percent, positive, rates, share, size, text
from ._opening import Opening, opening_of
from ._sources import Source, SourcedAccelerators
from ._visibility import with_visibility
from .base import AcceleratorInfo, DriverState

_THROTTLER_GROUPS = ((0, 16, "power_limit"), (16, 32, "current_limit"), (32, 56, "thermal"), (56, 64, "reliability"))
"""Bits of the driver's throttle status by kind (the kernel's amdgpu_smu.h, SMU_THROTTLER_*)."""

_VRAM_TYPES = {1: "HBM", 2: "HBM", 3: "HBM", 4: "HBM", 5: "HBM", 10: "DDR", 11: "DDR", 12: "DDR"} | dict.fromkeys(
    range(17, 24), "GDDR"
)
"""amdsmi.h, amdsmi_vram_type_t. A fifth HBM is of later versions."""

_MICRO = 100_000
"""Limits of power above this are in µW, as since ROCm 6.4; before they were in W."""


class AmdsmiSource(Source):
    """amdsmi, AMD's management library."""

    NAME = "amdsmi"

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._library = machine.library(Amdsmi)
        self._cards = Cards(machine)

    def opening(self) -> Opening:
        """The state of library and driver, and why amdsmi doesn't start."""
        return opening_of(self._library)

    def count(self) -> Reading[int]:
        return counted(self._library.ask(COUNT))

    def _table(self, function: str, index: int) -> Reading[dict[str, Any]]:
        told = self._library.ask(function, index)
        if told.value is not None and not isinstance(told.value, dict):
            return Reading(value=None, reason=f"{function} answered no table")
        return told

    def _card(self, index: int) -> Card | None:
        address = pci_address(self._library.ask("amdsmi_get_gpu_device_bdf", index).value)
        return self._cards.at(address)

    def temperature(self, index: int) -> Reading[float]:
        reason = ""
        for sensor in ("EDGE", "HOTSPOT", "JUNCTION", "VRAM"):
            told = self._library.ask("amdsmi_get_temp_metric", index, sensor, "CURRENT")
            found = celsius(told.value)
            if found:  # a sensor that isn't there is answered with 0 as well
                return Reading(value=found)
            reason = reason or told.reason
        return Reading(value=None, reason=reason or "no sensor answers")

    def memory(self, index: int) -> Reading[dict[str, int]]:
        card = self._card(index)
        kind = "VRAM" if card is None else pool(self.machine, card).upper()
        total, used = (self._library.ask(f"amdsmi_get_gpu_memory_{what}", index, kind) for what in ("total", "usage"))
        taken = used.value if isinstance(used.value, int) else None
        return given(
            share(size(total.value), taken), total.reason or used.reason or "its figures contradict one another"
        )

    def utilization(self, index: int) -> Reading[dict[str, float | None]]:
        told = self._table("amdsmi_get_gpu_activity", index)
        activity = told.value or {}
        compute, memory = percent(activity.get("gfx_activity")), percent(activity.get("umc_activity"))
        return rates(compute, memory, told.reason or "the device tells no load")

    def power(self, index: int) -> Reading[float]:
        told = self._table("amdsmi_get_power_info", index)
        names = ("current_socket_power", "socket_power", "average_socket_power")
        found = (positive((told.value or {}).get(name)) for name in names)
        watts = next((one for one in found if one is not None and one < _MICRO), None)
        return given(watts, told.reason or "the device has no sensor of power")

    def throttle(self, index: int) -> Reading[tuple[str, ...]]:
        violations = self._table("amdsmi_get_violation_status", index)
        if violations.value is not None:
            found = violation_reasons(violations.value)
            if found is not None:
                return Reading(value=found)
        metrics = self._table("amdsmi_get_gpu_metrics_info", index)
        status = (metrics.value or {}).get("indep_throttle_status")
        if isinstance(status, bool):  # the binding of ROCm 6.4 and later gives no bits any more
            return Reading(value=("reason_not_told",) if status else ())
        if isinstance(status, int):
            return Reading(value=throttle_reasons(status))
        return Reading(value=None, reason=metrics.reason or violations.reason or "the device tells no throttling")

    def is_simulated(self) -> bool:
        return "simulated" in str((self._table("amdsmi_get_gpu_driver_info", 0).value or {}).get("driver_version"))

    def close(self) -> None:
        self._library.close()
        self._cards.forget()

    def describe(self, index: int) -> AcceleratorInfo:
        asic, vram = self._table("amdsmi_get_gpu_asic_info", index), self._table("amdsmi_get_gpu_vram_info", index)
        pcie = (self._table("amdsmi_get_pcie_info", index).value or {}).get("pcie_static") or {}
        driver = self._table("amdsmi_get_gpu_driver_info", index).value or {}
        vbios = self._table("amdsmi_get_gpu_vbios_info", index).value or {}
        total = self._library.ask("amdsmi_get_gpu_memory_total", index, "VRAM")
        chip, memory = asic.value or {}, vram.value or {}
        name, version = text(chip.get("market_name")) or "unknown", text(driver.get("driver_version"))
        generation = pcie.get("pcie_interface_version") if isinstance(pcie, dict) else None
        info = AcceleratorInfo(
            vendor="AMD",
            device_type="gpu",
            model=name,
            index=index,
            compute_capability=_gfx(chip.get("target_graphics_version")),
            memory_bytes=size(total.value) or size(memory.get("vram_size"), 2**20),
            memory_type=_vram_type(memory.get("vram_type")),
            bus_type="pcie" if generation is not None else None,
            pcie_gen=generation if isinstance(generation, int) and 1 <= generation <= 9 else None,
            bandwidth_gbps=positive(memory.get("vram_max_bandwidth")),
            driver_version=version,
            firmware_version=text(vbios.get("version")),
            simulated="simulated" in f"{name} {version}".lower(),
            extra_info=without(self._extra(index, chip, asic.reason or total.reason)),
        )
        return placed(self.machine, info, self._card(index))

    def _extra(self, index: int, chip: dict[str, Any], reason: str) -> dict[str, Any]:
        cap = positive((self._table("amdsmi_get_power_cap_info", index).value or {}).get("power_cap"))
        node = (self._table("amdsmi_get_gpu_kfd_info", index).value or {}).get("node_id")
        units = chip.get("num_compute_units")
        return {
            "uuid": text(self._library.ask("amdsmi_get_gpu_device_uuid", index).value),
            "pci_address": pci_address(self._library.ask("amdsmi_get_gpu_device_bdf", index).value),
            "compute_units": units if isinstance(units, int) and units > 0 else None,
            "power_limit_w": None if cap is None else cap / 1e6 if cap >= _MICRO else cap,
            "kfd_node": node if isinstance(node, int) else None,
            "reason": reason or None,
        }


class AmdAccelerators(SourcedAccelerators):
    """Inventory and telemetry of AMD GPUs, the full tier. PyTorch calls them `cuda` in its build for ROCm."""

    VENDOR_NAME = "AMD"
    DEVICE_TYPE = "gpu"
    DEVICE_STRINGS: ClassVar[dict[str, str]] = {
        "pytorch": "cuda:{index}",
        "tensorflow": "GPU:{index}",
        "jax": "rocm:{index}",
        "onnxruntime": "cuda:{index}",
    }
    PCI_VENDOR_ID = VENDOR_ID
    SOURCES = (AmdsmiSource, AmdSmiSource, RocmSmiSource, AmdgpuSource)
    MODULES = ("amdgpu",)

    def __init__(self, machine: Machine | None = None) -> None:
        super().__init__(machine)
        (self._amdsmi,) = (one for one in self.sources if isinstance(one, AmdsmiSource))

    def opening(self) -> Opening:
        opening = self._amdsmi.opening()
        reason = opening.reason
        denied, why = access(self.machine)
        if denied is DriverState.DENIED:
            return replace(opening, driver=denied, reason="; ".join(filter(None, [why, reason])))
        if self.source() is None and amd_seen(self.machine):
            reason = "; ".join(dict.fromkeys(filter(None, [reason, self.sources[-1].count().reason])))
        return replace(opening, reason=reason)

    def finished(self, devices: tuple[AcceleratorInfo, ...]) -> tuple[AcceleratorInfo, ...]:
        # The runtime counts devices in the order of KFD's nodes; amdsmi and the tools by address.
        nodes = [one.extra_info.get("kfd_node") for one in devices]
        numbers = [node for node in nodes if isinstance(node, int)]
        numbered = numbers == sorted(numbers) and len(numbers) == len(devices)
        names = [[str(one.extra_info["uuid"])] if "uuid" in one.extra_info else [] for one in devices]
        variables = ["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"]
        if self.machine.variable("HIP_VISIBLE_DEVICES") is None:
            variables[1] = "CUDA_VISIBLE_DEVICES"
        return with_visibility(devices, self.machine, variables, names, numbered=numbered)


def violation_reasons(status: dict[str, Any]) -> tuple[str, ...] | None:
    """Names of the limits that hold the clocks down now; `None` where the device tells of none of them."""
    names = {
        "prochot_thrm": VIOLATIONS["prochot"],
        "socket_thrm": VIOLATIONS["socket_thermal"],
        "vr_thrm": VIOLATIONS["vr_thermal"],
        "hbm_thrm": VIOLATIONS["hbm_thermal"],
        "ppt_pwr": VIOLATIONS["ppt"],
        "gfx_clk_below_host_limit": VIOLATIONS["gfx_clk_below_host_limit"],
    }
    states = {name: status.get(f"active_{name}") for name in names}
    if not any(isinstance(state, bool) for state in states.values()):
        return None
    return tuple(dict.fromkeys(names[name] for name, state in states.items() if state is True))


def throttle_reasons(bits: int) -> tuple[str, ...]:
    """The driver's bit set as names, each once."""
    return tuple(name for first, end, name in _THROTTLER_GROUPS if bits >> first & ((1 << (end - first)) - 1))


def _gfx(written: Any) -> str | None:
    name = text(written)
    return name if name and name.startswith("gfx") and name != "gfx0" and len(name) < 12 else None


def _vram_type(written: Any) -> str | None:
    return _VRAM_TYPES.get(written) if isinstance(written, int) else memory_kind(written)
