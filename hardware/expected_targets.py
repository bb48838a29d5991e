"""Which targets may be on a machine, told from its inventory alone: one pure rule per target; and how many cells of
each a machine offers to a fleet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from .own_commands import as_runnable
from .target import Target
from .workers import without_browser

if TYPE_CHECKING:
    from .accelerators.base import AcceleratorInfo
    from .inventory import HardwareInfo

DEVICES_OF = {"cuda": "NVIDIA", "rocm": "AMD", "xpu": "Intel"}
"""Targets whose devices a fleet hands out one by one, with the vendor that lists them: Ray gives a task its GPU and
hides the others from it."""

_PCI_VENDORS = {"NVIDIA": 0x10DE, "AMD": 0x1002, "Intel": 0x8086}


@dataclass(frozen=True, kw_only=True)
class TargetStatus:
    """Whether a target may be here. `expected` is never *usable*; a probe says that.

    `reason` says why it isn't expected, or what to know of one that is. `memory_bytes` is what one
    device of it can hold, `None` where nothing tells.
    """

    target: str
    expected: bool
    reason: str = ""
    memory_bytes: int | None = None
    device_name: str = ""


def expected_targets(inventory: HardwareInfo, names: Iterable[str]) -> tuple[TargetStatus, ...]:
    """The status of each named target on the machine of `inventory`."""
    return tuple(
        _RULES[name](inventory)
        if name in _RULES
        else TargetStatus(target=name, expected=True, reason="no rule here knows it; a probe can tell")
        for name in names
    )


def why_absent(target: Target, inventory: HardwareInfo) -> str:
    """Why a target with its variant can't be here; empty where it may be."""
    if needed := _NEED_NO_MORE.get(str(target)):
        package, command = needed
        return "" if inventory.packages.get(package) else f"{package} has no environment here: {as_runnable(command)}"
    (status,) = expected_targets(inventory, [target.name])
    return "" if status.expected else status.reason


_NEED_NO_MORE = {
    "tpu:xla-cpu": ("torchax", "make setup-xla"),  # the host's processor computes
    "webgpu:native": ("onnxruntime-webgpu", "make setup-web"),  # without a browser
}
"""Variants that want a package in an environment, and nothing else of what their target wants."""


def _cpu(inventory: HardwareInfo) -> TargetStatus:
    return TargetStatus(
        target="cpu",
        expected=inventory.torch.version is not None,
        reason=inventory.torch.reason,
        memory_bytes=inventory.memory.usable_bytes,
        device_name=inventory.cpu.model,
    )


def _gpu(inventory: HardwareInfo, *, target: str, vendor: str) -> TargetStatus:
    """A vendor's GPUs through torch: its build must be the right one, and a real device must be seen."""
    every = [one for one in inventory.accelerators if one.vendor == vendor and one.device_type == "gpu"]
    hiding = [str(one.extra_info["hidden_by"]) for one in every if "hidden_by" in one.extra_info]
    devices = [one for one in every if "hidden_by" not in one.extra_info]
    torch, wrong_build = inventory.torch, ""
    if torch.version is None:
        wrong_build = torch.reason
    elif torch.kind != target:
        wrong_build = f"torch {torch.version} is built for {torch.kind}, not for {target}"
    hidden = f"{hiding[0]} hides every device" if every and not devices else ""
    reason = "; ".join(filter(None, [wrong_build, _no_device(inventory, vendor, every), hidden]))
    sizes = [size for one in devices if (size := _capacity(inventory, one)) is not None]
    return TargetStatus(
        target=target,
        expected=not reason,
        reason=reason,
        memory_bytes=min(sizes, default=None),
        device_name=_names(devices),
    )


def _capacity(inventory: HardwareInfo, device: AcceleratorInfo) -> int | None:
    """What a program can have of a device: a slice of a divided card, and no more than the machine's memory where it
    is unified."""
    usable = device.extra_info.get("usable_memory_bytes")
    size = usable if isinstance(usable, int) else device.memory_bytes
    if device.memory_type != "unified":
        return size
    return min((one for one in (size, inventory.memory.usable_bytes) if one is not None), default=None)


def _no_device(inventory: HardwareInfo, vendor: str, devices: list[AcceleratorInfo]) -> str:
    facts = next((one for one in inventory.vendors if one.vendor == vendor), None)
    if any(one.simulated for one in devices):
        return f"the {vendor} library here is simulated"
    if facts is not None and facts.driver == "denied":
        return f"this user may not use the {vendor} GPU: {facts.reason}"
    if facts is not None:
        listed = any(one.seen_by == "driver" for one in devices)
        return "" if listed else f"no {vendor} GPU is seen by a driver ({facts.state}): {facts.reason}"
    if inventory.on_bus is None:
        return f"nothing here tells whether there is an {vendor} GPU"
    on_bus = any(one.vendor_id == _PCI_VENDORS[vendor] for one in inventory.on_bus)
    return "" if on_bus else f"no {vendor} GPU is on the bus"


def _names(devices: list[AcceleratorInfo]) -> str:
    counts: dict[str, int] = {}
    for one in devices:
        counts[one.model] = counts.get(one.model, 0) + 1
    return ", ".join(name if count == 1 else f"{count} × {name}" for name, count in counts.items())


