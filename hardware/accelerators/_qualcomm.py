"""What a Snapdragon tells of itself (device tree, sysfs, Windows' CIM, ONNX Runtime), and Cloud AI cards through
qaic-util.

Sources: the kernel's drivers/soc/qcom/socinfo.c, drivers/remoteproc and drivers/misc/fastrpc.c; for what qaic-util
prints github.com/quic/software-kit-for-qualcomm-cloud-ai-100, lib/runtime-platform/src/QUtil.cpp.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from typing import Any

from ..machine import Library, Machine, Reading
from ..values import after, table, tables, words

FASTRPC_NODES = ("fastrpc-cdsp", "fastrpc-cdsp-secure", "cdsprpc-smd", "adsprpc-smd", "adsprpc-smd-secure")
"""Nodes through which a program reaches the compute DSP: the mainline kernel's, then those of Qualcomm's kernels."""


@dataclass(frozen=True, kw_only=True)
class SystemOnChip:
    """The name and number of a chip, empty and `None` where nothing tells."""

    name: str
    number: int | None


@dataclass(frozen=True, kw_only=True)
class Processor:
    """A DSP as the kernel's remoteproc lists it: `cdsp` computes, `adsp` and others don't."""

    name: str
    state: str
    firmware: str


@dataclass(frozen=True, kw_only=True)
class WindowsDevice:
    """A device of Windows' device manager. `driver` is empty where Windows tells no version."""

    name: str
    maker: str
    is_display: bool
    works: bool
    driver: str


def read_chip(machine: Machine) -> SystemOnChip:
    """The chip's name and its number in Qualcomm's list of chips (QNN calls that SoC id)."""
    name = machine.text("/sys/devices/soc0/machine") or ""
    if not name:
        tree = machine.text("/proc/device-tree/compatible") or ""
        names = [one for one in tree.split("\0") if one.startswith("qcom,")]
        name = names[-1].removeprefix("qcom,").upper() if names else ""
    number = machine.number("/sys/devices/soc0/soc_id")
    return SystemOnChip(name=name[:64], number=number if number is not None and number >= 0 else None)


def read_processors(machine: Machine) -> tuple[Processor, ...]:
    """The DSPs that the kernel starts, in order."""
    folder = "/sys/class/remoteproc"
    return tuple(
        Processor(
            name=machine.text(f"{folder}/{one}/name") or one,
            state=machine.text(f"{folder}/{one}/state") or "unknown",
            firmware=machine.text(f"{folder}/{one}/firmware") or "",
        )
        for one in machine.names(folder) or ()
    )


def read_adreno(machine: Machine) -> str:
    """The GPU's name: `Adreno 643`, `Adreno` where only its presence is told, empty where there is none."""
    told = machine.text("/sys/class/kgsl/kgsl-3d0/gpu_model")
    if told:
        return re.sub(r"^Adreno(?=\d)", "Adreno ", told)[:64]
    for name in machine.names("/sys/bus/platform/drivers/adreno") or ():
        event = machine.text(f"/sys/bus/platform/drivers/adreno/{name}/uevent") or ""
        found = re.search(r"^OF_COMPATIBLE_0=qcom,adreno(?:-([0-9a-f]+))?", event, re.MULTILINE)
        if found:
            number = found[1] or ""
            return f"Adreno {number}" if re.fullmatch(r"\d{3}", number) else "Adreno"
    return ""


def read_windows(told: object) -> tuple[WindowsDevice, ...]:
    """Qualcomm's devices out of what CIM tells."""
    data = table(told)
    drivers = {words(one.get("Name")): words(one.get("DriverVersion")) for one in tables(data.get("video"))}
    return tuple(
        WindowsDevice(
            name=words(one.get("Name")),
            maker=words(one.get("Manufacturer")),
            is_display=words(one.get("PNPClass")).lower() == "display",
            works=words(one.get("Status")) == "OK",
            driver=drivers.get(words(one.get("Name")), ""),
        )
        for one in tables(data.get("devices"))
        if "qualcomm" in f"{one.get('Name')} {one.get('Manufacturer')}".lower() and words(one.get("Name"))
    )


def read_cards(text: str | None) -> dict[str, str]:
    """What `qaic-util -q` prints, one block a card, by PCI address."""
    blocks = re.split(r"^(?=QID \d+)", text or "", flags=re.MULTILINE)
    found = {}
    for block in blocks:
        address = (after("PCI Address:", block) or "").lower()
        if re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]", address):
            found[address] = block
    return found


_PLUGINS = ("onnxruntime_qnn",)
"""Packages that bring a provider as a plug-in, which is registered before devices are asked for."""


class OnnxRuntime(Library):
    """ONNX Runtime's device list. Importing it takes about a second, so it is asked only where there is a sign."""

    NAME = "onnxruntime"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told: Reading[Any] | None = None

    def ask(self, function: str, *arguments: Any) -> Reading[Any]:
        """`devices`: a list of tables with `provider`, `kind` (CPU, GPU, NPU), `vendor`, `name` and `version`.

        A provider that lists a CPU only has none of its own: QNN does so where there is no Hexagon.
        """
        if function != "devices":
            return Reading(value=None, reason=f"{function} isn't asked of onnxruntime")
        with self._lock:
            if self._told is None:
                self._told = _devices()
            return self._told

    def close(self) -> str:
        with self._lock:
            self._told = None
        return ""


def _devices() -> Reading[Any]:
    try:
        import onnxruntime

        if not hasattr(onnxruntime, "get_ep_devices"):
            return Reading(value=None, reason=f"onnxruntime {onnxruntime.__version__} lists no devices; 1.23 does")
        _register(onnxruntime)
        return Reading(value=[_plain(one) for one in onnxruntime.get_ep_devices()])
    except ImportError as error:
        return Reading(value=None, reason=f"onnxruntime can't be imported ({error}): pip install onnxruntime-qnn")
    except Exception as error:  # a native library may raise anything; the reason is the answer here
        return Reading(value=None, reason=f"onnxruntime: {type(error).__name__}: {error}")


def _register(runtime: Any) -> None:
    import importlib
    import importlib.util

    for name in _PLUGINS:
        if importlib.util.find_spec(name) is None:
            continue
        plugin = importlib.import_module(name)
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
