"""Vendors found by PCI id, driver and node: what keeps a device from use, and what a broken tool changes.

All figures of the recorded machines are in their `inventory.json` (test_recorded_machines.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recorded_machines import changed, machine

from hardware.inventory.vendors import registered_vendors
from hardware.inventory.vendors._node_vendor import _TABLE as TABLE
from hardware.inventory.vendors._node_vendor import NodeAccelerators, data_file


def vendor(name: str, told: Any = None) -> Any:
    return registered_vendors().found[name.partition("/")[0]](told or machine(name))


@pytest.mark.parametrize(
    ("name", "state", "words"),
    [
        ("huawei/ascend-910b-x2", "expected", []),
        ("aws/trn1-2xlarge", "expected", []),
        ("habana/gaudi2-x2", "expected", []),
        ("habana/gaudi3-denied", "present but unusable", ["can't be opened", "accel* doesn't exist", "habana.ai"]),
        ("tenstorrent/n300", "expected", []),
        ("rebellions/atom-x2", "present but unusable", ["pip install rebel-compiler"]),
        ("xdna/strix-laptop", "present but unusable", ["onnxruntime-vitisai"]),
        ("xdna/phoenix-without-driver", "present but unusable", ["load the kernel module amdxdna"]),
    ],
)  # fmt: skip
def test_facts_say_what_is_missing(name: str, state: str, words: list[str]) -> None:
    facts = vendor(name).facts()
    assert facts.state == state
    assert bool(facts.reason) is bool(words)
    assert [word for word in words if word not in facts.reason] == []


def test_devices_are_numbered_as_their_nodes_and_metrics_are_of_the_same_device() -> None:
    gaudi = vendor("habana/gaudi2-x2")
    assert [one.extra_info["pci_address"] for one in gaudi.list_devices()] == ["0000:33:00.0", "0000:19:00.0"]
    assert gaudi.get_framework_device_string(1) == "hpu:1"
    assert (gaudi.get_temperature(1), gaudi.get_utilization(1)) == (61.0, {"compute": 97.0, "memory": None})
    ascend = vendor("huawei/ascend-910b-x2")
    assert ascend.list_devices()[0].extra_info["pci_address"] == "0000:c2:00.0", "as npu-smi numbers them"
    assert ascend.get_memory_usage(1)["used"] == 60211 * 2**20


def test_two_chips_of_an_npu_are_two_devices_with_their_own_nodes(tmp_path: Path) -> None:
    copy = changed("huawei/ascend-910b-x2", tmp_path)
    next((copy.folder / "commands").iterdir()).write_text(
        "| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|\n"
        "| Chip  Phy-ID              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |\n"
        "| 0     Ascend910           | OK            | 178.7       37                0    / 0             |\n"
        "| 0     0                   | 0000:C2:00.0  | 0           0    / 0          3419 / 65536         |\n"
        "| 0     Ascend910           | OK            | -           36                0    / 0             |\n"
        "| 1     1                   | 0000:C1:00.0  | 12          0    / 0          3196 / 65536         |\n"
    )
    found = vendor("huawei", copy)
    nodes = [(one.model, one.extra_info["device_node"]) for one in found.list_devices()]
    assert nodes == [("Ascend 910", "/dev/davinci0"), ("Ascend 910", "/dev/davinci1")]
    assert (found.get_power_usage(1), found.get_temperature(1)) == (None, 36.0)


def test_a_driver_whose_entries_have_no_parent_names_the_address_in_a_file(tmp_path: Path) -> None:
    def unlinked(index: dict[str, Any]) -> None:
        index["links"] = {path: link for path, link in index["links"].items() if "/class/" not in path}
        index["commands"] = []

    places = {f"/sys/class/accel/accel{n}/device/pci_addr": f"0000:{bus}:00.0\n" for n, bus in ((0, "33"), (1, "19"))}
    found = vendor("habana", changed("habana/gaudi2-x2", tmp_path, index=unlinked, files=places))
    assert [one.extra_info["pci_address"] for one in found.list_devices()] == ["0000:33:00.0", "0000:19:00.0"]


@pytest.mark.parametrize(
    "output", ["", "garbage", "|" * 500, '[{"bdf": 7}, 3]', "0000:33:00.0, x, , , -1, nan, 900, -400, 1e99"]
)
def test_without_a_usable_tool_the_driver_still_lists_the_devices(output: str, tmp_path: Path) -> None:
    for number, name in enumerate(
        ("huawei/ascend-910b-x2", "aws/trn1-2xlarge", "habana/gaudi2-x2", "rebellions/atom-x2")
    ):
        copy = changed(name, tmp_path / str(number))
        next((copy.folder / "commands").iterdir()).write_text(output)
        found = vendor(name, copy)
        assert [one.index for one in found.list_devices()] == list(range(len(vendor(name).list_devices())))
        assert found.get_temperature(0) is None
        assert found.reading(0, "memory").reason


def test_the_table_names_a_source_for_each_vendor_that_has_a_file() -> None:
    kinds = {name for name, one in registered_vendors().found.items() if issubclass(one, NodeAccelerators)}
    table = data_file(TABLE)
    assert set(table) == kinds
    assert all(entry["sources"] and all("http" in one for one in entry["sources"]) for entry in table.values())
