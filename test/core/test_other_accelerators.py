"""Apple, Google, Groq, Cerebras and Qualcomm: what keeps a device from use, and what isn't mistaken for one.

All figures of the recorded machines are in test_recorded_machines.py.
"""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_machines import Counted, changed, machine

from hardware.detect import detect
from hardware.errors import UsageError
from hardware.inventory.vendors import _pci
from hardware.inventory.vendors._lazy_library import Packages
from hardware.inventory.vendors.apple import AppleAccelerators
from hardware.inventory.vendors.cerebras import CerebrasAccelerators, ClusterConfig, read_cluster
from hardware.inventory.vendors.google import GoogleAccelerators, generations, read_usage
from hardware.inventory.vendors.groq import GroqAccelerators
from hardware.inventory.vendors.qualcomm import QualcommAccelerators
from hardware.inventory.vendors.vendor import DriverState, LibraryState
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
        (card, 0, "pytorch", "No framework known here names one"),
        (wafer, 0, "pytorch", "No framework known here names one"),
    ):
        with pytest.raises(UsageError, match=words):
            backend.get_framework_device_string(index, framework)


def test_reasons_say_what_keeps_a_device_from_use(tmp_path):
    mac = AppleAccelerators(machine("apple/m3-max"))
    assert "superuser" in mac.told(0, "power").reason
    assert "own" in mac.told(1, "memory").reason
    idle = GoogleAccelerators(machine("google/v5e-8"))
    assert "only while a program computes" in idle.told(0, "memory").reason
    assert "nothing known here tells" in GroqAccelerators(machine("groq/groqnode")).told(0, "power").reason
    without = changed("apple/m3-max", tmp_path / "mac", index=lambda index: index.update(commands=[]))
    kernel = {"folders": {"/dev": ["null"]}, "nodes": {}}
    no_driver = changed("qualcomm/dragon-q6a", tmp_path / "board", index=lambda index: index.update(kernel))
    processor = {"provider": "QNNExecutionProvider", "kind": "CPU", "vendor": "AMD", "name": "", "version": "0.1.0"}
    offers = {"onnxruntime": {"devices": {"value": [processor]}}}
    only_cpu = changed("qualcomm/dragon-q6a", tmp_path / "cpu", libraries=offers)
    for backend, state, words in (
        (AppleAccelerators(machine("apple/intel-mac")), "hardware absent", ["AMD Radeon Pro 5500M"]),
        (AppleAccelerators(without), "unknown", ["system_profiler"]),
        (GoogleAccelerators(machine("google/v4-8")), "present but unusable", ["/dev/accel0", "pip install libtpu"]),
        (GroqAccelerators(machine("groq/card-without-driver")), "present but unusable", ["another one"]),
        (CerebrasAccelerators(machine("cerebras/user-node")), "unknown",
         ["CS-3 with a WSE-3 is configured, 2 namespaces", "isn't reached"]),
        (CerebrasAccelerators(machine("cerebras/user-node-without-sdk")), "library missing",
         ["CS-2 with a WSE-2 is configured, 1 namespace;", "pip install cerebras_sdk"]),
        (QualcommAccelerators(machine("qualcomm/dragon-q6a-denied")), "present but unusable",
         ["/dev/fastrpc-cdsp", "pip install onnxruntime-qnn"]),
        (QualcommAccelerators(no_driver), "present but unusable", ["fastrpc"]),
        (QualcommAccelerators(only_cpu), "present but unusable", ["offers no NPU"]),
    ):  # fmt: skip
        facts = backend.facts()
        assert facts.state == state, facts
        assert [word for word in words if word not in facts.reason] == []
    assert QualcommAccelerators(no_driver).facts().driver is DriverState.MISSING
    assert QualcommAccelerators(only_cpu).facts().library is LibraryState.MISSING
    for state in ("offline", "crashed"):
        file = {"/sys/class/remoteproc/remoteproc1/state": state}
        facts = QualcommAccelerators(changed("qualcomm/dragon-q6a", tmp_path / state, files=file)).facts()
        assert facts.state == "present but unusable"
        assert f"the compute DSP is {state}" in facts.reason


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


def test_apple_silicon_under_linux_is_present_and_unusable(tmp_path):
    compatible = {"/proc/device-tree/compatible": "apple,j293\0apple,arm-platform\0"}
    found = AppleAccelerators(changed("other/rock-5b", tmp_path, files=compatible))
    assert found.facts().state == "present but unusable"


