"""Apple, Google, Groq, Cerebras and Qualcomm: what keeps a device from use, and what isn't mistaken for one.

All figures of the recorded machines are in test_recorded_machines.py.
Vendors found by PCI id, driver and node: what keeps a device from use, and what a broken tool changes.

All figures of the recorded machines are in their `inventory.json` (test_recorded_machines.py).
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_machines import Counted, changed, machine

from hardware.detection import detect
from hardware.errors import UsageError
from hardware.inventory.vendors import _pci, registered_vendors
from hardware.inventory.vendors._lazy_library import Packages
from hardware.inventory.vendors._node_vendor import _TABLE as TABLE
from hardware.inventory.vendors._node_vendor import NodeAccelerators, data_file
from hardware.inventory.vendors.amd import AmdAccelerators
from hardware.inventory.vendors.apple import AppleAccelerators
from hardware.inventory.vendors.cerebras import CerebrasAccelerators, ClusterConfig, read_cluster
from hardware.inventory.vendors.google import GoogleAccelerators, generations, read_usage
from hardware.inventory.vendors.groq import GroqAccelerators
from hardware.inventory.vendors.intel import IntelAccelerators
from hardware.inventory.vendors.qualcomm import QualcommAccelerators
from hardware.inventory_text import list_text
from hardware.machine import LiveMachine
from hardware.recording import MachineRecorder
from hardware.testing.contract.machines import EmptyMachine

GIB = 2**30
CONFIG: dict[str, Any] = {
    "currentContext": "here",
    "contexts": [{"name": "here", "cluster": "big"}],
    "clusters": [
        {
            "name": "big",
            "server": "secret.example.com:443",
            "authority": "secret-authority",
            "fabricType": "cs3",
            "namespaces": [{"name": "secret-space", "certificateAuthorityData": "U0VDUkVU"}],
        }
    ],
}


def test_frameworks_have_their_own_names_for_a_device():
    mac, tpu = AppleAccelerators(machine("apple/m3-max")), GoogleAccelerators(machine("google/v6e-4"))
    board, card = QualcommAccelerators(machine("qualcomm/dragon-q6a")), GroqAccelerators(machine("groq/groqnode"))
    wafer = CerebrasAccelerators(machine("cerebras/user-node"))
    for backend, index, names in (
        (mac, 0, {"pytorch": "mps", "jax": "METAL:0"}),
        (mac, 1, {"onnxruntime": "CoreMLExecutionProvider"}),
        (tpu, 3, {"pytorch": "xla:3", "jax": "tpu:3", "tensorflow": "TPU:3"}),
        (board, 0, {"onnxruntime": "npu:0"}),
        (board, 1, {"onnxruntime": "gpu:0"}),
    ):
        assert {one: backend.get_framework_device_string(index, one) for one in names} == names
    for backend, index, framework, words in (
        (mac, 1, "pytorch", "Core ML"),
        (mac, 0, "openvino", "Known: pytorch, tensorflow, jax, onnxruntime"),
        (tpu, 0, "onnxruntime", "'onnxruntime' has no name"),
        (board, 0, "pytorch", "onnxruntime"),
        (card, 0, "pytorch", "No known framework addresses it"),
        (wafer, 0, "pytorch", "No known framework addresses it"),
    ):
        with pytest.raises(UsageError, match=words):
            backend.get_framework_device_string(index, framework)


def test_windows_and_macos_list_gpus_whose_library_is_absent(tmp_path: Path) -> None:
    found = {one.model: one for one in detect(machine("machines/windows-desktop")).accelerators}
    radeon, broken = found["AMD Radeon RX 7900 XTX"], found["Intel(R) Arc(TM) A380 Graphics"]
    assert (radeon.index, radeon.driver_version, radeon.memory_bytes) == (0, "32.0.12033.1030", None)
    assert (broken.seen_by, broken.extra_info["reason"]) == ("bus", "the Windows device manager reports a problem")
    assert len(found) == 3, "not Microsoft's adapter"
    amd = AmdAccelerators(machine("machines/windows-desktop"))
    assert (amd.facts().state, amd.get_framework_device_string(0)) == ("expected", "cuda:0")
    assert (amd.get_temperature(0), "no known source" in amd.reading(0, "temperature").reason) == (None, True)
    mac = AmdAccelerators(changed("apple/intel-mac", tmp_path))
    profile = tmp_path / "machine" / "commands" / "00-system_profiler.txt"
    first, _, last = profile.read_text().rpartition("spdisplays_gpu")
    profile.write_text(f"{first}spdisplays_egpu{last}")
    (card,) = mac.list_devices()
    assert (card.memory_bytes, card.bus_type, card.extra_info["external"]) == (4 * GIB, "pcie", True)
    with pytest.raises(UsageError, match="has no name for AMD GPUs on macOS"):
        mac.get_framework_device_string(0)
    (graphics,) = IntelAccelerators(machine("apple/intel-mac")).list_devices()
    assert (graphics.memory_bytes, graphics.memory_type) == (None, "unified")
    assert "external" not in graphics.extra_info


def test_a_configured_cluster_is_listed_without_an_index() -> None:
    (system,) = CerebrasAccelerators(machine("cerebras/user-node")).list_devices()
    assert (system.model, system.index) == ("Cerebras CS-3 with a WSE-3", None)
    assert "CS-3 with a WSE-3 (memory unknown), configured" in list_text(detect(machine("cerebras/user-node")))


def test_reasons_say_what_keeps_a_device_from_use():
    mac = AppleAccelerators(machine("apple/m3-max"))
    assert "superuser" in mac.reading(0, "power").reason
    assert "own" in mac.reading(1, "memory").reason
    idle = GoogleAccelerators(machine("google/v5e-8"))
    assert "only while a program runs" in idle.reading(0, "memory").reason
    assert "no known source" in GroqAccelerators(machine("groq/groqnode")).reading(0, "power").reason
    for backend, state, words in (
        (AppleAccelerators(machine("apple/intel-mac")), "hardware absent", ["AMD Radeon Pro 5500M"]),
        (GoogleAccelerators(machine("google/v4-8")), "present but unusable", ["/dev/accel0", "pip install libtpu"]),
        (GroqAccelerators(machine("groq/card-without-driver")), "present but unusable", ["another one"]),
        (CerebrasAccelerators(machine("cerebras/user-node")), "unknown",
         ["CS-3 with a WSE-3 is configured, 2 namespaces", "is not contacted"]),
        (CerebrasAccelerators(machine("cerebras/user-node-without-sdk")), "library missing",
         ["CS-2 with a WSE-2 is configured, 1 namespace;", "pip install cerebras_sdk"]),
        (QualcommAccelerators(machine("qualcomm/dragon-q6a-denied")), "present but unusable",
         ["/dev/fastrpc-cdsp", "pip install onnxruntime-qnn"]),
    ):  # fmt: skip
        facts = backend.facts()
        assert facts.state == state, facts
        assert [word for word in words if word not in facts.reason] == []


def test_no_program_is_started_without_a_sign_of_the_vendor(tmp_path):
    for kind in (AppleAccelerators, QualcommAccelerators):
        empty = EmptyMachine()
        assert kind(empty).facts().state == "hardware absent"
        assert empty.started == []
    assert "Linux" in AppleAccelerators(EmptyMachine()).facts().reason

    def intel_laptop(index: dict[str, Any]) -> None:
        index["host"]["machine"] = "AMD64"

    counted = Counted(changed("qualcomm/snapdragon-x-elite", tmp_path, index=intel_laptop))
    assert QualcommAccelerators(counted.told).facts().state == "hardware absent"
    assert counted.programs == []
    mac = Counted(machine("apple/m3-max"))
    backend = AppleAccelerators(mac.told)
    backend.facts()
    backend.list_devices()
    assert sorted(words[0] for words in mac.programs) == ["ioreg", "ioreg", "system_profiler"], "each runs once"


def test_memory_that_the_driver_uses_is_not_that_of_apples_gpu(tmp_path):
    without = changed("apple/m3-max", tmp_path)
    registry = sorted((without.folder / "commands").glob("*ioreg*"))[-1]
    registry.write_text(registry.read_text().replace(',"In use system memory"=1221361664', ""))
    assert AppleAccelerators(without).get_memory_usage(0) is None


def test_each_generation_of_tpus_has_its_own_name_and_numbers():
    assert len({one["name"] for one in generations()}) == len(generations()) == 7
    assert len({(one["device"], one.get("subsystem")) for one in generations()}) == 7


def test_tables_of_tpu_info_are_read_without_impossible_rows():
    for border in "|│":
        row = f"{border} 0 {border} 10.00 GiB / 31.25 GiB {border}  12.50% {border}"
        assert read_usage(row) == [(10 * GIB, round(31.25 * GIB), 12.5)]
    for row in (
        "| 0 | 40.00 GiB / 31.25 GiB | 1.00% |",
        "| 0 | 1.0.0 GiB / 2 GiB | 1.00% |",
        "|1 GiB / 2 GiB | 101% |",
    ):
        assert read_usage(row) == [], row


def test_a_module_of_the_same_name_is_not_taken_for_the_sdk(tmp_path, monkeypatch):
    (tmp_path / "groq").mkdir()
    (tmp_path / "groq" / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "a different package" in Packages().ask("module", "groq", "runner").reason
    (tmp_path / "groq" / "runner").mkdir()
    assert Packages().ask("module", "groq", "runner").value is True
    assert "no_such_module not found" in Packages().ask("module", "no_such_module").reason
    assert Packages().ask("version", "pytest").value == pytest.__version__


def test_a_cluster_configuration_is_reduced_to_what_names_no_one(tmp_path, monkeypatch):
    file = tmp_path / "config"
    file.write_text(json.dumps(CONFIG))
    monkeypatch.setenv("CSCONFIG_PATH", str(file))
    assert ClusterConfig().ask("cluster").value == {"fabric": "cs3", "namespaces": 1}
    recorder = MachineRecorder(LiveMachine())
    CerebrasAccelerators(recorder).facts()
    recorder.write(tmp_path / "kept")
    kept = "".join(one.read_text() for one in (tmp_path / "kept").rglob("*") if one.is_file())
    assert "cs3" in kept
    assert "secret" not in kept
    assert str(file) not in kept
    older = json.loads(json.dumps(CONFIG))
    del older["clusters"][0]["fabricType"]
    assert read_cluster(json.dumps(older), "it").value == {"fabric": "cs2", "namespaces": 1}


@settings(max_examples=40)
@given(
    st.text()
    | st.recursive(
        st.none() | st.integers() | st.text(),
        lambda one: st.lists(one) | st.dictionaries(st.sampled_from([*CONFIG, "name", "cluster"]), one),
    ).map(json.dumps)
)
def test_any_text_is_a_cluster_configuration_or_a_reason(text):
    found = read_cluster(text, "it")
    assert (found.value is None) is bool(found.reason)


def test_devices_without_a_vendors_file_are_listed_with_names_and_kinds():
    told = list_text(detect(machine("other/gaudi2-fpga-egpu")), everything=True)
    assert "Xilinx (AMD) accelerator card (fpga)" in told
    assert "3 × Habana Labs Gaudi2 AI Training Accelerator (memory unknown each)" in list_text(
        detect(machine("other/gaudi2-fpga-egpu"))
    ), "its vendor has a file"
    board = list_text(detect(machine("other/rock-5b")))
    assert "Rockchip NPU (Rockchip's kernel)" in board
    assert "Hailo-8 AI Processor (npu)" in board


def test_a_device_behind_thunderbolt_is_external():
    found = {one.address: one for one in _pci.pci_accelerators(machine("other/gaudi2-fpga-egpu")) or ()}
    addresses = ("0000:04:00.0", "0000:00:02.0", "0000:19:00.0")
    assert [found[one].external for one in addresses] == [True, False, None]
    assert "0000:65:00.0" in found
    assert "0000:66:00.0" not in found, "a serial port of an FPGA"
    nvidia = next(one for one in detect(machine("other/gaudi2-fpga-egpu")).accelerators if one.vendor == "NVIDIA")
    assert nvidia.extra_info["external"] is True


def test_names_on_the_bus_come_from_the_id_database(tmp_path, monkeypatch):
    device = tmp_path / "sys" / "bus" / "pci" / "devices" / "0000:01:00.0"
    device.mkdir(parents=True)
    for name, text in (("vendor", "0x1002"), ("device", "0x744c"), ("class", "0x030000")):
        (device / name).write_text(text)
    database = tmp_path / "pci.ids"
    database.write_text(
        "# comment\n1002  AMD/ATI\n\t744b  Other\n\t744c  Navi 31\n\t\t1002 0e3b  Board\n"
        "10de  NVIDIA\n\t744c  Wrong vendor\nC 03  Display controller\n\t744c  Wrong section\n"
    )
    for databases, wanted in (([database], "AMD/ATI Navi 31"), ([], "")):
        monkeypatch.setattr(_pci, "ID_DATABASES", databases)
        (found,) = _pci.pci_accelerators(LiveMachine(tmp_path)) or ()
        assert found.name == wanted


def test_each_device_of_the_table_is_listed_once_with_a_known_source():
    text = Path(_pci.__file__).with_name("bus_devices.toml").read_text(encoding="utf-8")
    devices = tomllib.loads(text)["device"]
    numbers = [(one["vendor"], one.get("device")) for one in devices]
    assert len(set(numbers)) == len(numbers)
    named = set(re.findall(r"^#   (\S+) ", text, re.MULTILINE))
    assert {one["source"] for one in devices} <= named


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
