"""Hexagon NPU and Adreno GPU of a Snapdragon.

A Snapdragon is recognized by the device tree, the kernel's DSPs and the FastRPC nodes, and on Windows by the device
manager (CIM); the device list of ONNX Runtime shows whether its library reaches the NPU. Without a sign of a
Snapdragon no program is started. Cloud AI cards, which no target supports, are listed from the bus.

Sources: the kernel's drivers/soc/qcom/socinfo.c, drivers/remoteproc and drivers/misc/fastrpc.c.
"""

from __future__ import annotations

import functools
import re
from typing import Any, ClassVar

from ...machine import Library, Machine, SourceReading
from ...values import tables, words
from ._pci import devices_of
from ._sources import ListedAccelerators
from ._tool_values import Extra, celsius, percent
from .vendor import AcceleratorInfo, DriverState, LibraryState, VendorFacts

FASTRPC_NODES = ("fastrpc-cdsp", "fastrpc-cdsp-secure", "cdsprpc-smd", "adsprpc-smd", "adsprpc-smd-secure")
"""Nodes of the compute DSP: those of the mainline kernel, then those of Qualcomm's kernels."""

_VENDOR = 0x17CB
_REMOTEPROC, _KGSL = "/sys/class/remoteproc", "/sys/class/kgsl/kgsl-3d0"
_PLUGIN = "onnxruntime_qnn"
"""The package with QNN as a plugin, which is registered before devices are listed."""


