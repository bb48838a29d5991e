"""The registry of vendors: which are found, in which order, and how a vendor that fails is reported.

What one accelerator tells about itself, whichever vendor it is of.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from recorded_machines import FIXTURES, changed, machine

from hardware.detection import detect
from hardware.errors import HwCompatError, UsageError
from hardware.inventory import vendors
from hardware.inventory.vendors import registered_vendors
from hardware.inventory.vendors._lazy_library import LazyLibrary
from hardware.inventory.vendors._tool_values import link_gbps
from hardware.inventory.vendors.nvidia import NvidiaAccelerators, Nvml
from hardware.inventory.vendors.vendor import AcceleratorInfo, LibraryState, NoSuchIndex
from hardware.testing.contract.machines import EmptyMachine

VENDOR = """
from hardware.inventory.vendors.vendor import AcceleratorBackend, AcceleratorInfo

class Chips(AcceleratorBackend):
    VENDOR_NAME = {vendor!r}
    DEVICE_TYPE = {kind!r}
    DEVICE_STRINGS = {{"pytorch": "chip:{{index}}"}}

    def is_available(self):
        return {available}

    def get_device_count(self):
        return 1

    def list_devices(self):
        return (AcceleratorInfo(vendor={vendor!r}, device_type={kind!r}, model="Chip", index=0),)
"""

AddVendor = Callable[..., None]


@pytest.fixture
def add_vendor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AddVendor]:
    """Add a vendor's file to the folder of vendors for one test."""
    monkeypatch.setattr(vendors, "__path__", [*vendors.__path__, str(tmp_path)])

    def add(name: str, text: str = "", *, vendor: str = "", kind: str = "npu", available: str = "True") -> None:
        body = text or VENDOR.format(vendor=vendor or name, kind=kind, available=available)
        (tmp_path / f"{name}.py").write_text(body)
        vendors.VENDORS.forget()

    yield add
    vendors.VENDORS.forget()
    for name in {path.stem for path in tmp_path.glob("*.py")}:
        sys.modules.pop(f"hwcompat.hardware.inventory.vendors.{name}", None)


def test_our_vendors_can_all_be_loaded():
    assert vendors.registered_vendors().failures == {}
    others = (
        "aws",
        "cerebras",
        "google",
        "groq",
        "habana",
        "huawei",
        "qualcomm",
        "rebellions",
        "tenstorrent",
        "xdna",
    )
    names = ("nvidia", "amd", "intel", "apple", *others)
    assert tuple(vendors.registered_vendors().found) == names


def test_one_more_file_is_one_more_vendor_without_metrics(add_vendor):
    add_vendor("mychip", vendor="MyChip")
    assert "MyChip" in vendors.list_available_vendors()
    backend = vendors.get_accelerator_backend("mychip")
    assert backend.get_framework_device_string(0) == "chip:0"
    assert type(backend) in vendors.ACCELERATOR_BACKENDS
    assert (backend.get_temperature(0), backend.get_memory_usage(0), backend.get_throttle_reasons(0)) == (None,) * 3
    assert backend.facts().state == "expected"
    backend.shutdown()


def test_vendors_of_a_mixed_machine_are_listed_in_order(add_vendor):
    for name in ("zeta", "beta"):
        add_vendor(name, vendor=name.title())
    names = ("nvidia", "amd", "intel", "apple", "beta", "zeta")
    assert tuple(name for name in vendors.VENDORS.names() if name in names) == names
    there = vendors.list_available_vendors()
    assert there[-2:] == ["Beta", "Zeta"]
    assert vendors.get_backend_count() == len(there)
    assert vendors.get_accelerator_backend_by_index(len(there) - 1).VENDOR_NAME == "Zeta"
    with pytest.raises(RuntimeError, match="Zeta") as caught:
        vendors.get_accelerator_backend("cerebras")
    assert isinstance(caught.value, HwCompatError)
    for index in (len(there), -1):
        with pytest.raises(IndexError, match=f"{index}.*0 to {len(there) - 1}"):
            vendors.get_accelerator_backend_by_index(index)


def test_a_vendor_that_fails_is_left_out_with_its_reason(add_vendor):
    incomplete = VENDOR.format(vendor="Half", kind="npu", available="True").partition("    def list_devices")[0]
    for name, text, kind, available in (
        ("no_such_library", "import no_such_library", "npu", "True"),
        ("HSA", "raise KeyError('HSA')", "npu", "True"),
        ("DEVICE_TYPE must be one of gpu", "", "toaster", "True"),
        ("must define one AcceleratorBackend, not 0", "x = 1", "npu", "True"),
        ("TypeError: Chips lacks list_devices", incomplete, "npu", "True"),
        ("ZeroDivisionError", "", "npu", "1 / 0"),
    ):
        add_vendor("broken", text, kind=kind, available=available)
        add_vendor("works", vendor="Works")
        sys.modules.pop("hwcompat.hardware.inventory.vendors.broken", None)
        assert "Works" in vendors.list_available_vendors()
        assert name in vendors.accelerator_failures()["broken"]
        assert (
            any("broken" in one.vendor or "broken" in one.reason for one in detect().vendors) or available != "True"
        )


