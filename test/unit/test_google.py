"""TPUs by generation, what a user may open and what a running program tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recorded_machines import changed, machine

from hardware.detection import detect
from hardware.errors import UsageError
from hardware.inventory.vendors.google import GoogleAccelerators, generations, read_usage
from hardware.inventory.vendors.vendor import DriverState, LibraryState

GIB = 2**30


def test_chips_of_a_machine_on_which_a_program_computes() -> None:
    backend = GoogleAccelerators(machine("google/v6e-4"))
    devices = backend.list_devices()
    assert [one.model for one in devices] == ["TPU v6e"] * 4
    assert [one.extra_info["node"] for one in devices] == [f"/dev/vfio/{index}" for index in range(4)]
    assert (devices[0].memory_bytes, devices[0].memory_type, devices[0].driver_version) == (32 * GIB, "HBM", "0.0.19")
    assert "table" in str(devices[0].extra_info["sizes"])
    assert devices[0].extra_info["tpu_accelerator_type"] == "v6e-4"
    assert backend.facts().state == "expected"
    assert backend.get_utilization(2) == {"compute": 100.0}
    memory = backend.get_memory_usage(0)
    assert memory is not None
    assert memory["total"] == round(31.25 * GIB)
    assert memory["used"] == round(18.45 * GIB)
    assert memory["used"] + memory["free"] == memory["total"]


def test_an_idle_machine_tells_no_metrics_and_says_why() -> None:
    backend = GoogleAccelerators(machine("google/v5e-8"))
    assert backend.get_device_count() == 8
    assert backend.list_devices()[0].bandwidth_gbps == 819
    assert backend.list_devices()[0].extra_info["visible_chips"] == "0,1,2,3"
    assert backend.get_memory_usage(0) is None
    assert "only while a program computes" in backend.told(0, "memory").reason
    assert backend.get_temperature(0) is None


def test_chips_that_this_user_may_not_open_are_denied() -> None:
    backend = GoogleAccelerators(machine("google/v4-8"))
    facts = backend.facts()
    assert (facts.driver, facts.library) == (DriverState.DENIED, LibraryState.MISSING)
    assert facts.state == "present but unusable"
    assert "/dev/accel0" in facts.reason
    assert "pip install libtpu" in facts.reason
    assert backend.get_device_count() == 0
    assert [one.model for one in backend.list_devices()] == ["TPU v4"] * 4


@pytest.mark.parametrize(("subsystem", "name", "size"), [("0x004e", "TPU v2", 16), ("0x004f", "TPU v3", 32)])
def test_v2_and_v3_differ_in_their_subsystem(tmp_path: Path, subsystem: str, name: str, size: int) -> None:
    files: dict[str, str | None] = {}
    for number in range(4, 8):
        folder = f"/sys/bus/pci/devices/0000:00:{number:02x}.0"
        files |= {f"{folder}/device": "0x0027", f"{folder}/subsystem_device": subsystem}
    devices = GoogleAccelerators(changed("google/v4-8", tmp_path, files=files)).list_devices()
    assert {(one.model, one.memory_bytes) for one in devices} == {(name, size * GIB)}


def test_other_devices_of_google_are_no_tpus(tmp_path: Path) -> None:
    folder = "/sys/bus/pci/devices/0000:00:04.0"
    told = changed("google/v4-8", tmp_path, files={f"{folder}/device": "0x0042", f"{folder}/class": "0x020000"})
    assert len(GoogleAccelerators(told).list_devices()) == 3


def test_two_functions_of_one_tpu7x_are_one_chip(tmp_path: Path) -> None:
    files: dict[str, str | None] = {}
    for function in (0, 1):
        folder = f"/sys/bus/pci/devices/0000:00:04.{function}"
        files |= {f"{folder}/vendor": "0x1ae0", f"{folder}/device": "0x0076", f"{folder}/class": "0xff0000"}
    (chip, *others) = GoogleAccelerators(changed("google/v6e-4", tmp_path, files=files)).list_devices()
    assert (chip.model, chip.memory_bytes) == ("TPU7x", 192 * GIB)
    assert [one.model for one in others] == ["TPU v6e"] * 3


def test_a_container_with_nodes_and_no_bus_knows_its_chips_by_the_variables(tmp_path: Path) -> None:
    def no_bus(index: dict[str, Any]) -> None:
        index["links"] = {}

    told = changed("google/v6e-4", tmp_path, index=no_bus)
    import shutil

    shutil.rmtree(told.folder / "files" / "sys")
    devices = GoogleAccelerators(told).list_devices()
    assert [(one.model, one.extra_info["node"]) for one in devices][:2] == [
        ("TPU v6e", "/dev/vfio/0"),
        ("TPU v6e", "/dev/vfio/1"),
    ]


def test_vfio_nodes_of_other_devices_are_no_tpus(tmp_path: Path) -> None:
    def passed_through(index: dict[str, Any]) -> None:
        index["variables"] = {}
        index["folders"] = {"/dev/vfio": ["11", "12", "vfio"]}

    told = changed("groq/groqnode", tmp_path, index=passed_through)
    assert GoogleAccelerators(told).list_devices() == ()


def test_variables_without_a_chip_are_said(tmp_path: Path) -> None:
    told = changed(
        "groq/groqnode", tmp_path, index=lambda one: one.update(variables={"TPU_ACCELERATOR_TYPE": "v4-8"})
    )
    facts = GoogleAccelerators(told).facts()
    assert facts.state == "unknown"
    assert "TPU_ACCELERATOR_TYPE is set" in facts.reason


def test_an_edge_tpu_is_shown_by_the_bus_alone() -> None:
    inventory = detect(machine("google/coral"))
    assert not [one for one in inventory.accelerators if one.vendor == "Google"]
    assert [(one.name.endswith("Coral Edge TPU"), one.kind) for one in inventory.on_bus or ()] == [(True, "tpu")]


def test_names_of_frameworks() -> None:
    backend = GoogleAccelerators(machine("google/v6e-4"))
    names = [backend.get_framework_device_string(3, name) for name in ("pytorch", "jax", "tensorflow")]
    assert names == ["xla:3", "tpu:3", "TPU:3"]
    with pytest.raises(UsageError, match="'onnxruntime' has no name"):
        backend.get_framework_device_string(0, "onnxruntime")


@pytest.mark.parametrize("border", ["|", "│"])
def test_both_tables_of_tpu_info_are_read(border: str) -> None:
    row = f"{border} 0 {border} 10.00 GiB / 31.25 GiB {border}  12.50% {border}"
    assert read_usage(row) == [(10 * GIB, round(31.25 * GIB), 12.5)]


@pytest.mark.parametrize(
    "row", ["| 0 | 40.00 GiB / 31.25 GiB | 1.00% |", "| 0 | 1.0.0 GiB / 2 GiB | 1.00% |", "|1 GiB / 2 GiB | 101% |"]
)
def test_rows_that_cannot_be_are_left_out(row: str) -> None:
    assert read_usage(row) == []


def test_every_generation_has_a_name_of_its_own() -> None:
    assert len({one["name"] for one in generations()}) == len(generations()) == 7
    assert len({(one["device"], one.get("subsystem")) for one in generations()}) == 7
