"""The doctor: what is present and can't be used is a problem with a command, what isn't here is none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
from click.testing import CliRunner
from recorded_machines import FIXTURES

from hardware.backends.factory import backend_class, built_in_targets
from hardware.detection import HardwareInfo, ProbeResult, detect, targets
from hardware.doctor import hardware_diagnosis as module
from hardware.doctor.hardware_diagnosis import (
    ANY,
    DeviceHealth,
    HardwareDiagnosis,
    HardwareProblem,
    HardwareRemedy,
    diagnose_machine,
    diagnosis_text,
    entries,
    kinds_of,
    remedies_for,
    with_probes,
)
from hardware.expected_targets import TargetStatus, why_absent
from hardware.inventory.system.main_memory import MemoryInfo
from hardware.inventory.system.processor import CPUInfo
from hardware.inventory.vendors import registered_vendors
from hardware.inventory.vendors.vendor import AcceleratorInfo, DriverState, HardwareState, LibraryState, VendorFacts
from hardware.recording import INDEX, ReplayedMachine
from hardware.software import HostInfo, TorchBuild
from hardware.target import Target
from hwcompat.cli.device_commands import devices_group as main

SCHEMA = json.loads((Path(module.__file__).parents[1] / "schemas" / "doctor.json").read_text(encoding="utf-8"))
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


def test_a_device_that_is_present_and_unusable_has_a_command():
    missing = {"library": LibraryState.MISSING}
    binding = "nvidia-ml-py can't be imported: pip install nvidia-ml-py"
    for values, command in (
        ({"driver": DriverState.MISSING, **missing}, "ubuntu-drivers install"),
        ({"driver": DriverState.DENIED}, "nvidia-modprobe"),
        ({"driver": DriverState.UNKNOWN}, "reboot"),
        ({"driver": DriverState.UNKNOWN, **missing}, "ubuntu-drivers install"),
        ({"reason": binding, **missing}, "python -m pip install nvidia-ml-py"),
    ):
        found = diagnosed(machine(facts(**values)))["NVIDIA"]
        assert (found.health, found.is_problem) == (DeviceHealth.UNUSABLE, True)
        assert command in found.remedies[0].command
        assert found.remedies[0].source


def test_what_is_absent_or_simulated_is_no_problem():
    found = diagnosed(machine(facts(hardware=HardwareState.ABSENT, library=LibraryState.MISSING)))
    assert found["NVIDIA"].health is DeviceHealth.ABSENT
    assert found["cuda"].health is DeviceHealth.ABSENT
    assert not found["cuda"].remedies
    assert found["openvino"].health is DeviceHealth.OPTIONAL
    assert found["qnn"].remedies[0].command == "make setup-qnn"
    assert not any(one.is_problem for one in found.values())
    assert diagnosed(machine(facts(simulated=True)))["NVIDIA"].health is DeviceHealth.SIMULATED


def test_a_missing_build_of_torch_or_a_hidden_device_is_a_problem():
    found = diagnosed(machine(facts(), accelerators=(H100,)))
    assert found["NVIDIA"].health is DeviceHealth.EXPECTED
    assert found["cuda"].health is DeviceHealth.UNUSABLE
    assert found["cuda"].remedies[0].command.endswith("--torch-backend=auto torch==2.13.0")
    assert found["rocm"].health is DeviceHealth.ABSENT
    hidden = replace(H100, extra_info={"hidden_by": "CUDA_VISIBLE_DEVICES="})
    found = diagnosed(machine(facts(), torch="2.13.0+cu128", accelerators=(hidden,)))
    assert found["cuda"].health is DeviceHealth.UNUSABLE
    assert found["cuda"].remedies[0].command == "unset CUDA_VISIBLE_DEVICES"
    processor = diagnosed(machine(torch=None))["cpu"]
    assert processor.is_problem
    assert processor.remedies[0].command == "python -m pip install -r requirements.txt"


def test_the_command_depends_on_the_kind_of_machine(tmp_path):
    for kinds, command in (
        (("container", *UBUNTU), "docker run"),
        (("debian", "linux", ANY), "apt-get"),
        (("gentoo", "linux", ANY), "modprobe"),
    ):
        assert command in remedies_for("NVIDIA", "driver_missing", kinds)[0].command
    assert remedies_for("Nobody", "driver_missing", UBUNTU) == ()
    (tmp_path / "files" / "etc").mkdir(parents=True)
    (tmp_path / "files" / "etc" / "os-release").write_text('NAME="Pop"\nID=pop\nID_LIKE="ubuntu debian"\n')
    (tmp_path / INDEX).write_text(json.dumps({"format": 1, "host": HOST.__dict__}))
    assert kinds_of(ReplayedMachine(tmp_path)) == ("pop", "ubuntu", "debian", "linux", ANY)
    (tmp_path / "files" / ".dockerenv").touch()
    assert kinds_of(ReplayedMachine(tmp_path))[0] == "container"


def test_every_remedy_can_be_reached_and_states_its_source():
    vendors = {kind.VENDOR_NAME for kind in registered_vendors().found.values()}
    for one in entries():
        about, state, command = one["about"], one["state"], one["command"]
        of_vendor = state.startswith(("driver_", "library_"))
        assert about in {*(vendors if of_vendor else built_in_targets()), ANY}, one
        assert one["source"], one
        assert "\n" not in command, one
        assert remedies_for(about, state, (one["on"][0],))[0].command == command.replace("=={torch}", "")
    with_environment = {one["about"] for one in entries() if one["state"] == "no_environment"}
    assert with_environment == {name for name in built_in_targets() if backend_class(name).OWN_ENVIRONMENT}


def result(target: str, reason: str = "") -> ProbeResult:
    return ProbeResult(target=target, ok=not reason, reason=reason, expected=(1, 2, 3), got=None, duration_s=1.5)


def test_what_is_expected_and_computes_wrongly_is_broken():
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
    assert "smoke test passed (1.5 s)" in text
    assert "Not verified: models" in text
    assert "hwcompat run --model bert --device cpu" in text
    jsonschema.validate(json.loads(json.dumps(after.to_dict())), SCHEMA)


def test_a_present_gpu_that_cannot_be_used_is_exit_code_1():
    def doctor(*words: str) -> Any:
        return CliRunner().invoke(main, ["doctor", "--replay", *words], standalone_mode=False)

    ran = doctor(str(FIXTURES / "amd" / "mi300x-denied"))
    assert ran.exception is None
    assert ran.return_value == 1
    assert "present but unusable" in " ".join(ran.output.split())
    told = json.loads(doctor(str(FIXTURES / "other" / "rock-5b"), "--format", "json").stdout)
    jsonschema.validate(told, SCHEMA)
    assert not told["checked"]


def test_the_text_lists_problems_with_commands_that_can_be_copied():
    inventory = machine(facts(), accelerators=(H100,))
    found = diagnose_machine(inventory, targets(inventory), UBUNTU)
    command = next(one for one in found.findings if one.name == "cuda").remedies[0].command
    lines = diagnosis_text(found).splitlines()
    assert f"    {command}" in lines
    assert all(len(line) <= 80 for line in lines if command not in line)
    found = diagnose_machine(machine(facts(vendor="Nobody", driver=DriverState.MISSING)), (), UBUNTU)
    assert "No fix is known" in diagnosis_text(replace(found, checked=False))
    nothing = replace(found, findings=(), checked=False)
    assert diagnosis_text(nothing) == "No problems found. Smoke tests didn't run.\n"
    assert diagnosis_text(replace(nothing, checked=True)) == "No problems: every smoke test passed.\n"


def test_a_missing_browser_and_a_missing_environment_have_different_commands():
    web = {"onnxruntime-web (webgpu)": "1.27"}
    for target, packages, kinds, command in (
        ("webgpu", web, ("debian", "linux", ANY), "apt-get install chromium"),
        ("webgpu", web, UBUNTU, "google-chrome-stable"),
        ("webgpu", web, ("darwin", ANY), "HWCOMPAT_CHROMIUM"),
        ("webgpu", {}, UBUNTU, "make setup-web"),
        ("webnn", {"onnxruntime-web (webnn)": "1.27"}, UBUNTU, "make setup-web"),
    ):
        found = diagnosed(machine(packages=packages), kinds)[target]
        assert (found.health, found.is_problem) == (DeviceHealth.OPTIONAL, False)
        assert command in found.remedies[0].command


def test_a_variant_may_need_less_than_its_target():
    for target, package in (
        ("webgpu:native", "onnxruntime-webgpu"),
        ("tpu:xla-cpu", "torchax"),
        ("qnn:emulator", "onnxruntime-qnn"),
    ):
        variant, here = Target.parse(target), machine(packages={package: "1.2"})
        assert why_absent(variant, here) == ""
        assert why_absent(Target(name=variant.name), here)
        assert f"{package} isn't set up: make setup-" in why_absent(variant, machine(packages={}))
    arm = replace(machine(packages={"onnxruntime-qnn": "2.7"}), host=replace(HOST, machine="aarch64"))
    assert why_absent(Target.parse("qnn:emulator"), arm) == "no emulator on aarch64; qnn is the HTP itself"
    assert why_absent(Target(name="qnn"), arm) == ""


def test_each_finding_is_listed_once_under_its_title():
    remedy = HardwareRemedy(command="make setup-qnn", source="docs/measured/qnn.md")
    reason = "onnxruntime-qnn isn't set up: make setup-qnn"
    works = {"health": DeviceHealth.WORKS, "reason": "r", "remedies": ()}
    findings = (
        HardwareProblem(kind="vendor", name="Nobody", **works),
        HardwareProblem(kind="target", name="cpu", **works),
        HardwareProblem(kind="target", name="qnn", health=DeviceHealth.OPTIONAL, reason=reason, remedies=(remedy,)),
    )
    text = diagnosis_text(HardwareDiagnosis(findings=findings, checked=True))
    lines = text.splitlines()
    assert lines.index("Devices") < lines.index("Targets")
    assert [line.split()[1] for line in lines if line.startswith("  ok")] == ["Nobody", "cpu"]
    added = text.partition("Optional")[2]
    assert added.count("make setup-qnn") == 1
    assert "qnn: onnxruntime-qnn isn't set up\n" in added


def test_a_target_waits_for_its_vendor_and_equal_fixes_share_their_lines():
    found = diagnose_machine(machine(facts("AMD", driver=DriverState.DENIED)), (), UBUNTU)
    rocm = HardwareProblem(kind="target", name="rocm", health=DeviceHealth.UNUSABLE, reason="r")
    remedy = HardwareRemedy(command="make setup-web", source="docs/WEB.md")
    web = HardwareProblem(kind="target", name="webgpu", health=DeviceHealth.OPTIONAL, remedies=(remedy,))
    findings = (*found.findings, rocm, web, replace(web, name="webnn"))
    lines = diagnosis_text(replace(found, findings=findings)).splitlines()
    assert lines.index("rocm: fix AMD first") > next(at for at, line in enumerate(lines) if "usermod" in line)
    assert "webgpu, webnn: not installed" in lines
    assert lines.count("    make setup-web") == 1


def test_doctor_and_list_have_the_same_words_for_a_vendors_state() -> None:
    seen = set()
    for path in sorted(FIXTURES.glob("*/*/machine.json")):
        inventory = detect(ReplayedMachine(path.parent))
        states = {one.vendor: str(one.state) for one in inventory.vendors}
        findings = diagnose_machine(inventory, targets(inventory), ("*",)).findings
        assert {one.name: str(one.health) for one in findings if one.kind == "vendor"} == states
        seen |= set(states.values())
    assert seen >= {"expected", "present but unusable", "hardware absent", "library missing", "unknown"}