def _mps(inventory: HardwareInfo) -> TargetStatus:
    if inventory.host.system != "Darwin":
        return TargetStatus(target="mps", expected=False, reason=f"needs macOS; this is {inventory.host.system}")
    return TargetStatus(
        target="mps",
        expected=inventory.torch.version is not None,
        reason=inventory.torch.reason,
        memory_bytes=inventory.memory.usable_bytes,
        device_name=inventory.cpu.model,
    )


def _openvino(inventory: HardwareInfo) -> TargetStatus:
    version = inventory.packages.get("openvino")
    if version is None:
        return TargetStatus(
            target="openvino", expected=False, reason="openvino isn't installed: pip install openvino"
        )
    return TargetStatus(
        target="openvino",
        expected=True,
        reason=f"openvino {version} is installed; only the library itself tells its devices",
    )


def _qnn(inventory: HardwareInfo) -> TargetStatus:
    version = inventory.packages.get("onnxruntime-qnn")
    if version is None:
        reason = as_runnable("onnxruntime-qnn has no environment here: make setup-qnn")
        return TargetStatus(target="qnn", expected=False, reason=reason)
    emulated = inventory.host.machine.lower() not in ("aarch64", "arm64")
    return TargetStatus(
        target="qnn",
        expected=True,
        reason=f"onnxruntime-qnn {version} is installed{', with its emulator of an HTP' if emulated else ''}",
        device_name="emulated HTP" if emulated else "HTP",
    )


def _web(inventory: HardwareInfo, *, target: str, browser: str) -> TargetStatus:
    """What a browser offers is told by the browser alone; `browser` is the package that brings it."""
    installed = inventory.packages.get(browser)
    runtime = inventory.packages.get(f"onnxruntime-web ({target})")
    reason = "" if runtime else as_runnable("onnxruntime-web has no environment here: make setup-web")
    reason = reason or ("" if installed else without_browser(target))
    if reason:
        return TargetStatus(target=target, expected=False, reason=f"needs a browser: {reason}")
    here = f"onnxruntime-web {runtime} and Chromium {installed} are installed; only the browser tells its device"
    return TargetStatus(target=target, expected=True, reason=here, device_name="browser")


def _tpu(inventory: HardwareInfo) -> TargetStatus:
    version = inventory.packages.get("torchax")
    facts = next((one for one in inventory.vendors if one.vendor == "Google"), None)
    devices = [one for one in inventory.accelerators if one.vendor == "Google"]
    here = f"; tpu:xla-cpu (torchax {version}) is XLA on the host's CPU, not a TPU" if version else ""
    if version is None:
        reason = as_runnable("torchax has no environment here: make setup-xla")
    else:
        reason = facts.reason if facts is not None else "nothing here tells whether there is a TPU"
    return TargetStatus(target="tpu", expected=not reason, reason=f"{reason}{here}", device_name=_names(devices))


def _simulated(inventory: HardwareInfo) -> TargetStatus:
    return TargetStatus(
        target="simulated",
        expected=inventory.torch.version is not None,
        reason=inventory.torch.reason or "simulated: proves plumbing, never numerics or speed",
    )


_RULES: dict[str, Callable[[HardwareInfo], TargetStatus]] = {
    "cpu": _cpu,
    "cuda": partial(_gpu, target="cuda", vendor="NVIDIA"),
    "rocm": partial(_gpu, target="rocm", vendor="AMD"),
    "mps": _mps,
    "xpu": partial(_gpu, target="xpu", vendor="Intel"),
    "openvino": _openvino,
    "qnn": _qnn,
    "tpu": _tpu,
    "webgpu": partial(_web, target="webgpu", browser="chromium (webgpu)"),
    "webnn": partial(_web, target="webnn", browser="@sparticuz/chromium (webnn)"),
    "simulated": _simulated,
}


def node_resources(inventory: HardwareInfo, cores: int | None = None) -> dict[str, int]:
    """Cells at a time by target, as `{"cpu": 8, "cuda": 2}`: what computes on the processor one a core (`cores`, here
    those that this process may use), a GPU that can be handed out one each, and of every other target one.

    What needs no device of its own is a target too (`tpu:xla-cpu`); simulated devices are none.
    """
    from .backends.factory import backend_class, known_targets
    from .system.cpu import usable_cores

    found = [Target.parse(one.target) for one in expected_targets(inventory, known_targets()) if one.expected]
    variants = [Target(name=name, variant=one) for name, one in (("tpu", "xla-cpu"), ("webgpu", "native"))]
    found += [one for one in variants if not why_absent(one, inventory)]
    real = [one for one in found if not backend_class(one.name).SIMULATED]
    return {str(one): _at_a_time(one, inventory, cores or usable_cores()) for one in real}


def _at_a_time(target: Target, inventory: HardwareInfo, cores: int) -> int:
    from .backends.factory import backend_class

    if backend_class(target.name).is_shared(target):
        return cores
    vendor = DEVICES_OF.get(target.name)
    here = [one for one in inventory.accelerators if one.vendor == vendor and one.device_type == "gpu"]
    return max(1, sum("hidden_by" not in one.extra_info for one in here))
