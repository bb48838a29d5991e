"""Says what is on this machine, importing no framework, and proves a target by computing there.

`detect` and `targets` say what may be here; only `probe` says what works.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .accelerators import registered_vendors
from .accelerators._pci import ChipDevice, PciDevice, bus_read_once, chip_accelerators, pci_accelerators
from .accelerators.base import AcceleratorInfo, DriverState, HardwareState, LibraryState, VendorFacts
from .errors import HwCompatError, UsageError
from .expected_targets import TargetStatus, expected_targets
from .machine import LiveMachine, Machine
from .software import HostInfo, TorchBuild
from .system.cpu import CPUInfo, read_cpu
from .system.libraries import ContainerEngine, SystemLibrary, read_container_engines, read_libraries
from .system.memory import MemoryInfo, read_memory
from .system.storage import StorageDeviceInfo, read_storage

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class HardwareInfo:
    """The inventory of one machine. `on_bus` are graphics and processing devices of any vendor, `on_chip` those of a
    system-on-chip whose vendor has no file here; `storage_failures` says by kind why storage can't be listed.
    `detection_failure` says why this is less than the machine has: see `basic_detection.py`."""

    host: HostInfo
    cpu: CPUInfo
    memory: MemoryInfo
    accelerators: tuple[AcceleratorInfo, ...] = ()
    vendors: tuple[VendorFacts, ...] = ()
    on_bus: tuple[PciDevice, ...] | None = None
    on_chip: tuple[ChipDevice, ...] = ()
    storage: tuple[StorageDeviceInfo, ...] = ()
    storage_failures: Mapping[str, str] = field(default_factory=dict)
    libraries: tuple[SystemLibrary, ...] = ()
    container_engines: tuple[ContainerEngine, ...] = ()
    torch: TorchBuild = field(default_factory=TorchBuild)
    packages: Mapping[str, str | None] = field(default_factory=dict)
    detection_failure: str = ""

    @property
    def accelerator_count(self) -> int:
        """Devices that a driver lists or, where there is no driver, that the bus shows."""
        return len(self.accelerators)

    def to_dict(self) -> dict[str, Any]:
        """Plain data in the shape of `schemas/inventory.json`, without serial numbers and names of servers."""
        storage = [one.shareable() for one in self.storage]
        data = {
            "schema_version": SCHEMA_VERSION,
            **asdict(self),
            "memory": {**asdict(self.memory), "usable_bytes": self.memory.usable_bytes},
            "accelerators": [{**asdict(one), "memory_gb": one.memory_gb} for one in self.accelerators],
            "accelerator_count": self.accelerator_count,
            "storage": [{**asdict(one), "capacity_gb": one.capacity_gb} for one in storage],
            "vendors": [{**asdict(one), "state": one.state} for one in self.vendors],
            "torch": {**asdict(self.torch), "local": self.torch.local, "kind": self.torch.kind},
        }
        return {key: _plain(value) for key, value in data.items()}


Inventory = HardwareInfo


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """What came of computing three numbers on a target. `got` is `None` if it didn't get that far."""

    target: str
    ok: bool
    reason: str
    expected: tuple[float, float, float]
    got: tuple[float, float, float] | None
    duration_s: float
    timed_out: bool = False


def detect(machine: Machine | None = None, *, smart: bool = False) -> HardwareInfo:
    """A machine's inventory, this one's where none is given. Never raises for a vendor: what failed is in `vendors`
    with its reason. `smart`: ask the disks themselves, which takes a moment and mostly needs root."""
    machine = machine or LiveMachine()
    engines: list[ContainerEngine] = []
    # A program tells of them, which takes as long as a tenth of all the rest.
    asking = threading.Thread(target=lambda: engines.extend(read_container_engines(machine)))
    asking.start()
    accelerators: list[AcceleratorInfo] = []
    vendors: list[VendorFacts] = []
    with bus_read_once(machine):
        for name, vendor in registered_vendors().classes.items():
            try:
                backend = vendor(machine)
                facts, devices = backend.facts(), backend.list_devices()
                backend.shutdown()
            except Exception as error:  # a plug-in may raise anything, and must not take the others with it
                vendors.append(_broken(name, f"{type(error).__name__}: {error}"))
                continue
            vendors.append(facts)
            accelerators.extend(devices)
        on_bus = pci_accelerators(machine)
    vendors.extend(_broken(name, reason) for name, reason in registered_vendors().failures.items())
    storage = read_storage(machine, smart=smart)
    cpu, memory = read_cpu(machine), read_memory(machine, modules=True)
    asking.join()
    return HardwareInfo(
        host=machine.host(),
        cpu=cpu,
        memory=memory,
        accelerators=tuple(accelerators),
        vendors=tuple(vendors),
        on_bus=on_bus,
        on_chip=chip_accelerators(machine),
        storage=storage.devices,
        storage_failures=storage.failures,
        libraries=read_libraries(machine),
        container_engines=tuple(engines),
        torch=machine.torch(),
        packages=machine.packages(),
    )


def targets(inventory: HardwareInfo) -> tuple[TargetStatus, ...]:
    """For every known target, whether it may be here and the reason if not. Says nothing of what works."""
    from .backends.factory import known_targets

    return expected_targets(inventory, known_targets())


def probe(target: str) -> ProbeResult:
    """Compute the known answer on `target`, importing its runtime. Raises `UsageError` for an unknown name."""
    from . import known_answer
    from .backends.factory import get_backend

    expected = known_answer.expected()
    started = time.perf_counter()
    got: tuple[float, float, float] | None = None
    try:
        backend = get_backend(target)
        reason = backend.unavailable()
        if not reason:
            got = backend.known_answer()
            reason = "" if known_answer.agrees(got) else "it computed something else"
    except UsageError:
        raise
    except HwCompatError as error:
        reason = str(error)
    except Exception as error:  # a runtime may raise anything; the reason is the answer here
        reason = f"{type(error).__name__}: {error}"
    return ProbeResult(
        target=target,
        ok=got is not None and not reason,
        reason=reason,
        expected=expected,
        got=got,
        duration_s=time.perf_counter() - started,
    )


def _broken(name: str, reason: str) -> VendorFacts:
    return VendorFacts(
        vendor=name,
        hardware=HardwareState.UNKNOWN,
        driver=DriverState.UNKNOWN,
        library=LibraryState.UNKNOWN,
        reason=f"the vendor's file failed: {reason}",
        failed=True,
    )


def _plain(value: Any) -> Any:
    """The same data as JSON would read it back: lists for tuples, plain text for enums."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, str) else value