def test_generations_of_tpus_are_told_apart(tmp_path):
    assert len({one["name"] for one in generations()}) == len(generations()) == 7
    assert len({(one["device"], one.get("subsystem")) for one in generations()}) == 7
    for subsystem, name, size in (("0x004e", "TPU v2", 16), ("0x004f", "TPU v3", 32)):
        files: dict[str, str | None] = {}
        for number in range(4, 8):
            folder = f"/sys/bus/pci/devices/0000:00:{number:02x}.0"
            files |= {f"{folder}/device": "0x0027", f"{folder}/subsystem_device": subsystem}
        devices = GoogleAccelerators(changed("google/v4-8", tmp_path / name, files=files)).list_devices()
        assert {(one.model, one.memory_bytes) for one in devices} == {(name, size * GIB)}
    files = {}
    for function in (0, 1):  # two functions of one chip
        folder = f"/sys/bus/pci/devices/0000:00:04.{function}"
        files |= {f"{folder}/vendor": "0x1ae0", f"{folder}/device": "0x0076", f"{folder}/class": "0xff0000"}
    (chip, *others) = GoogleAccelerators(changed("google/v6e-4", tmp_path / "7x", files=files)).list_devices()
    assert (chip.model, chip.memory_bytes) == ("TPU7x", 192 * GIB)
    assert [one.model for one in others] == ["TPU v6e"] * 3


def test_other_devices_are_not_taken_for_tpus(tmp_path):
    folder = "/sys/bus/pci/devices/0000:00:04.0"
    network = changed(
        "google/v4-8", tmp_path / "a", files={f"{folder}/device": "0x0042", f"{folder}/class": "0x020000"}
    )
    assert len(GoogleAccelerators(network).list_devices()) == 3
    nodes = {"variables": {}, "folders": {"/dev/vfio": ["11", "12", "vfio"]}}
    passed = changed("groq/groqnode", tmp_path / "b", index=lambda index: index.update(nodes))
    assert GoogleAccelerators(passed).list_devices() == ()
    variables = {"variables": {"TPU_ACCELERATOR_TYPE": "v4-8"}}
    facts = GoogleAccelerators(
        changed("groq/groqnode", tmp_path / "c", index=lambda index: index.update(variables))
    ).facts()
    assert facts.state == "unknown"
    assert "TPU_ACCELERATOR_TYPE is set" in facts.reason


def test_a_container_without_a_bus_knows_its_tpus_from_nodes_and_variables(tmp_path):
    inside = changed("google/v6e-4", tmp_path, index=lambda index: index.update(links={}))
    shutil.rmtree(inside.folder / "files" / "sys")
    devices = GoogleAccelerators(inside).list_devices()
    assert [(one.model, one.extra_info["node"]) for one in devices][:2] == [
        ("TPU v6e", "/dev/vfio/0"),
        ("TPU v6e", "/dev/vfio/1"),
    ]


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
    assert "another one" in Packages().ask("module", "groq", "runner").reason
    (tmp_path / "groq" / "runner").mkdir()
    assert Packages().ask("module", "groq", "runner").value is True
    assert "no Python module" in Packages().ask("module", "no_such_module").reason
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


def test_devices_without_a_vendors_file_are_listed_with_names_and_kinds(tmp_path):
    told = list_text(detect(machine("other/gaudi2-fpga-egpu")))
    assert told.count("Habana Labs Gaudi2 AI Training Accelerator (npu)") == 3
    assert "Xilinx (AMD) accelerator card (fpga)" in told
    board = list_text(detect(machine("other/rock-5b")))
    assert "Rockchip NPU (Rockchip's kernel)" in board
    assert "Hailo-8 AI Processor (npu)" in board
    place = "/sys/bus/platform/drivers/RKNPU/fdab0000.npu/uevent"
    other = changed("other/rock-5b", tmp_path, files={place: "DRIVER=RKNPU\nOF_COMPATIBLE_0=acme,toaster"})
    assert detect(other).on_chip == (), "the driver drives something else"


def test_a_device_behind_thunderbolt_is_external():
    found = {one.address: one for one in _pci.pci_accelerators(machine("other/gaudi2-fpga-egpu")) or ()}
    addresses = ("0000:04:00.0", "0000:00:02.0", "0000:19:00.0")
    assert [found[one].external for one in addresses] == [True, False, None]
    assert "0000:65:00.0" in found
    assert "0000:66:00.0" not in found, "a serial port of an FPGA"
    nvidia = next(one for one in detect(machine("other/gaudi2-fpga-egpu")).accelerators if one.vendor == "NVIDIA")
    assert nvidia.extra_info["external"] is True


def test_the_generation_of_pcie_follows_from_the_speed_of_a_lane(tmp_path):
    address = "0000:65:00.0"
    wanted = {"2.5 GT/s PCIe": 1, "5 GT/s": 2, "8.0 GT/s PCIe": 3, "32.0 GT/s PCIe": 5, "Unknown": None, "": None}
    for speed, generation in wanted.items():
        file = {f"/sys/bus/pci/devices/{address}/max_link_speed": speed}
        assert _pci.pcie_generation(changed("groq/card-without-driver", tmp_path, files=file), address) == generation
    assert _pci.bound_driver(machine("groq/groqnode"), "0000:21:00.0") == "groq"
    assert _pci.bound_driver(machine("groq/card-without-driver"), address) == ""


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
