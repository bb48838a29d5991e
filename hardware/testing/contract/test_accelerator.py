"""The contract of a vendor's file: asked of this machine, of one without any device, and of recorded ones."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

import pytest

from ...errors import UsageError
from ...inventory.vendors import registered_vendors
from ...inventory.vendors.vendor import DEVICE_TYPES, AcceleratorBackend, DriverState, HardwareState, LibraryState
from ...machine import LiveMachine, Machine
from ...process import run
from .contract_options import asked_for
from .machines import EmptyMachine, recorded_machines

FRAMEWORKS = ("pytorch", "tensorflow", "jax", "openvino", "onnxruntime")
METRICS = (
    "get_temperature",
    "get_memory_usage",
    "get_utilization",
    "get_power_usage",
    "get_throttle_reasons",
)
THREADS = 8
COLDEST, HOTTEST, STRONGEST_W = -60, 200, 30_000
"""No board that anybody sells is outside of these, a whole Cerebras system (23 kW) included."""

Metrics = dict[str, Any]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One round for each vendor, and one for each machine that it is asked about."""
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", asked_for(metafunc.config, "accelerator"), scope="module")
    if "machine" in metafunc.fixturenames:
        machines: dict[str, Machine] = {"this machine": LiveMachine(), "an empty machine": EmptyMachine()}
        machines.update(recorded_machines(metafunc.config.getoption("machines")))
        metafunc.parametrize("machine", machines.values(), ids=list(machines), scope="module")


@pytest.fixture
def vendor(name: str) -> type[AcceleratorBackend]:
    """The class of the vendor that is asked."""
    registered = registered_vendors()
    if name in registered.failures:
        pytest.fail(f"{name} failed to load: {registered.failures[name]}", pytrace=False)
    if name not in registered.found:
        pytest.fail(f"unknown vendor {name}. Known: {', '.join(registered.found)}", pytrace=False)
    return registered.found[name]


@pytest.fixture
def backend(vendor: type[AcceleratorBackend], machine: Machine) -> AcceleratorBackend:
    """The vendor, asked about one machine."""
    return vendor(machine)


def test_it_is_known_by_its_name(vendor: type[AcceleratorBackend]) -> None:
    """It names its vendor and says what kind of device it has."""
    assert vendor.VENDOR_NAME.strip() == vendor.VENDOR_NAME != ""
    assert vendor.DEVICE_TYPE in DEVICE_TYPES
    assert all(isinstance(pattern, str) for pattern in vendor.DEVICE_STRINGS.values())