class QualcommAccelerators(ListedAccelerators):
    """Inventory of Qualcomm's NPUs and GPUs; telemetry of GPUs on Qualcomm's own kernels."""

    VENDOR_NAME = "Qualcomm"
    DEVICE_TYPE = "npu"
    DEVICE_STRINGS: ClassVar[dict[str, str]] = {"onnxruntime": "npu:{index}"}
    """ONNX Runtime's names are those of its OrtDevice; torch has no device for them."""

    _denied = ""

    def find(self) -> tuple[AcceleratorInfo, ...]:
        self._denied = ""
        if self.machine.host().system == "Windows":
            return tuple(self._on_windows())
        return tuple(self._on_linux()) if self._is_snapdragon() else ()

    def facts(self) -> VendorFacts:
        devices = self.list_devices()
        if not devices and (self.machine.host().system == "Windows" or not self._is_snapdragon()):
            cards = devices_of(self.machine, _VENDOR)
            if cards:
                why = f"the bus shows {cards[0].name}, which no target supports"
                return self.seen(DriverState.UNKNOWN, LibraryState.UNKNOWN, [why], on_bus=len(cards))
            return self.unseen("neither the device tree nor a device manager shows a Snapdragon")
        library, why = self._library()
        lacks = [*self.obstacles(), "" if devices else "no driver lists a device", why]
        return self.seen(self._driver_state(devices), library, lacks)

    def _is_snapdragon(self) -> bool:
        """Return whether this is a Qualcomm chip, by the device tree or the kernel's socinfo."""
        tree = self.machine.text("/proc/device-tree/compatible") or ""
        return "qcom," in tree or (self.machine.text("/sys/devices/soc0/family") or "").startswith("Snapdragon")

    def _driver_state(self, devices: tuple[AcceleratorInfo, ...]) -> DriverState:
        """Return the state of the driver of the NPUs, if there are any, else of the GPU."""
        mine = [one for one in devices if one.device_type == self.DEVICE_TYPE] or list(devices)
        if any(one.index is not None for one in mine):
            return DriverState.OK
        return DriverState.DENIED if self._denied else DriverState.MISSING

    def get_framework_device_string(self, device_id: int, framework: str = "pytorch") -> str:
        name, devices = super().get_framework_device_string(device_id, framework), self.driven()
        return f"{devices[device_id].device_type}:0" if 0 <= device_id < len(devices) else name

    def temperature(self, device: AcceleratorInfo) -> SourceReading[float]:
        degrees = celsius(self.machine.text(f"{_KGSL}/temp"), per=1000) if device.device_type == "gpu" else None
        return self._not_reported(device, "temperature") if degrees is None else SourceReading(value=degrees)

    def memory(self, device: AcceleratorInfo) -> SourceReading[dict[str, int]]:
        return SourceReading(value=None, reason=f"{device.model} uses system memory")

    def utilization(self, device: AcceleratorInfo) -> SourceReading[dict[str, float | None]]:
        if device.device_type == "gpu":
            load = (self.machine.text(f"{_KGSL}/gpu_busy_percentage") or "").removesuffix("%")
            busy = percent(load)
            if busy is not None:
                return SourceReading(value={"compute": busy})
        return self._not_reported(device, "utilization")

    def _on_windows(self) -> list[AcceleratorInfo]:
        from ..system._windows import cim

        if self.machine.host().machine.lower() not in ("arm64", "aarch64"):
            return []
        classes = cim(self.machine).value or {}
        drivers = {words(one.get("Name")): words(one.get("DriverVersion")) for one in tables(classes.get("video"))}
        found = []
        for one in tables(classes.get("devices")):
            name, works = words(one.get("Name")), words(one.get("Status")) == "OK"
            if not name or "qualcomm" not in f"{name} {one.get('Manufacturer')}".lower():
                continue
            kind = "gpu" if words(one.get("PNPClass")).lower() == "display" else "npu"
            extra: Extra = {"seen_through": "device manager", "unified_memory": True}
            extra |= {} if works else {"reason": "the Windows device manager reports a problem"}
            found.append(self._integrated(kind, name, works, extra, driver=drivers.get(name) or None))
        return found

    def _on_linux(self) -> list[AcceleratorInfo]:
        name, number = _chip(self.machine)
        shared: Extra = {"unified_memory": True}
        shared |= {} if number is None else {"soc_id": number}
        found: list[AcceleratorInfo] = []
        names = self.machine.names("/dev") or ()
        node = next((one for one in FASTRPC_NODES if one in names), "")
        processors = (f"{_REMOTEPROC}/{one}" for one in self.machine.names(_REMOTEPROC) or ())
        compute = next((one for one in processors if self.machine.text(f"{one}/name") == "cdsp"), None)
        if node or compute:
            extra: Extra = {"seen_through": "FastRPC node", **shared}
            state = (self.machine.text(f"{compute}/state") or "unknown") if compute else ""
            usable = self._node_works(node, state, extra)
            if compute:
                extra |= {"dsp_state": state, "dsp_firmware": self.machine.text(f"{compute}/firmware") or "unknown"}
            found.append(self._integrated("npu", f"Hexagon NPU of {name or 'a Snapdragon'}", usable, extra))
        adreno = _adreno(self.machine)
        if adreno:
            found.append(self._integrated("gpu", adreno, True, {"seen_through": "kernel", **shared}))
        return found

    def _node_works(self, node: str, state: str, extra: Extra) -> bool:
        """Return whether a program of this user reaches the compute DSP; obstacles are added to `extra`."""
        if not node:
            extra["reason"] = "no FastRPC node: the kernel has no fastrpc driver, or the DSP has no firmware"
        elif self.machine.may_open(f"/dev/{node}") is False:
            self._denied = f"this user may not open /dev/{node}; access needs a group or a udev rule"
            extra["reason"] = self._denied
        elif state and state not in ("running", "attached"):
            extra["reason"] = f"the compute DSP is {state}: its firmware isn't running"
        extra["node"] = f"/dev/{node}" if node else "none"
        return "reason" not in extra

    def _integrated(
        self, kind: str, model: str, usable: bool, extra: Extra, *, driver: str | None = None
    ) -> AcceleratorInfo:
        return AcceleratorInfo(
            vendor=self.VENDOR_NAME,
            device_type=kind,
            model=model,
            seen_by="driver" if usable else "bus",
            bus_type="integrated",
            driver_version=driver,
            extra_info=extra,
        )

    def _library(self) -> tuple[LibraryState, str]:
        devices = self.machine.library(OnnxRuntime).ask("devices")
        for one in tables(devices.value):
            if words(one.get("kind")) == "NPU" and "QNN" in words(one.get("provider")):
                return LibraryState.OK, ""
        return LibraryState.MISSING, devices.reason or "ONNX Runtime lists no NPU: pip install onnxruntime-qnn"


