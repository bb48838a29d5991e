"""What has no vendor's file, on the bus or in the chip: its name, its kind, and whether it can be pulled out."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import jsonschema
import pytest
from recorded_machines import FIXTURES, changed, machine

from hardware.detection import detect
from hardware.inventory.vendors._pci import bound_driver, pci_accelerators, pcie_generation
from hardware.inventory_text import list_text
from hardware.recording import INDEX, without_identity

TABLE = Path(__file__).parents[2] / "hardware" / "inventory" / "vendors" / "bus_devices.toml"
MACHINES = sorted(str(index.parent.relative_to(FIXTURES)) for index in FIXTURES.glob(f"*/*/{INDEX}"))


def test_devices_without_a_vendors_file_have_names_and_kinds() -> None:
    told = list_text(detect(machine("other/gaudi2-fpga-egpu")))
    assert told.count("Habana Labs Gaudi2 AI Training Accelerator (npu)") == 3
    assert "Xilinx (AMD) accelerator card (fpga)" in told


def test_a_gpu_behind_thunderbolt_is_external() -> None:
    found = {one.address: one for one in pci_accelerators(machine("other/gaudi2-fpga-egpu")) or ()}
    assert found["0000:04:00.0"].external is True
    assert found["0000:00:02.0"].external is False
    assert found["0000:19:00.0"].external is None
    nvidia = next(one for one in detect(machine("other/gaudi2-fpga-egpu")).accelerators if one.vendor == "NVIDIA")
    assert nvidia.extra_info["external"] is True


def test_a_serial_port_of_an_fpga_is_no_accelerator() -> None:
    found = [one.address for one in pci_accelerators(machine("other/gaudi2-fpga-egpu")) or ()]
    assert "0000:65:00.0" in found
    assert "0000:66:00.0" not in found


def test_accelerators_of_a_chip_are_shown() -> None:
    inventory = detect(machine("other/rock-5b"))
    (npu,) = inventory.on_chip
    assert (npu.place, npu.driver, npu.kind) == ("fdab0000.npu", "RKNPU", "npu")
    told = list_text(inventory)
    assert "Rockchip NPU (Rockchip's kernel)" in told
    assert "Hailo-8 AI Processor (npu)" in told


def test_a_driver_that_drives_something_else_is_no_sign(tmp_path: Path) -> None:
    place = "/sys/bus/platform/drivers/RKNPU/fdab0000.npu/uevent"
    assert (
        detect(
            changed("other/rock-5b", tmp_path, files={place: "DRIVER=RKNPU\nOF_COMPATIBLE_0=acme,toaster"})
        ).on_chip
        == ()
    )


@pytest.mark.parametrize(
    ("speed", "generation"),
    [("2.5 GT/s PCIe", 1), ("5 GT/s", 2), ("8.0 GT/s PCIe", 3), ("32.0 GT/s PCIe", 5), ("Unknown", None), ("", None)],
)
def test_the_generation_is_told_by_the_speed_of_a_lane(tmp_path: Path, speed: str, generation: int | None) -> None:
    address = "0000:65:00.0"
    told = changed(
        "groq/card-without-driver", tmp_path, files={f"/sys/bus/pci/devices/{address}/max_link_speed": speed}
    )
    assert pcie_generation(told, address) == generation


def test_the_bound_driver_is_the_one_that_the_kernel_links() -> None:
    assert bound_driver(machine("groq/groqnode"), "0000:21:00.0") == "groq"
    assert bound_driver(machine("groq/card-without-driver"), "0000:65:00.0") == ""


def test_each_number_stands_once_in_the_table_and_names_its_source() -> None:
    text = TABLE.read_text(encoding="utf-8")
    devices = tomllib.loads(text)["device"]
    numbers = [(one["vendor"], one.get("device")) for one in devices]
    assert len(set(numbers)) == len(numbers)
    named = set(re.findall(r"^#   (\S+) ", text, re.MULTILINE))
    assert {one["source"] for one in devices} <= named


@pytest.mark.parametrize("name", MACHINES)
def test_the_inventory_of_a_recorded_machine_has_the_published_shape(name: str) -> None:
    import json

    schema = json.loads((Path(__file__).parents[2] / "hardware" / "schemas" / "inventory.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(detect(machine(name)).to_dict())
    assert (FIXTURES / name / "SOURCE.md").read_text().strip()


@pytest.mark.parametrize("name", MACHINES)
def test_a_recorded_machine_names_nobody(name: str) -> None:
    for file in (one for one in (FIXTURES / name).rglob("*") if one.is_file() and one.name != "SOURCE.md"):
        text = file.read_text(encoding="utf-8", errors="replace")
        assert without_identity(text) == text, file