def test_a_machine_without_accelerators_is_a_runtime_error(monkeypatch):
    for kind in vendors.registered_vendors().found.values():
        monkeypatch.setattr(kind, "is_available", lambda self: False)
    assert vendors.get_all_accelerator_backends() == []
    with pytest.raises(RuntimeError, match="no accelerator found"):
        vendors.get_accelerator_backend()
    with pytest.raises(RuntimeError, match="no accelerator found"):
        vendors.get_accelerator_backend_by_index(0)


def test_a_vendors_library_is_closed_after_its_devices_are_listed(add_vendor, tmp_path):
    note = tmp_path / "closed"
    closing = f"\n    def shutdown(self):\n        with open({str(note)!r}, 'a') as note: note.write('x')\n"
    add_vendor("tidy", VENDOR.format(vendor="Tidy", kind="npu", available="True") + closing)
    assert "Tidy" in {one.vendor for one in detect(EmptyMachine()).accelerators}
    assert note.read_text() == "x"


def test_memory_is_given_in_bytes_or_in_gigabytes() -> None:
    card: dict[str, Any] = {"vendor": "X", "device_type": "gpu", "model": "Card"}
    assert AcceleratorInfo(**card, memory_gb=1.5).memory_bytes == 1.5 * 2**30
    whole = AcceleratorInfo(**card, memory_bytes=2**30, memory_gb=7.0)
    assert (whole.memory_gb, replace(whole, memory_bytes=2**31).memory_gb) == (1.0, 2.0)
    assert replace(whole, memory_bytes=None).memory_gb is None
    assert AcceleratorInfo(**asdict(whole)) == whole
    assert AcceleratorInfo(**card).memory_gb is None


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"vendor": 1}, "vendor must be str, not 1"),
        ({"model": None}, "model must be str, not None"),
        ({"index": "x"}, "index must be int or None, not 'x'"),
        ({"index": True}, "index must be int or None, not True"),
        ({"memory_gb": "80"}, "memory_gb must be float or None"),
        ({"device_type": "nonsense"}, "device_type must be one of gpu, npu, tpu, lpu, wse, not 'nonsense'"),
    ],
)
def test_a_value_of_a_wrong_type_is_refused_with_its_name(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        AcceleratorInfo(**{"vendor": "X", "device_type": "gpu", "model": "Card", **wrong})


def test_an_absent_index_is_the_same_error_for_every_vendor() -> None:
    asked = 0
    for name, kind in registered_vendors().found.items():
        for place in [None, *sorted(FIXTURES.glob(f"{name}/*/machine.json"))]:
            told = machine("machines/vm-virtio" if place is None else str(place.parent.relative_to(FIXTURES)))
            backend = kind(told)
            for what in ("temperature", "memory", "utilization", "power", "throttle"):
                with pytest.raises(NoSuchIndex, match=f"{backend.VENDOR_NAME} device 99 not found"):
                    backend.reading(99, what)
            for index in range(backend.get_device_count()):
                rates = backend.get_utilization(index)
                assert rates is None or set(rates) == {"compute", "memory"}
                asked += 1
    assert asked > 30


def test_cores_of_a_gpu_follow_from_its_capability(tmp_path: Path) -> None:
    answers = json.loads((FIXTURES / "nvidia/h100-x8/libraries/nvml.json").read_text())
    told = changed(
        "nvidia/h100-x8", tmp_path, libraries={"nvml": answers | {"nvmlDeviceGetNumGpuCores 0": {"value": 16896}}}
    )
    first, second = NvidiaAccelerators(told).list_devices()[:2]
    assert [first.extra_info[name] for name in ("cuda_cores", "sm_count", "tensor_cores")] == [16896, 132, 528]
    assert "sm_count" not in second.extra_info
    assert first.interconnect_gbps == 63.02, "PCIe 5.0 x16"
    assert first.extra_info["nvlink_gbps"] == 900
    others = NvidiaAccelerators(machine("nvidia/workstation")).list_devices()
    assert not [one.model for one in others if "nvlink_gbps" in one.extra_info]
    assert (link_gbps(3, 16), link_gbps(1, 1), link_gbps(None, 16), link_gbps(4, "x")) == (15.75, 0.25, None, None)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            "libnvidia-ml.so.1: cannot open shared object file: No such file or directory",
            "comes with the NVIDIA driver",
        ),
        (
            "/lib/libnvidia-ml.so.1: undefined symbol: gnu_get",
            "installed, but can't be loaded: /lib/.*undefined symbol",
        ),
        (
            "libcuda.so.1: cannot open shared object file: No such file or directory",
            "installed, .*libcuda.so.1: cannot",
        ),
    ],
)
def test_a_library_that_is_there_is_reported_with_the_loaders_words(
    words: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> None:
        raise OSError(words)

    monkeypatch.setattr("hardware.inventory.vendors.nvidia.ctypes.CDLL", refuse)
    library: LazyLibrary = Nvml()
    status = library.ask("opening").value
    assert status[0] == LibraryState.MISSING
    assert re.search(reason, status[2]), status[2]