def _chip(machine: Machine) -> tuple[str, int | None]:
    """Return the chip's name and its number in Qualcomm's list of chips (the SoC id of QNN)."""
    name = machine.text("/sys/devices/soc0/machine") or ""
    if not name:
        tree = machine.text("/proc/device-tree/compatible") or ""
        names = [one for one in tree.split("\0") if one.startswith("qcom,")]
        name = names[-1].removeprefix("qcom,").upper() if names else ""
    number = machine.number("/sys/devices/soc0/soc_id")
    return name[:64], number if number is not None and number >= 0 else None


def _adreno(machine: Machine) -> str:
    """Return the GPU's name: `Adreno 643`, `Adreno` if only its presence is known, or an empty text."""
    model = machine.text(f"{_KGSL}/gpu_model")
    if model:
        return re.sub(r"^Adreno(?=\d)", "Adreno ", model)[:64]
    for name in machine.names("/sys/bus/platform/drivers/adreno") or ():
        event = machine.text(f"/sys/bus/platform/drivers/adreno/{name}/uevent") or ""
        found = re.search(r"^OF_COMPATIBLE_0=qcom,adreno(?:-([0-9a-f]+))?", event, re.MULTILINE)
        if found:
            number = found[1] or ""
            return f"Adreno {number}" if re.fullmatch(r"\d{3}", number) else "Adreno"
    return ""


class OnnxRuntime(Library):
    """The device list of ONNX Runtime. Importing it takes about a second, so it needs a sign of a Snapdragon."""

    NAME = "onnxruntime"

    def ask(self, function: str, *arguments: Any) -> SourceReading[Any]:
        """Return for `devices` tables with `provider`, `kind` (CPU, GPU, NPU), `vendor`, `name` and `version`.

        A provider that lists only a CPU has no device of its own, as QNN without a Hexagon.
        """
        return _devices()


@functools.cache
def _devices() -> SourceReading[Any]:
    try:
        import onnxruntime

        if not hasattr(onnxruntime, "get_ep_devices"):
            return SourceReading(
                value=None, reason=f"onnxruntime {onnxruntime.__version__} can't list devices (needs 1.23 or later)"
            )
        _register(onnxruntime)
        return SourceReading(value=[_plain(one) for one in onnxruntime.get_ep_devices()])
    except ImportError as error:
        return SourceReading(
            value=None, reason=f"onnxruntime can't be imported ({error}): pip install onnxruntime-qnn"
        )
    except Exception as error:  # a native library may raise anything, which is reported as the reason
        return SourceReading(value=None, reason=f"onnxruntime: {type(error).__name__}: {error}")


def _register(runtime: Any) -> None:
    import importlib
    import importlib.util

    if importlib.util.find_spec(_PLUGIN) is None:
        return
    plugin = importlib.import_module(_PLUGIN)
    provider = plugin.get_ep_name()
    if not any(one.ep_name == provider for one in runtime.get_ep_devices()):
        runtime.register_execution_provider_library(provider, plugin.get_library_path())


def _plain(device: Any) -> dict[str, str]:
    hardware = device.device
    metadata = dict(hardware.metadata)
    return {
        "provider": str(device.ep_name),
        "kind": str(hardware.type).rpartition(".")[2],
        "vendor": str(hardware.vendor),
        "name": str(metadata.get("Description", "")),
        "version": str(dict(device.ep_metadata).get("version", "")),
    }
