"""Torch's build, the targets that are expected on a machine, the probe, and the list that a user reads.

When the detection of hardware fails, torch is asked for devices, and the failure is reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner
from recorded_machines import XEON, computer

from hardware import basic_detection, known_answer, recording
from hardware.backends.factory import known_targets
from hardware.basic_detection import detect_somehow
from hardware.command_line import run_command_line
from hardware.detection import HardwareInfo, detect, probe, targets
from hardware.errors import BackendUnavailable, UsageError
from hardware.expected_targets import expected_targets
from hardware.inventory.target_status import cards_of
from hardware.inventory.vendors._pci import PciDevice
from hardware.inventory.vendors.vendor import AcceleratorInfo, DriverState, HardwareState, LibraryState, VendorFacts
from hardware.inventory_text import list_text
from hardware.process import Ended
from hardware.software import TorchBuild, parse_torch_version
from hwcompat.cli.device_commands import devices_group as main
from hwcompat.cli.earlier_scripts import generation_main

GIB = 2**30
REPLAY = ("--replay", str(computer(XEON).folder))
H200 = AcceleratorInfo(vendor="NVIDIA", device_type="gpu", model="NVIDIA H200", index=0, memory_bytes=141 * GIB)
WORKING = VendorFacts(vendor="NVIDIA", hardware=HardwareState.PRESENT, driver=DriverState.OK, library=LibraryState.OK)
CUDA = TorchBuild(version="2.11.0+cu128", cuda="12.8")
ROCM = TorchBuild(version="2.11.0+rocm6.4", hip="6.4.1")
CPU = TorchBuild(version="2.13.0+cpu")


@pytest.fixture(scope="module")
def server() -> HardwareInfo:
    return detect(computer(XEON))


Machine = Callable[..., HardwareInfo]


@pytest.fixture
def machine(server: HardwareInfo) -> Machine:
    """The server with a build of torch and devices of NVIDIA."""

    def made(torch: TorchBuild, *devices: AcceleratorInfo, **other: Any) -> HardwareInfo:
        facts = (WORKING,) if devices else (replace(WORKING, hardware=HardwareState.ABSENT, reason="no driver"),)
        return replace(server, **{"torch": torch, "accelerators": devices, "vendors": facts, **other})

    return made


def status(inventory: HardwareInfo, name: str) -> Any:
    (found,) = expected_targets(inventory, [name])
    return found


def test_the_build_of_torch_is_read_from_its_text_and_never_run(tmp_path):
    path = tmp_path / "version.py"
    for text, kind, local in (
        ("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n", "cpu", "cpu"),
        ("__version__ = '2.11.0'\ncuda: Optional[str] = '12.8'\nhip = None\n", "cuda", ""),
        ("__version__ = '2.9.0+rocm6.4'\ncuda = None\nhip: Optional[str] = '6.4.1'\n", "rocm", "rocm6.4"),
        ("__version__ = '2.9.0+xpu'\ncuda = None\nhip = None\nxpu: Optional[str] = '20250302'\n", "xpu", "xpu"),
    ):
        path.write_text(text)
        build = parse_torch_version(path)
        assert (build.kind, build.local, build.reason) == (kind, local, "")
    for text in ("raise SystemExit(1)\n", "__version__ = \n", "\0"):
        path.write_text(text)
        assert parse_torch_version(path).kind == "none"
        assert parse_torch_version(path).reason


def test_every_known_target_has_a_status(server):
    found = targets(server)
    assert tuple(one.target for one in found) == known_targets()
    assert all(one.expected or one.reason for one in found)


def test_cuda_is_expected_with_the_right_build_and_a_device(machine, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")  # of this machine, not of the recorded one
    found = status(machine(CUDA, H200, replace(H200, index=1)), "cuda")
    assert found.expected
    assert (found.memory_bytes, found.device_name) == (141 * GIB, "2 × NVIDIA H200")
    hidden = replace(H200, extra_info={"hidden_by": "CUDA_VISIBLE_DEVICES"})
    assert status(machine(CUDA, H200, hidden), "cuda").expected
    small = replace(H200, index=2, memory_bytes=70 * GIB)
    several = machine(CUDA, hidden, replace(H200, index=1), small)
    assert [(one.index, one.memory_bytes) for one in cards_of(several, "NVIDIA")] == [(1, 141 * GIB), (2, 70 * GIB)]
    assert status(several, "cuda").memory_bytes == 70 * GIB
    assert cards_of(machine(CUDA, H200, replace(small, model="NVIDIA H100")), "NVIDIA") == ()  # fastest first
    for inventory, words in (
        (machine(CPU, H200), ["built for cpu"]),
        (machine(CUDA), ["no driver"]),
        (machine(CPU), ["built for cpu", "no driver"]),
        (machine(CUDA, hidden), ["CUDA_VISIBLE_DEVICES hides every device"]),
    ):
        reason = status(inventory, "cuda").reason
        assert [word for word in words if word not in reason] == []
    on_bus = status(machine(CUDA, replace(H200, index=None, seen_by="bus", memory_bytes=None)), "cuda")
    assert (on_bus.expected, on_bus.memory_bytes) == (False, None)


def test_amd_is_distinguished_from_nvidia_by_the_build_of_torch(machine):
    amd = PciDevice(address="0000:01:00.0", vendor_id=0x1002, device_id=0x744C, class_code=0x030000)
    inventory = machine(ROCM, on_bus=(amd,))
    assert status(inventory, "rocm").expected
    assert not status(inventory, "cuda").expected
    assert "built for rocm" in status(inventory, "cuda").reason
    assert not status(machine(CUDA, H200, on_bus=(amd,)), "rocm").expected
    for other in (replace(H200, vendor="AMD"), replace(H200, device_type="npu")):
        assert not status(machine(CUDA, other), "cuda").expected, other


def test_other_targets_need_their_package_or_system(machine, server):
    no_torch = status(machine(TorchBuild(reason="torch isn't installed: pip install torch")), "cpu")
    assert not no_torch.expected
    assert "pip install torch" in no_torch.reason
    limited = machine(CPU, memory=replace(server.memory, cgroup_limit_bytes=GIB))
    assert status(limited, "cpu").memory_bytes == GIB
    assert not status(machine(CPU, packages={"openvino": None}), "openvino").expected
    assert status(machine(CPU, packages={"openvino": "2026.4.1"}), "openvino").expected
    assert status(machine(CPU, host=replace(server.host, system="Darwin")), "mps").expected
    assert "macOS" in status(machine(CPU, host=replace(server.host, system="Linux")), "mps").reason
    assert "simulated" in status(machine(CPU), "simulated").reason


def test_a_probe_passes_only_with_the_right_numbers(monkeypatch):
    def crash() -> None:
        raise RuntimeError("CUDA error: device lost")

    def refuse() -> None:
        raise BackendUnavailable("cuda isn't usable", why="no driver")

    def probed(answer: Any, unavailable: str = "") -> Any:
        methods = {"unavailable": lambda self: unavailable, "known_answer": lambda self: answer()}
        monkeypatch.setattr("hardware.backends.factory.get_backend", lambda name: type("Backend", (), methods)())
        return probe("cpu")

    with pytest.raises(UsageError, match="cuda"):
        probe("cudda")
    for answer, ok in ((known_answer.expected, True), (lambda: (0.0,) * 3, False), (lambda: (np.nan,) * 3, False)):
        result = probed(answer)
        assert (result.ok, bool(result.reason), result.got is None) == (ok, not ok, False)
    assert "device lost" in probed(crash).reason
    assert "no driver" in probed(refuse).reason
    absent = probed(crash, unavailable="no device")
    assert (absent.ok, absent.reason, absent.got) == (False, "no device", None)


def test_the_known_answer_allows_for_half_precision_and_for_no_error():
    left, right = known_answer.question()
    half = np.tanh(left.astype(np.float16) @ right.astype(np.float16)).sum(axis=0)[:3]
    assert left.dtype == right.dtype == np.float32
    assert known_answer.agrees([float(value) for value in half])
    assert not known_answer.agrees([float(value) for value in (left @ right).sum(axis=0)[:3]])
    assert not known_answer.agrees([float(value) for value in np.tanh(right @ left).sum(axis=0)[:3]])


def test_the_list_fits_its_columns_and_names_every_target(machine):
    strange = machine(CUDA, replace(H200, model="NVIDIA \x1b[31mH200" + " long" * 30))
    short, text = list_text(strange), list_text(strange, everything=True)
    for shown, width in ((short, 100), (text, 80)):
        assert max(len(line) for line in shown.splitlines()) <= width
        assert "\x1b" not in shown
    assert set(known_targets()) <= set(re.findall(r"[\w:-]+", short))
    assert all(f"  {name} " in text for name in known_targets())
    for word in ("Make:", "Sockets:", "Boost frequency:", "Compute:", "PCIe generation:", "Driver version:"):
        assert word in text
    assert "\\|" in list_text(machine(CUDA, replace(H200, model="A|B")), "markdown")
    with pytest.raises(UsageError, match="markdown"):
        list_text(machine(CUDA), "markdwon")


def test_the_list_command_writes_each_format(tmp_path, capsys):
    result = CliRunner().invoke(main, ["list", "--format", "json", *REPLAY])
    assert result.exit_code == 0
    data = json.loads(result.output)
    schema = json.loads((Path(recording.__file__).parent / "schemas" / "inventory.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(data)
    assert [one["target"] for one in data["targets"]] == list(known_targets())
    path = tmp_path / "list.md"
    result = CliRunner().invoke(main, ["list", "--format", "markdown", "--output", str(path), *REPLAY])
    assert (result.exit_code, result.output) == (0, "")
    assert "| cpu | " in path.read_text()
    assert CliRunner().invoke(main, ["list", "--format", "xml"]).exit_code != 0
    arguments = ["list", "--output", str(tmp_path / "no" / "file"), *REPLAY]
    assert run_command_line(main, arguments, program="hwcompat devices") == 4
    assert capsys.readouterr().err.startswith("error: can't write")


SCHEMA = Path(recording.__file__).parent / "schemas" / "inventory.json"
FOUND = {
    "devices": [["NVIDIA", "NVIDIA H200", 0, 150 * 10**9]],
    "torch": {"version": "2.13.0+cu130", "cuda": "13.0", "hip": None, "xpu": None},
}


@pytest.fixture
def torch_child(monkeypatch):
    """Make the detection fail, and set how the child process that imports torch ends."""

    def fails():
        raise ValueError("a file of\nthe kernel has another form")

    def ends(returncode=0, stdout="", stderr=""):
        def run(_words, *, limit_s):
            assert 10 < limit_s <= 120
            return Ended(returncode=returncode, stdout=stdout, stderr=stderr, seconds=limit_s, limit_s=limit_s)

        monkeypatch.setattr(basic_detection, "run", run)

    monkeypatch.setattr(basic_detection, "detect", fails)
    return ends


def test_devices_come_from_torch_when_the_detection_fails(torch_child, capsys):
    torch_child(stdout=json.dumps(FOUND))
    found = detect_somehow()
    assert found.detection_failure.startswith("ValueError: a file of the kernel has another form")
    (device,) = found.accelerators
    assert (device.vendor, device.model, device.extra_info["told_by"]) == ("NVIDIA", "NVIDIA H200", "torch")
    expected = {one.target for one in targets(found) if one.expected}
    assert {"cpu", "cuda"} <= expected
    assert "rocm" not in expected
    jsonschema.validate(found.to_dict(), json.loads(SCHEMA.read_text()))
    assert generation_main(["--model", "bert", "--list"]) == 0
    said = capsys.readouterr()
    assert "bert/fill-mask/cuda/float32" in said.out
    assert "hardware detection failed: ValueError" in said.err


def test_a_torch_that_fails_or_hangs_is_a_reason_and_no_device(torch_child):
    torch_child(returncode=1, stderr="libcuda is broken\n")
    found = detect_somehow()
    assert "which fails too: libcuda is broken" in found.detection_failure
    assert found.accelerators == ()
    assert found.torch.version is None
    torch_child(returncode=None)
    assert "timed out after" in detect_somehow().detection_failure


def test_torch_is_not_imported_when_the_detection_works(monkeypatch):
    monkeypatch.setattr(basic_detection, "run", lambda *_, **__: pytest.fail("a process was started"))
    assert detect_somehow().detection_failure == ""
