"""The registry of vendors: what is found, in which order, and what becomes of a vendor that fails."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hardware.detection import detect
from hardware.errors import HwCompatError
from hardware.inventory import vendors
from hardware.inventory.vendors import _pci
from hardware.machine import LiveMachine

ROOT = Path(__file__).parents[2]

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


def forget(folder: Path) -> None:
    vendors.VENDORS.forget()
    for name in {path.stem for path in folder.glob("*.py")}:
        sys.modules.pop(f"hardware.inventory.vendors.{name}", None)


@pytest.fixture
def add_vendor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AddVendor]:
    """Puts one more vendor file where the registry looks, and forgets it afterwards."""
    monkeypatch.setattr(vendors, "__path__", [*vendors.__path__, str(tmp_path)])

    def add(name: str, text: str = "", *, vendor: str = "", kind: str = "npu", available: str = "True") -> None:
        body = text or VENDOR.format(vendor=vendor or name, kind=kind, available=available)
        (tmp_path / f"{name}.py").write_text(body)
        vendors.VENDORS.forget()

    yield add
    forget(tmp_path)


def test_a_vendor_is_one_file_more(add_vendor: AddVendor) -> None:
    add_vendor("mychip", vendor="MyChip")
    assert "MyChip" in vendors.list_available_vendors()
    backend = vendors.get_accelerator_backend("mychip")
    assert backend.get_framework_device_string(0) == "chip:0"
    assert type(backend) in vendors.ACCELERATOR_BACKENDS


def test_minimum_tier_answers_none_for_metrics(add_vendor: AddVendor) -> None:
    add_vendor("mychip", vendor="MyChip")
    backend = vendors.get_accelerator_backend("MyChip")
    assert backend.get_temperature(0) is None
    assert backend.get_memory_usage(0) is None
    assert backend.get_throttle_reasons(0) is None
    assert backend.facts().state == "expected"
    backend.shutdown()


def test_order_is_nvidia_amd_intel_apple_and_the_rest_by_name(add_vendor: AddVendor) -> None:
    names = ("nvidia", "amd", "intel", "apple", "beta", "zeta")
    for name in ("zeta", "beta"):
        add_vendor(name)
    assert tuple(name for name in vendors.VENDORS.names() if name in names) == names


def test_a_mixed_machine_shows_all_vendors(add_vendor: AddVendor) -> None:
    add_vendor("zeta", vendor="Zeta")
    add_vendor("beta", vendor="Beta")
    there = vendors.list_available_vendors()
    assert [name for name in there if name in ("Beta", "Zeta")] == ["Beta", "Zeta"]
    assert vendors.get_backend_count() == len(there)
    last = vendors.get_accelerator_backend_by_index(len(there) - 1)
    assert last.VENDOR_NAME == "Zeta"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import no_such_library", "no_such_library"),
        ("raise KeyError('HSA')", "HSA"),
        ("", "DEVICE_TYPE must be one of gpu"),
        ("x = 1", "must define one AcceleratorBackend, not 0"),
    ],
)
def test_a_vendor_that_cannot_be_imported_is_left_out_with_its_reason(
    add_vendor: AddVendor, text: str, reason: str
) -> None:
    add_vendor("broken", text, kind="toaster")
    add_vendor("works", vendor="Works")
    assert "Works" in vendors.list_available_vendors()
    assert reason in vendors.accelerator_failures()["broken"]


def test_a_vendor_that_raises_when_asked_is_left_out_with_its_reason(add_vendor: AddVendor) -> None:
    add_vendor("broken", available="1 / 0")
    add_vendor("works", vendor="Works")
    assert "Works" in vendors.list_available_vendors()
    assert "ZeroDivisionError" in vendors.accelerator_failures()["broken"]


def test_a_vendor_that_is_not_here_names_those_that_are(add_vendor: AddVendor) -> None:
    add_vendor("works", vendor="Works")
    with pytest.raises(RuntimeError, match="Works") as caught:
        vendors.get_accelerator_backend("cerebras")
    assert isinstance(caught.value, HwCompatError)


def test_an_index_out_of_range_names_the_range(add_vendor: AddVendor) -> None:
    add_vendor("works", vendor="Works")
    count = vendors.get_backend_count()
    with pytest.raises(IndexError, match=f"0 to {count - 1}"):
        vendors.get_accelerator_backend_by_index(count)
    with pytest.raises(IndexError, match="-1"):
        vendors.get_accelerator_backend_by_index(-1)


def test_no_accelerator_at_all_is_a_runtime_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hardware.inventory.vendors.nvidia.NvidiaAccelerators.is_available", lambda self: False)
    assert vendors.get_all_accelerator_backends() == []
    with pytest.raises(RuntimeError, match="no accelerator is here"):
        vendors.get_accelerator_backend()
    with pytest.raises(RuntimeError, match="no accelerator is here"):
        vendors.get_accelerator_backend_by_index(0)


def test_an_installed_package_brings_a_vendor(tmp_path: Path) -> None:
    (tmp_path / "chip_package.py").write_text(VENDOR.format(vendor="PlugIn", kind="lpu", available="True"))
    metadata = tmp_path / "chip_package-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: chip-package\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[hwcompat.accelerators]\nchip = chip_package:Chips\nlost = no_such_module:Chips\n"
    )
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from hardware.inventory import vendors as accelerators\nfrom hardware.detection import detect\n"
        "print(accelerators.list_available_vendors()[-1], accelerators.accelerator_failures()['lost'])\n"
        "print([one.reason for one in detect().vendors if one.vendor == 'lost'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    first, second = done.stdout.splitlines()
    assert first.startswith("PlugIn ModuleNotFoundError")
    assert "no_such_module" in second


def test_listing_vendors_imports_no_vendor_library() -> None:
    code = (
        "import sys\nfrom hardware.inventory import vendors as accelerators\naccelerators.ACCELERATOR_BACKENDS\n"
        "print(sorted({'pynvml', 'torch', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_names_on_the_bus_come_from_the_id_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = tmp_path / "sys" / "bus" / "pci" / "devices" / "0000:01:00.0"
    device.mkdir(parents=True)
    for name, text in (("vendor", "0x1002"), ("device", "0x744c"), ("class", "0x030000")):
        (device / name).write_text(text)
    database = tmp_path / "pci.ids"
    database.write_text(
        "# comment\n1002  AMD/ATI\n\t744b  Other\n\t744c  Navi 31\n\t\t1002 0e3b  Board\n"
        "10de  NVIDIA\n\t744c  Wrong vendor\nC 03  Display controller\n\t744c  Wrong section\n"
    )
    monkeypatch.setattr(_pci, "ID_DATABASES", [database])
    (found,) = _pci.pci_accelerators(LiveMachine(tmp_path)) or ()
    assert found.name == "AMD/ATI Navi 31"
    monkeypatch.setattr(_pci, "ID_DATABASES", [])
    (unnamed,) = _pci.pci_accelerators(LiveMachine(tmp_path)) or ()
    assert unnamed.name == ""


def test_a_vendor_that_lacks_a_method_is_refused_with_its_name(add_vendor: AddVendor) -> None:
    add_vendor(
        "half", VENDOR.format(vendor="Half", kind="npu", available="True").partition("    def list_devices")[0]
    )
    assert vendors.registered_vendors().failures["half"] == "TypeError: Chips lacks list_devices"
    assert "half" not in vendors.registered_vendors().found


def test_a_vendors_library_is_closed_once_the_machine_is_listed(add_vendor: AddVendor, tmp_path: Path) -> None:
    note = tmp_path / "closed"
    closing = f"\n    def shutdown(self):\n        with open({str(note)!r}, 'a') as note: note.write('x')\n"
    add_vendor("tidy", VENDOR.format(vendor="Tidy", kind="npu", available="True") + closing)
    assert "Tidy" in {one.vendor for one in detect().accelerators}
    assert note.read_text() == "x"
