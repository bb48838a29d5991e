"""Snapdragons: what is usable, what is denied, and ONNX Runtime's list that names a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recorded_machines import Counted, changed, machine

from hardware.detection import detect
from hardware.errors import UsageError
from hardware.inventory.vendors.qualcomm import QualcommAccelerators
from hardware.inventory.vendors.vendor import DriverState, LibraryState
from hardware.testing.contract.machines import EmptyMachine


def test_a_snapdragon_under_windows() -> None:
    backend = QualcommAccelerators(machine("qualcomm/snapdragon-x-elite"))
    gpu, npu = backend.list_devices()
    assert (gpu.device_type, gpu.model, gpu.driver_version) == (
        "gpu",
        "Qualcomm(R) Adreno(TM) X1-85 GPU",
        "31.0.133.1",
    )
    assert npu.device_type == "npu"
    assert npu.model.endswith("Qualcomm(R) Hexagon(TM) NPU")
    assert backend.facts().state == "expected"
    assert all("Microsoft" not in one.model for one in backend.list_devices())


def test_a_board_under_linux() -> None:
    backend = QualcommAccelerators(machine("qualcomm/dragon-q6a"))
    npu, gpu = backend.list_devices()
    assert npu.model == "Hexagon NPU of QCS6490"
    assert (npu.extra_info["soc_id"], npu.extra_info["node"]) == (497, "/dev/fastrpc-cdsp")
    assert (gpu.model, gpu.device_type, gpu.index) == ("Adreno 635", "gpu", 1)
    assert backend.facts().state == "expected"


def test_a_node_that_this_user_may_not_open_is_denied() -> None:
    backend = QualcommAccelerators(machine("qualcomm/dragon-q6a-denied"))
    facts = backend.facts()
    assert (facts.driver, facts.library, facts.state) == (
        DriverState.DENIED,
        LibraryState.MISSING,
        "present but unusable",
    )
    assert "/dev/fastrpc-cdsp" in facts.reason
    assert "pip install onnxruntime-qnn" in facts.reason
    npu = next(one for one in backend.list_devices() if one.device_type == "npu")
    assert npu.index is None


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("/sys/class/remoteproc/remoteproc1/state", "offline", "the compute DSP is offline"),
        ("/sys/class/remoteproc/remoteproc1/state", "crashed", "the compute DSP is crashed"),
    ],
)
def test_a_dsp_that_does_not_run_is_unusable(tmp_path: Path, file: str, text: str, reason: str) -> None:
    facts = QualcommAccelerators(changed("qualcomm/dragon-q6a", tmp_path, files={file: text})).facts()
    assert facts.state == "present but unusable"
    assert reason in facts.reason


def test_a_kernel_without_fastrpc_has_no_driver(tmp_path: Path) -> None:
    told = changed(
        "qualcomm/dragon-q6a", tmp_path, index=lambda index: index.update(folders={"/dev": ["null"]}, nodes={})
    )
    facts = QualcommAccelerators(told).facts()
    assert facts.driver is DriverState.MISSING
    assert "fastrpc" in facts.reason


def test_a_provider_that_offers_a_cpu_is_no_npu(tmp_path: Path) -> None:
    only_cpu = {"provider": "QNNExecutionProvider", "kind": "CPU", "vendor": "AMD", "name": "", "version": "0.1.0"}
    told = changed("qualcomm/dragon-q6a", tmp_path, libraries={"onnxruntime": {"devices": {"value": [only_cpu]}}})
    facts = QualcommAccelerators(told).facts()
    assert facts.library is LibraryState.MISSING
    assert "offers no NPU" in facts.reason


def test_a_phone_with_qualcomms_kernel_tells_its_gpu() -> None:
    backend = QualcommAccelerators(machine("qualcomm/android-kgsl"))
    npu, gpu = backend.list_devices()
    assert (npu.extra_info["node"], gpu.model) == ("/dev/adsprpc-smd", "Adreno 740v2")
    assert backend.get_temperature(1) == 41.3
    assert backend.get_utilization(1) == {"compute": 12.0}
    assert backend.get_temperature(0) is None


def test_cloud_ai_cards_are_shown_by_the_bus_alone() -> None:
    inventory = detect(machine("qualcomm/cloud-ai-100"))
    assert [(one.name, one.kind) for one in inventory.on_bus or ()] == [("Qualcomm Cloud AI 100", "npu")] * 2
    assert not [one for one in inventory.accelerators if one.vendor == "Qualcomm"]


def test_nothing_is_started_without_a_sign(tmp_path: Path) -> None:
    empty = EmptyMachine()
    assert QualcommAccelerators(empty).facts().state == "hardware absent"
    assert empty.started == []

    def intel_laptop(index: dict[str, Any]) -> None:
        index["host"]["machine"] = "AMD64"

    counted = Counted(changed("qualcomm/snapdragon-x-elite", tmp_path, index=intel_laptop))
    assert QualcommAccelerators(counted.told).facts().state == "hardware absent"
    assert counted.programs == []


def test_names_of_frameworks() -> None:
    board = QualcommAccelerators(machine("qualcomm/dragon-q6a"))
    assert board.get_framework_device_string(0, "onnxruntime") == "npu:0"
    assert board.get_framework_device_string(1, "onnxruntime") == "gpu:0"
    with pytest.raises(UsageError, match="onnxruntime"):
        board.get_framework_device_string(0)