def test_importing_it_starts_nothing(name: str) -> None:
    """Importing its file starts no program, loads no native library of its own and reaches no network."""
    code = f"""
import sys
from {registered_vendors.__module__} import vendor
seen = []
def hear(event, arguments):
    if event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "socket.connect", "ctypes.dlopen"):
        seen.append(f"{{event}} {{arguments[:1]}}")
import ctypes  # it opens the interpreter itself
sys.addaudithook(hear)
from {registered_vendors.__module__} import registered_vendors
known = registered_vendors()
assert {name!r} in known.found, known.failures
print(__import__("json").dumps(seen))
"""
    done = run([sys.executable, "-c", code], limit_s=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_a_machine_without_a_sign_of_it_has_none(vendor: type[AcceleratorBackend]) -> None:
    """Nothing is listed, nothing is claimed, no program is started, and the reason is said."""
    machine = EmptyMachine()
    backend = vendor(machine)
    assert backend.is_available() is False
    assert backend.get_device_count() == 0
    assert backend.list_devices() == ()
    facts = backend.facts()
    assert facts.hardware is not HardwareState.PRESENT
    assert facts.state != "expected"
    assert facts.reason
    assert machine.started == []


def test_its_devices_are_numbered_and_whole(backend: AcceleratorBackend) -> None:
    """Devices of the driver come first, numbered from 0; what isn't told is `None`, never 0."""
    devices = backend.list_devices()
    assert isinstance(devices, tuple)
    driven = [one for one in devices if one.index is not None]
    assert backend.get_device_count() == len(driven)
    assert backend.is_available() is bool(driven)
    assert [one.index for one in devices] == [*range(len(driven)), *[None] * (len(devices) - len(driven))]
    for one in devices:
        assert one.vendor == backend.VENDOR_NAME
        assert one.device_type in DEVICE_TYPES
        assert one.model.strip()
        assert one.seen_by == ("bus" if one.index is None else "driver")
        assert one.memory_bytes is None or (type(one.memory_bytes) is int and one.memory_bytes > 0)
        assert one.bandwidth_gbps is None or one.bandwidth_gbps > 0
        assert one.pcie_gen is None or one.pcie_gen >= 1
        assert all(isinstance(value, str | int | float | bool) for value in one.extra_info.values())
        json.dumps(asdict(one), allow_nan=False)


def test_what_it_says_of_itself_agrees(backend: AcceleratorBackend) -> None:
    """Listed devices are present, unless only a configuration names them; whatever isn't as expected has its
    reason."""
    facts = backend.facts()
    assert facts.vendor == backend.VENDOR_NAME
    assert facts.hardware in HardwareState
    assert facts.driver in DriverState
    assert facts.library in LibraryState
    assert facts.on_bus is None or facts.on_bus >= 0
    if any(one.extra_info.get("seen_through") != "configuration" for one in backend.list_devices()):
        assert facts.hardware is HardwareState.PRESENT
    if facts.state != "expected":
        assert facts.reason


def test_its_metrics_have_their_units(backend: AcceleratorBackend) -> None:
    """°C, bytes, percent and W, in ranges that a device can have; `None` for what isn't told."""
    for index in range(backend.get_device_count()):
        told = _metrics(backend, index)
        celsius, memory, rates, watts, reasons = (told[name] for name in METRICS)
        assert celsius is None or COLDEST <= celsius <= HOTTEST
        assert watts is None or 0 <= watts <= STRONGEST_W
        if memory is not None:
            assert set(memory) == {"total", "used", "free"}
            assert all(type(size) is int and size >= 0 for size in memory.values())
            assert 0 < memory["used"] + memory["free"] <= memory["total"]
        if rates is not None:
            assert set(rates) <= {"compute", "memory"}
            assert all(rate is None or 0 <= rate <= 100 for rate in rates.values())
        if reasons is not None:
            assert isinstance(reasons, tuple)
            assert all(isinstance(reason, str) and reason for reason in reasons)


def test_a_device_that_is_not_there_has_no_metrics(backend: AcceleratorBackend) -> None:
    """An index beyond the range is an `IndexError`, or told as nothing; it is never another device's figure."""
    for index in (-1, backend.get_device_count(), 10_000):
        for name in METRICS:
            try:
                assert getattr(backend, name)(index) is None
            except IndexError:
                continue


def test_a_framework_has_a_name_for_it_or_says_why_not(backend: AcceleratorBackend) -> None:
    """A name without blanks, or a `UsageError`; an unknown framework is always one."""
    for index in range(max(1, backend.get_device_count())):
        for framework in FRAMEWORKS:
            try:
                name = backend.get_framework_device_string(index, framework)
            except UsageError:
                continue
            assert name
            assert name.split() == [name]
    with pytest.raises(UsageError) as caught:
        backend.get_framework_device_string(0, "an-unknown-framework")
    assert all(known in str(caught.value) for known in backend.DEVICE_STRINGS)


def test_it_can_be_given_back_twice_and_asked_again(backend: AcceleratorBackend) -> None:
    """After `shutdown` the same devices are listed again."""
    before = [(one.model, one.index) for one in backend.list_devices()]
    backend.shutdown()
    backend.shutdown()
    assert [(one.model, one.index) for one in backend.list_devices()] == before


def test_threads_read_what_one_reads(backend: AcceleratorBackend, machine: Machine) -> None:
    """Eight threads at once get the figures of their own device. Only a recording holds still enough to compare."""
    count = backend.get_device_count()
    still = not isinstance(machine, LiveMachine)
    want = [_metrics(backend, index) for index in range(count)]
    asked = [index for index in range(count) for _ in range(THREADS)]
    with ThreadPoolExecutor(THREADS) as pool:
        got = list(pool.map(lambda index: _metrics(backend, index), asked))
    assert len(got) == count * THREADS
    for index, told in zip(asked, got, strict=True):
        assert set(told) == set(METRICS)
        assert not still or told == want[index]


def _metrics(backend: AcceleratorBackend, index: int) -> Metrics:
    asked: dict[str, Callable[[int], Any]] = {name: getattr(backend, name) for name in METRICS}
    return {name: ask(index) for name, ask in asked.items()}
