"""The registry of vendors: which are found, in which order, and how a vendor that fails is reported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hardware.detection import detect
from hardware.errors import HwCompatError
from hardware.inventory import vendors
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
