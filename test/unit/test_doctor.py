"""The doctor: what is present and can't be used is a problem with a command, what isn't here is none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from hardware.__main__ import main
from hardware.backends.factory import backend_class, built_in_targets
from hardware.command_line import open_door
from hardware.detection import HardwareInfo, ProbeResult, detect, targets
from hardware.doctor import hardware_diagnosis as module
from hardware.doctor.hardware_diagnosis import (
    DeviceHealth,
    HardwareDiagnosis,
    HardwareProblem,
    diagnose_machine,
    diagnosis_text,
    with_probes,
)
from hardware.doctor.hardware_remedies import ANY, HardwareRemedy, entries, kinds_of, remedies_for
from hardware.expected_targets import TargetStatus, why_absent
from hardware.inventory.system.main_memory import MemoryInfo
from hardware.inventory.system.processor import CPUInfo
from hardware.inventory.vendors.vendor import AcceleratorInfo, DriverState, HardwareState, LibraryState, VendorFacts
from hardware.machine import LiveMachine
from hardware.recording import INDEX, MachineRecorder, ReplayedMachine
from hardware.software import HostInfo, TorchBuild
from hardware.target import Target

SCHEMA = json.loads((Path(module.__file__).parents[1] / "schemas" / "doctor.json").read_text(encoding="utf-8"))
VENDOR_STATES = ("driver_missing", "driver_denied", "driver_unknown", "library_missing")
TARGET_STATES = (
    *("no_torch", "wrong_build", "hidden", "no_package", "no_environment", "no_browser"),
    *("probe_failed", "probe_timeout"),
)
UBUNTU = ("ubuntu", "debian", "linux", ANY)
HOST = HostInfo(system="Linux", release="6.1", machine="x86_64", python_version="3.12.1")
H100 = AcceleratorInfo(vendor="NVIDIA", device_type="gpu", model="NVIDIA H100", index=0)


def facts(vendor: str = "NVIDIA", **values: Any) -> VendorFacts:
    states = {"hardware": HardwareState.PRESENT, "driver": DriverState.OK, "library": LibraryState.OK}
    return VendorFacts(vendor=vendor, **{**states, **values})


def machine(*vendors: VendorFacts, torch: str | None = "2.13.0+cpu", **values: Any) -> HardwareInfo:
    build = TorchBuild(version=torch, cuda="12.8" if torch and "cu" in torch.partition("+")[2] else None)
    return HardwareInfo(
        host=HOST,
        cpu=CPUInfo(model="A processor"),
        memory=MemoryInfo(total_bytes=2**34, available_bytes=2**33, swap_total_bytes=0, swap_free_bytes=0),
        vendors=vendors,
        torch=build if torch else TorchBuild(reason="torch isn't installed: pip install torch"),
        **values,
    )


def diagnosed(inventory: HardwareInfo, kinds: tuple[str, ...] = UBUNTU) -> dict[str, HardwareProblem]:
    found = diagnose_machine(inventory, targets(inventory), kinds)
    return {one.name: one for one in found.findings}


@pytest.mark.parametrize(
    ("values", "command"),
    [
        ({"driver": DriverState.MISSING, "library": LibraryState.MISSING}, "ubuntu-drivers install"),
        ({"driver": DriverState.DENIED}, "nvidia-modprobe"),
        ({"driver": DriverState.UNKNOWN}, "reboot"),
        ({"library": LibraryState.MISSING, "driver": DriverState.UNKNOWN}, "ubuntu-drivers install"),
        (
            {"library": LibraryState.MISSING, "reason": "nvidia-ml-py can't be imported: pip install nvidia-ml-py"},
            "python -m pip install nvidia-ml-py",
        ),
    ],
)
def test_a_device_that_is_present_and_cant_be_used_has_a_command(values: dict[str, Any], command: str) -> None:
    found = diagnosed(machine(facts(**values)))["NVIDIA"]
    assert found.health is DeviceHealth.UNUSABLE
    assert found.is_problem
    assert command in found.remedies[0].command
    assert found.remedies[0].source


def test_what_isnt_here_is_no_problem() -> None:
    found = diagnosed(machine(facts(hardware=HardwareState.ABSENT, library=LibraryState.MISSING)))
    assert found["NVIDIA"].health is DeviceHealth.ABSENT
    assert found["cuda"].health is DeviceHealth.ABSENT
    assert not found["cuda"].remedies
    assert found["openvino"].health is DeviceHealth.OPTIONAL
    assert found["qnn"].remedies[0].command == "make setup-qnn"
    assert not any(one.is_problem for one in found.values())


def test_a_simulated_device_is_no_problem() -> None:
    assert diagnosed(machine(facts(simulated=True)))["NVIDIA"].health is DeviceHealth.SIMULATED


def test_a_torch_of_another_build_keeps_a_present_gpu_from_use() -> None:
    found = diagnosed(machine(facts(), accelerators=(H100,)))
    assert found["NVIDIA"].health is DeviceHealth.EXPECTED
    assert found["cuda"].health is DeviceHealth.UNUSABLE
    assert found["cuda"].remedies[0].command.endswith("--torch-backend=auto torch==2.13.0")
    assert found["rocm"].health is DeviceHealth.ABSENT


def test_no_torch_is_a_problem_of_the_processor_too() -> None:
    found = diagnosed(machine(torch=None))["cpu"]
    assert found.is_problem
    assert found.remedies[0].command == "python -m pip install -r requirements.txt"


def test_hidden_devices_are_shown_again_by_a_command() -> None:
    hidden = replace(H100, extra_info={"hidden_by": "CUDA_VISIBLE_DEVICES="})
    inventory = machine(facts(), torch="2.13.0+cu128", accelerators=(hidden,))
    found = diagnosed(inventory)["cuda"]
    assert found.health is DeviceHealth.UNUSABLE
    assert found.remedies[0].command == "unset CUDA_VISIBLE_DEVICES"


def test_the_most_telling_kind_of_machine_chooses_the_command() -> None:
    assert "docker run" in remedies_for("NVIDIA", "driver_missing", ("container", *UBUNTU))[0].command
    assert "apt-get" in remedies_for("NVIDIA", "driver_missing", ("debian", "linux", ANY))[0].command
    assert "modprobe" in remedies_for("NVIDIA", "driver_missing", ("gentoo", "linux", ANY))[0].command
    assert remedies_for("Nobody", "driver_missing", UBUNTU) == ()


def test_a_machine_is_called_by_its_container_distribution_and_system(tmp_path: Path) -> None:
    (tmp_path / "files" / "etc").mkdir(parents=True)
    (tmp_path / "files" / "etc" / "os-release").write_text('NAME="Pop"\nID=pop\nID_LIKE="ubuntu debian"\n')
    (tmp_path / INDEX).write_text(json.dumps({"format": 1, "host": HOST.__dict__}))
    assert kinds_of(ReplayedMachine(tmp_path)) == ("pop", "ubuntu", "debian", "linux", ANY)
    (tmp_path / "files" / ".dockerenv").touch()
    assert kinds_of(ReplayedMachine(tmp_path))[0] == "container"


def test_every_remedy_can_be_reached_and_says_where_it_is_from() -> None:
    names = {"NVIDIA", "AMD", "Intel", "Apple", "Qualcomm", "Google", "Groq", "Cerebras", ANY}
    for one in entries():
        about, state, command = one["about"], one["state"], one["command"]
        state_of_vendor = state in VENDOR_STATES
        assert state_of_vendor or state in TARGET_STATES, one
        assert about in (names if state_of_vendor else {*built_in_targets(), "tpu", ANY}), one
        assert one["source"], one
        assert "\n" not in command, one
        assert remedies_for(about, state, (one["on"][0],))[0].command == command.replace("=={torch}", "")


def result(target: str, reason: str = "") -> ProbeResult:
    return ProbeResult(target=target, ok=not reason, reason=reason, expected=(1, 2, 3), got=None, duration_s=1.5)


def test_every_target_with_an_environment_of_its_own_says_how_to_make_it() -> None:
    told = {one["about"] for one in entries() if one["state"] == "no_environment"}
    assert told == {name for name in built_in_targets() if backend_class(name).OWN_ENVIRONMENT}


def test_what_is_expected_and_computes_wrongly_is_broken() -> None:
    statuses = [TargetStatus(target=name, expected=True) for name in ("cpu", "cuda", "openvino")]
    before = diagnose_machine(machine(), statuses, UBUNTU)
    assert not before.problems
    slow = "it took longer than 5 s"
    probes = {"cpu": result("cpu"), "cuda": result("cuda", "it computed something else")}
    probes["openvino"] = replace(result("openvino", slow), timed_out=True)
    after = with_probes(before, probes, UBUNTU)  # type: ignore[arg-type]
    found = {one.name: one for one in after.findings}
    assert found["cpu"].health is DeviceHealth.WORKS
    assert found["cuda"].health is DeviceHealth.BROKEN
    assert "--timeout 600" in found["openvino"].remedies[0].command
    assert [one.name for one in after.problems] == ["cuda", "openvino"]
    text = diagnosis_text(after)
    assert "2 problems" in text
    assert "it computed something else" in text
    jsonschema.validate(json.loads(json.dumps(after.to_dict())), SCHEMA)


def test_a_command_stands_in_one_line_to_be_copied() -> None:
    inventory = machine(facts(), accelerators=(H100,))
    found = diagnose_machine(inventory, targets(inventory), UBUNTU)
    command = next(one for one in found.findings if one.name == "cuda").remedies[0].command
    lines = diagnosis_text(found).splitlines()
    assert f"    {command}" in lines
    assert all(len(line) <= 80 for line in lines if command not in line)


def run(*words: str) -> Any:
    return CliRunner().invoke(main, ["doctor", *words], standalone_mode=False)


def test_a_recording_gives_the_same_diagnosis(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    live = run("--no-check", "--format", "json", "--record", str(kept))
    again = run("--format", "json", "--replay", str(kept))
    assert live.exception is None
    assert json.loads(again.stdout) == json.loads(live.stdout)
    assert not json.loads(again.stdout)["checked"]
    assert live.return_value == again.return_value == 0


def test_a_recording_holds_what_detection_read_and_the_kind_of_the_system_alone(tmp_path: Path) -> None:
    kept, plain = tmp_path / "kept", tmp_path / "plain"
    run("--no-check", "--record", str(kept))
    recorder = MachineRecorder(LiveMachine())
    detect(recorder)
    recorder.write(plain)
    names = [
        {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} for folder in (kept, plain)
    ]
    assert names[0] - names[1] <= {"files/etc/os-release", "files/.dockerenv", "files/run/.containerenv"}
    assert names[1] <= names[0]


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_recording_overwrites_nothing_else(tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    there = tmp_path / "mine"
    if what == "file":
        there.write_text("x")
    else:
        there.mkdir()
        (there / "letter.txt").write_text("x")
    assert open_door(main, ["doctor", "--no-check", "--record", str(there)], program="hardware") == 4
    assert "something else" in capsys.readouterr().err


def test_a_folder_without_a_recording_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert open_door(main, ["doctor", "--replay", str(tmp_path)], program="hardware") == 4
    assert "holds no recording" in capsys.readouterr().err


def test_the_names_of_control_groups_are_no_part_of_a_recording(tmp_path: Path) -> None:
    container = "3f4c" * 16
    files = {
        "proc/self/cgroup": f"0::/docker/{container}\n",
        f"sys/fs/cgroup/docker/{container}/memory.max": str(2**30),
        f"sys/fs/cgroup/docker/{container}/memory.current": str(2**20),
        "proc/meminfo": "MemTotal: 16 kB\nMemAvailable: 8 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n",
    }

    from hardware.inventory.system.main_memory import cgroup_memory

    for name, text in files.items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    recorder = MachineRecorder(LiveMachine(tmp_path / "root"))
    assert cgroup_memory(recorder) == (2**30, 2**20)
    recorder.write(tmp_path / "kept")
    written = [str(path) + path.read_text() for path in (tmp_path / "kept").rglob("*") if path.is_file()]
    assert not any(container in text for text in written)
    assert cgroup_memory(ReplayedMachine(tmp_path / "kept")) == (2**30, 2**20)


def test_a_present_gpu_of_a_recorded_machine_that_cant_be_used_is_exit_code_1(tmp_path: Path) -> None:

    bus = tmp_path / "root" / "sys" / "bus" / "pci" / "devices" / "0000:17:00.0"
    bus.mkdir(parents=True)
    for name, text in (("vendor", "0x10de"), ("device", "0x2330"), ("class", "0x030200")):
        (bus / name).write_text(text)
    (tmp_path / "root" / "sys" / "module").mkdir()
    (tmp_path / "root" / "proc").mkdir()
    memory = "MemTotal: 16 kB\nMemAvailable: 8 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"
    (tmp_path / "root" / "proc" / "meminfo").write_text(memory)
    recorder = MachineRecorder(LiveMachine(tmp_path / "root"))
    detect(recorder)
    recorder.write(tmp_path / "kept")
    ran = run("--replay", str(tmp_path / "kept"))
    assert ran.exception is None
    assert ran.return_value == 1
    assert "present, can't be used" in " ".join(ran.output.split())


def test_a_finding_without_a_remedy_says_so() -> None:
    found = diagnose_machine(machine(facts(vendor="Nobody", driver=DriverState.MISSING)), (), UBUNTU)
    nothing = replace(found, findings=(), checked=False)
    assert diagnosis_text(nothing) == "Nothing that is present is unusable; nothing was computed.\n"
    assert diagnosis_text(replace(nothing, checked=True)) == "Everything that is expected here works.\n"
    assert "No remedy is known" in diagnosis_text(replace(found, checked=False))


@pytest.mark.parametrize(
    ("target", "packages", "kinds", "command"),
    [
        ("webgpu", {"onnxruntime-web (webgpu)": "1.27"}, ("debian", "linux", ANY), "apt-get install chromium"),
        ("webgpu", {"onnxruntime-web (webgpu)": "1.27"}, UBUNTU, "google-chrome-stable"),
        ("webgpu", {"onnxruntime-web (webgpu)": "1.27"}, ("darwin", ANY), "HWCOMPAT_CHROMIUM"),
        ("webgpu", {}, UBUNTU, "make setup-web"),
        ("webnn", {"onnxruntime-web (webnn)": "1.27"}, UBUNTU, "make setup-web"),
    ],
)
def test_a_browser_that_is_missing_is_got_otherwise_than_its_environment(
    target: str, packages: dict[str, str], kinds: tuple[str, ...], command: str
) -> None:
    found = diagnosed(machine(packages=packages), kinds)[target]
    assert (found.health, found.is_problem) == (DeviceHealth.OPTIONAL, False)
    assert command in found.remedies[0].command


@pytest.mark.parametrize(("target", "package"), [("webgpu:native", "onnxruntime-webgpu"), ("tpu:xla-cpu", "torchax")])
def test_a_variant_may_need_less_than_its_target(target: str, package: str) -> None:
    variant, here = Target.parse(target), machine(packages={package: "1.2"})
    assert why_absent(variant, here) == ""
    assert why_absent(Target(name=variant.name), here)
    assert f"{package} has no environment here: make setup-" in why_absent(variant, machine(packages={}))


def test_a_command_that_a_reason_names_too_is_printed_once() -> None:
    remedy = HardwareRemedy(command="make setup-qnn", source="docs/QNN.md")
    reason = "onnxruntime-qnn has no environment here: make setup-qnn"
    found = HardwareProblem(
        kind="target", name="qnn", health=DeviceHealth.OPTIONAL, reason=reason, remedies=(remedy,)
    )
    added = diagnosis_text(HardwareDiagnosis(findings=(found,), checked=True)).partition("What could be added")[2]
    assert added.count("make setup-qnn") == 1
    assert "qnn: onnxruntime-qnn has no environment here\n" in added


def test_vendors_and_targets_are_each_listed_once_under_their_title() -> None:
    vendor = HardwareProblem(kind="vendor", name="Nobody", health=DeviceHealth.WORKS, reason="r", remedies=())
    target = HardwareProblem(kind="target", name="cpu", health=DeviceHealth.WORKS, reason="r", remedies=())
    lines = diagnosis_text(HardwareDiagnosis(findings=(vendor, target), checked=True)).splitlines()
    titles = {lines.index(title): title for title in ("Vendors", "Targets")}
    assert list(titles.values()) == ["Vendors", "Targets"]
    rows = [line.split()[1] for line in lines if line.startswith("  ok")]
    assert rows == ["Nobody", "cpu"]
