"""Detection of this machine's hardware without importing a framework, and a probe that computes on a target.

`detect` and `targets` report what may be available; only `probe` verifies that it works.
"""

from __future__ import annotations

import threading
import time
from dataclasses import asdict, dataclass

from .errors import HwCompatError, UsageError
from .expected_targets import targets as targets
from .inventory.hardware_info import SCHEMA_VERSION as SCHEMA_VERSION
from .inventory.hardware_info import HardwareInfo as HardwareInfo
from .inventory.hardware_info import Inventory as Inventory
from .inventory.system.main_memory import read_memory
from .inventory.system.processor import read_cpu
from .inventory.system.storage import read_storage
from .inventory.system.system_libraries import ContainerEngine, read_container_engines, read_libraries
from .inventory.vendors import registered_vendors
from .inventory.vendors._pci import bus_read_once, chip_accelerators, pci_accelerators
from .inventory.vendors.vendor import AcceleratorInfo, DriverState, HardwareState, LibraryState, VendorFacts
from .machine import LiveMachine, Machine

_TAIL = 300


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """The result of computing three numbers on a target. `got` is None if nothing was computed."""

    target: str
    ok: bool
    reason: str
    expected: tuple[float, float, float]
    got: tuple[float, float, float] | None
    duration_s: float
    timed_out: bool = False


def detect(machine: Machine | None = None, *, smart: bool = False) -> HardwareInfo:
    """Return the inventory of a machine, by default this one. The error of a vendor's file is reported in
    `vendors` and not raised. `smart` reads the health of disks, which takes a moment and mostly needs root."""
    machine = machine or LiveMachine()
    engines: list[ContainerEngine] = []
    # Started first because running a program takes a tenth of the whole time.
    engine_reader = threading.Thread(target=lambda: engines.extend(read_container_engines(machine)))
    engine_reader.start()
    accelerators: list[AcceleratorInfo] = []
    vendors: list[VendorFacts] = []
    with bus_read_once(machine):
        for name, vendor in registered_vendors().found.items():
            try:
                backend = vendor(machine)
                facts, devices = backend.facts(), backend.list_devices()
                backend.shutdown()
            except Exception as error:  # a plugin may raise anything, and must not affect the others
                vendors.append(_broken(name, f"{type(error).__name__}: {error}"))
                continue
            vendors.append(facts)
            accelerators.extend(devices)
        on_bus = pci_accelerators(machine)
    vendors.extend(_broken(name, reason) for name, reason in registered_vendors().failures.items())
    storage = read_storage(machine, smart=smart)
    cpu, memory = read_cpu(machine), read_memory(machine, modules=True)
    engine_reader.join()
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
            reason = "" if known_answer.agrees(got) else "the known-answer test returned wrong numbers"
    except UsageError:
        raise
    except HwCompatError as error:
        reason = str(error)
    except Exception as error:  # a runtime may raise anything, which is reported as the reason
        reason = f"{type(error).__name__}: {error}"
    return ProbeResult(
        target=target,
        ok=got is not None and not reason,
        reason=reason,
        expected=expected,
        got=got,
        duration_s=time.perf_counter() - started,
    )


def probe_apart(target: str, *, timeout_s: float) -> ProbeResult:
    """Probe a target in a child process with a time limit. Crashes and timeouts are reported as the reason."""
    from .known_answer import expected
    from .process import NoAnswer, ask

    started, timed_out = time.perf_counter(), False
    try:
        result = ask(__name__, target, limit_s=timeout_s)
        got = None if result["got"] is None else tuple(result["got"])
        return ProbeResult(**{**result, "got": got, "expected": tuple(result["expected"])})
    except NoAnswer as error:
        timed_out = error.ended.timed_out
        output = " ".join(error.ended.stderr.split())[-_TAIL:]
        reason = f"it took longer than {timeout_s:g} s" if timed_out else f"its process {error.ended.how}. {output}"
    except HwCompatError as error:
        reason = str(error)
    return ProbeResult(
        target=target,
        ok=False,
        reason=reason.strip(),
        expected=expected(),
        got=None,
        duration_s=time.perf_counter() - started,
        timed_out=timed_out,
    )


def _broken(name: str, reason: str) -> VendorFacts:
    return VendorFacts(
        vendor=name,
        hardware=HardwareState.UNKNOWN,
        driver=DriverState.UNKNOWN,
        library=LibraryState.UNKNOWN,
        reason=f"the vendor's module failed: {reason}",
        failed=True,
    )


if __name__ == "__main__":
    from .process import answer

    answer(lambda target: asdict(probe(target)))
