"""Hexagon NPU and Adreno GPU of a Snapdragon, and Cloud AI cards.

A Snapdragon is told by the device tree, the kernel's DSPs and the FastRPC nodes, on Windows by its device manager
(CIM); ONNX Runtime's device list says whether its library reaches the NPU. Cloud AI cards are told by the bus, the
driver qaic and qaic-util. Nothing is started on a machine without a sign of any of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from ..machine import Reading
from ..values import after, table, tables, whole, words
from ._figures import Extra, celsius, given, percent, watts
from ._pci import PROCESSING_ACCELERATOR_CLASS, PciDevice, bound_driver, devices_of, pcie_generation
from ._sources import ListedAccelerators
from .base import AcceleratorInfo, DriverState, HardwareState, LibraryState, VendorFacts, bus_only

if TYPE_CHECKING:
    from ._qualcomm import WindowsDevice

PCI_VENDOR_ID = 0x17CB
_TOOLS = ("qaic-util", "/opt/qti-aic/tools/qaic-util")
_NODE, _CARD, _GPU, _WINDOWS = "FastRPC node", "Cloud AI card", "kernel", "device manager"


class QualcommAccelerators(ListedAccelerators):
    """Inventory of Qualcomm's NPUs, GPUs and cards; telemetry of the cards, and of GPUs on Qualcomm's own kernels."""

    VENDOR_NAME = "Qualcomm"
    DEVICE_TYPE = "npu"
    DEVICE_STRINGS: ClassVar[dict[str, str]] = {"pytorch": "qaic:{index}", "onnxruntime": "npu:{index}"}
    """torch_qaic names Cloud AI cards only; ONNX Runtime's names are those of its OrtDevice."""

    _denied = ""

    def find(self) -> tuple[AcceleratorInfo, ...]:
        found: list[AcceleratorInfo] = []
        self._denied = ""
        if self.machine.host().system == "Windows":
            found += [self._on_windows(told) for told in self._windows_devices()]
        elif self._is_snapdragon():
            found += self._on_linux()
        cards = devices_of(self.machine, PCI_VENDOR_ID, classes=(PROCESSING_ACCELERATOR_CLASS,)) or ()
        return (*found, *(self._card(device) for device in cards))

    def facts(self) -> VendorFacts:
        devices = self.list_devices()
        cards = devices_of(self.machine, PCI_VENDOR_ID, classes=(PROCESSING_ACCELERATOR_CLASS,))
        on_bus = None if cards is None else len(cards)
        present = bool(devices) or (self.machine.host().system != "Windows" and self._is_snapdragon())
        if not present:
            return self.unseen("neither the bus nor the device tree shows a device of Qualcomm's", on_bus=on_bus)
        library, why = self._library(bool(cards))
        lacks = list(dict.fromkeys(self.obstacles()))
        return VendorFacts(
            vendor=self.VENDOR_NAME,
            hardware=HardwareState.PRESENT,
            driver=self._driver_state(devices),
            library=library,
            reason="; ".join(filter(None, [*lacks, "" if devices else "no driver lists a device", why])),
            on_bus=on_bus,
        )

    def _is_snapdragon(self) -> bool:
        """Whether this is a chip of Qualcomm's, told by the device tree or the kernel's socinfo."""
        tree = self.machine.text("/proc/device-tree/compatible") or ""
        return "qcom," in tree or (self.machine.text("/sys/devices/soc0/family") or "").startswith("Snapdragon")

    def _driver_state(self, devices: tuple[AcceleratorInfo, ...]) -> DriverState:
        """Of the NPUs, where there are any: a GPU that works doesn't stand for them."""
        mine = [one for one in devices if one.device_type == self.DEVICE_TYPE] or list(devices)
        if any(one.index is not None and "reason" not in one.extra_info for one in mine):
            return DriverState.OK
        if self._denied:
            return DriverState.DENIED
        return DriverState.UNKNOWN if any(one.index is not None for one in mine) else DriverState.MISSING

    def get_framework_device_string(self, device_id: int, framework: str = "pytorch") -> str:
        devices, asked = self.driven(), framework.lower()
        if asked not in self.DEVICE_STRINGS or not 0 <= device_id < len(devices):
            return super().get_framework_device_string(device_id, framework)
        device = devices[device_id]
        same = [one for one in devices if one.extra_info.get("seen_through") == device.extra_info.get("seen_through")]
        is_card = device.extra_info.get("seen_through") == _CARD
        if asked == "pytorch":
            if not is_card:
                raise self.no_name(framework, device, "torch has no device for it; ONNX Runtime with QNN drives it.")
            return f"qaic:{same.index(device)}"
        if is_card:
            raise self.no_name(framework, device, "Its own runtime drives it (qaic-runner, torch_qaic).")
        return f"{device.device_type}:0"

    def temperature(self, device: AcceleratorInfo) -> Reading[float]:
        if device.extra_info.get("seen_through") == _CARD:
            return self._card_figure(device, "SoC temperature(degree C):", celsius)
        if device.device_type == "gpu":
            thousandths = self.machine.number("/sys/class/kgsl/kgsl-3d0/temp")
            if (degrees := celsius(None if thousandths is None else thousandths / 1000)) is not None:
                return Reading(value=degrees)
        return self._silent(device, "the temperature")

    def power(self, device: AcceleratorInfo) -> Reading[float]:
        if device.extra_info.get("seen_through") == _CARD:
            return self._card_figure(device, "Board power(Watts):", watts)
        return self._silent(device, "the power")

    def memory(self, device: AcceleratorInfo) -> Reading[dict[str, int]]:
        if device.extra_info.get("seen_through") != _CARD:
            return Reading(value=None, reason=f"{device.model} works in the system's memory")
        block = self._block(str(device.extra_info.get("pci_address")))
        total, free = _megabytes(block, "Dram Total:"), _megabytes(block, "Dram Free:")
        if total is None or free is None or free > total:
            return Reading(value=None, reason="qaic-util doesn't report the memory of this card")
        return Reading(value={"total": total, "used": total - free, "free": free})

    def utilization(self, device: AcceleratorInfo) -> Reading[dict[str, float | None]]:
        if device.device_type == "gpu":
            told = (self.machine.text("/sys/class/kgsl/kgsl-3d0/gpu_busy_percentage") or "").removesuffix("%")
            busy = percent(told)
            if busy is not None:
                return Reading(value={"compute": busy})
        return self._silent(device, "the utilization")

    def _windows_devices(self) -> tuple[WindowsDevice, ...]:
        from ..system._windows import cim
        from ._qualcomm import read_windows

        arm = self.machine.host().machine.lower() in ("arm64", "aarch64")
        return read_windows(cim(self.machine).value) if arm else ()

    def _on_windows(self, told: WindowsDevice) -> AcceleratorInfo:
        extra: Extra = {"seen_through": _WINDOWS, "unified_memory": True}
        if not told.works:
            extra["reason"] = "Windows' device manager doesn't call it OK"
        return AcceleratorInfo(
            vendor=self.VENDOR_NAME,
            device_type="gpu" if told.is_display else "npu",
            model=told.name,
            seen_by="driver" if told.works else "bus",
            bus_type="integrated",
            driver_version=told.driver or None,
            extra_info=extra,
        )

    def _on_linux(self) -> list[AcceleratorInfo]:
        from ._qualcomm import FASTRPC_NODES, read_adreno, read_chip, read_processors

        chip = read_chip(self.machine)
        shared: Extra = {"unified_memory": True}
        if chip.number is not None:
            shared["soc_id"] = chip.number
        found: list[AcceleratorInfo] = []
        processors = read_processors(self.machine)
        names = self.machine.names("/dev") or ()
        node = next((one for one in FASTRPC_NODES if one in names), "")
        compute = next((one for one in processors if one.name == "cdsp"), None)
        if node or compute:
            extra: Extra = {"seen_through": _NODE, **shared}
            usable = self._node_works(node, compute.state if compute else "", extra)
            if compute:
                extra |= {"dsp_state": compute.state, "dsp_firmware": compute.firmware or "unknown"}
            found.append(self._integrated("npu", f"Hexagon NPU of {chip.name or 'a Snapdragon'}", usable, extra))
        adreno = read_adreno(self.machine)
        if adreno:
            found.append(self._integrated("gpu", adreno, True, {"seen_through": _GPU, **shared}))
        return found

    def _node_works(self, node: str, state: str, extra: Extra) -> bool:
        """Whether a program of this user reaches the compute DSP; what is in the way goes into `extra`."""
        if not node:
            extra["reason"] = "there is no FastRPC node: the kernel has no driver fastrpc, or the DSP has no firmware"
        elif self.machine.may_open(f"/dev/{node}") is False:
            self._denied = f"this user may not open /dev/{node}; a group, or a rule of udev, gives access"
            extra["reason"] = self._denied
        elif state and state not in ("running", "attached"):
            extra["reason"] = f"the compute DSP is {state}: its firmware wasn't started"
        extra["node"] = f"/dev/{node}" if node else "none"
        return "reason" not in extra

    def _integrated(self, kind: str, model: str, usable: bool, extra: Extra) -> AcceleratorInfo:
        return AcceleratorInfo(
            vendor=self.VENDOR_NAME,
            device_type=kind,
            model=model,
            seen_by="driver" if usable else "bus",
            bus_type="integrated",
            extra_info=extra,
        )

    def _card(self, device: PciDevice) -> AcceleratorInfo:
        driver = bound_driver(self.machine, device.address)
        seen = bus_only(device, vendor=self.VENDOR_NAME, device_type="npu")
        extra: Extra = {**seen.extra_info, "seen_through": _CARD}
        block = self._block(device.address) if driver else ""
        if driver:
            extra["kernel_driver"] = driver
        for key, label in (("status", "Status:"), ("sku", "Sku Type:"), ("nsp_cores", "Nsp Total:")):
            if value := after(label, block):
                extra[key] = value
        if driver and not block:
            extra["reason"] = self._tool_output().reason or "qaic-util doesn't list it"
        elif driver and extra.get("status") != "Ready":
            extra["reason"] = f"qaic-util says that it is {extra.get('status', 'unknown')}"
        elif not driver:
            extra["reason"] = "no kernel driver is bound to it: is the module qaic loaded?"
        return AcceleratorInfo(
            vendor=self.VENDOR_NAME,
            device_type="npu",
            model=seen.model,
            seen_by="driver" if driver else "bus",
            memory_bytes=_megabytes(block, "Dram Total:"),
            bus_type="pcie",
            pcie_gen=pcie_generation(self.machine, device.address),
            firmware_version=after("FW Version:", block),
            extra_info=extra,
        )

    def _tool_output(self) -> Reading[str]:
        first = Reading[str](value=None, reason="qaic-util isn't installed")
        for tool in _TOOLS:
            told = self.tool(tool, "-q").text()
            if told.value is not None:
                return told
            first = told if "isn't installed" not in told.reason else first
        return first

    def _block(self, address: str) -> str:
        """What qaic-util prints of the card at an address."""
        from ._qualcomm import read_cards

        return read_cards(self._tool_output().value).get(address, "")

    def _card_figure(
        self, device: AcceleratorInfo, label: str, figure: Callable[[Any], float | None]
    ) -> Reading[float]:
        value = figure(after(label, self._block(str(device.extra_info.get("pci_address")))))
        return given(value, self._tool_output().reason or f"qaic-util prints no such figure at {label!r}")

    def _library(self, has_cards: bool) -> tuple[LibraryState, str]:
        if has_cards:
            told = self._tool_output()
            return (LibraryState.OK, "") if told.value is not None else (LibraryState.MISSING, told.reason)
        from ._qualcomm import OnnxRuntime

        told_devices = self.machine.library(OnnxRuntime).ask("devices")
        providers = [table(one) for one in tables(told_devices.value)]
        if any(words(one.get("kind")) == "NPU" and "QNN" in words(one.get("provider")) for one in providers):
            return LibraryState.OK, ""
        why = told_devices.reason or "ONNX Runtime offers no NPU here: pip install onnxruntime-qnn"
        return LibraryState.MISSING, why


def _megabytes(block: str, label: str) -> int | None:
    """A size that qaic-util prints as `32768 MB`, in bytes."""
    size = whole((after(label, block) or "").removesuffix(" MB"))
    return None if size is None else size * 2**20
