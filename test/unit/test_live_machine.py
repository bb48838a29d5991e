"""This machine: what is read of it, how its programs end, and that its recording gives the same inventory.

Which modules an inventory imports, and what an installed package adds to it, each asked in a new process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hardware.detection import detect
from hardware.machine import COMMAND_LIMIT_S, Library, LiveMachine, SourceReading
from hardware.recording import INDEX, MachineRecorder, ReplayedMachine
from hwcompat.cli.device_commands import devices_group as main


class Chips(Library):
    """A vendor's library with two devices, one of which has no temperature."""

    NAME = "chips"

    def ask(self, function: str, *arguments: Any) -> SourceReading[Any]:
        if function == "count":
            return SourceReading(value=2)
        if function == "temperature" and arguments == (0,):
            return SourceReading(value={"celsius": 41.5, "sensors": ["edge", "memory"]})
        return SourceReading(value=None, reason=f"{function} isn't told of {arguments}")


def asked(machine: Any) -> dict[str, Any]:
    chips = machine.library(Chips)
    return {
        "text": machine.text("/sys/class/chip/name"),
        "no text": machine.text("/sys/class/chip/none"),
        "names": machine.names("/sys/class/chip"),
        "no names": machine.names("/sys/class/none"),
        "link": machine.link("/sys/class/chip/driver"),
        "no link": machine.link("/sys/class/chip/name"),
        "node": machine.may_open("/dev/chip0"),
        "no node": machine.may_open("/dev/chip1"),
        "variable": machine.variable("CHIP_VISIBLE"),
        "no variable": machine.variable("CHIP_HIDDEN"),
        "run": machine.run("echo", "three devices").value,
        "no program": machine.run("chip-smi-that-is-nowhere").value,
        "failure": machine.run("sh", "-c", "echo driver not loaded >&2; exit 9").reason,
        "count": chips.ask("count").value,
        "temperature": chips.ask("temperature", 0).value,
        "no temperature": chips.ask("temperature", 1).reason,
    }


def test_a_replayed_machine_answers_as_the_recorded_one(tmp_path, monkeypatch):
    (tmp_path / "sys" / "class" / "chip").mkdir(parents=True)
    (tmp_path / "sys" / "class" / "chip" / "name").write_text("Chip One\n")
    (tmp_path / "sys" / "class" / "chip" / "driver").symlink_to("../../bus/chip")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "chip0").touch()
    monkeypatch.setenv("CHIP_VISIBLE", "1")
    recorder = MachineRecorder(LiveMachine(tmp_path))
    live = asked(recorder)
    assert live["text"] == "Chip One"
    assert live["names"] == ("driver", "name")
    assert live["run"] == "three devices\n"
    assert live["failure"] == "sh ended with exit code 9: driver not loaded"
    recorder.write(tmp_path / "kept")
    monkeypatch.delenv("CHIP_VISIBLE")
    assert asked(ReplayedMachine(tmp_path / "kept")) == live


def test_this_machine_and_its_recording_have_the_same_inventory(tmp_path):
    recorder = MachineRecorder(LiveMachine())
    live = detect(recorder)
    recorder.write(tmp_path)
    assert live.memory.total_bytes >= live.memory.usable_bytes > 0
    assert live.cpu.threads is None or live.cpu.threads >= (live.cpu.cores or 1)
    assert live.host.python_version == ".".join(map(str, sys.version_info[:3]))
    assert live.packages["pytest"] == pytest.__version__
    assert live.accelerator_count == len(live.accelerators)
    assert live.storage or live.storage_failures
    assert json.loads(json.dumps(live.to_dict())) == live.to_dict()
    assert detect(ReplayedMachine(tmp_path)).to_dict() == live.to_dict()
    other = json.loads((tmp_path / INDEX).read_text())
    other["host"]["machine"] = "sparc"
    (tmp_path / INDEX).write_text(json.dumps(other))
    assert detect(ReplayedMachine(tmp_path)).cpu == replace(live.cpu, architecture="sparc")


def test_the_doctor_gives_the_same_diagnosis_of_its_recording(tmp_path):
    def doctor(*words: str) -> Any:
        return CliRunner().invoke(main, ["doctor", "--format", "json", *words], standalone_mode=False)

    kept, plain = tmp_path / "kept", tmp_path / "plain"
    live = doctor("--no-check", "--record", str(kept))
    again = doctor("--replay", str(kept))
    assert live.exception is None
    assert json.loads(again.stdout) == json.loads(live.stdout)
    assert not json.loads(again.stdout)["checked"]
    assert live.return_value == again.return_value == 0
    recorder = MachineRecorder(LiveMachine())
    detect(recorder)
    recorder.write(plain)
    more, less = ({str(one.relative_to(top)) for one in top.rglob("*") if one.is_file()} for top in (kept, plain))
    assert less <= more
    assert more - less <= {"files/etc/os-release", "files/.dockerenv", "files/run/.containerenv"}


def test_a_program_that_fails_or_hangs_is_a_reason(monkeypatch):
    here = LiveMachine()
    script = ("sh", "-c", "echo told; exit 64")
    assert here.run(*script).value is None
    assert here.run(*script, accept=0xFF).value == "told\n"  # smartctl's bits for a failing disk
    assert here.run("sh", "-c", "kill -9 $$", accept=0xFF).value is None
    assert COMMAND_LIMIT_S > 1
    monkeypatch.setattr("hardware.machine.COMMAND_LIMIT_S", 0.2)
    assert here.run("sleep", "30").reason == "sleep took longer than 0 s"


ROOT = Path(__file__).parents[2]
VENDOR = """
from hardware.accelerator_plugin import AcceleratorBackend

class Chips(AcceleratorBackend):
    VENDOR_NAME, DEVICE_TYPE = "PlugIn", "lpu"
    is_available = lambda self: True
    get_device_count = lambda self: 0
    list_devices = lambda self: ()
"""
CODE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from hardware.inventory import vendors
vendors.ACCELERATOR_BACKENDS
after_vendors = set(sys.modules)
from hardware.detection import detect, targets
inventory = detect()
targets(inventory)
print(json.dumps([sorted(after_vendors), sorted(sys.modules), vendors.list_available_vendors(),
                  vendors.accelerator_failures(), {one.vendor: one.reason for one in inventory.vendors}]))
"""


def test_an_inventory_imports_no_framework_and_lists_the_vendor_of_an_installed_package(tmp_path):
    (tmp_path / "chip_package.py").write_text(VENDOR)
    metadata = tmp_path / "chip_package-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: chip-package\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[hwcompat.accelerators]\nchip = chip_package:Chips\nlost = no_such_module:Chips\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    after_vendors, after_targets, listed, failures, reasons = json.loads(done.stdout)
    assert not {"pynvml", "torch", "numpy"} & set(after_vendors)
    frameworks = {"torch", "transformers", "openvino", "numpy", "pandas", "jsonschema", "duckdb"}
    assert not frameworks & set(after_targets)
    assert listed[-1] == "PlugIn"
    assert failures["lost"].startswith("ModuleNotFoundError")
    assert "no_such_module" in reasons["lost"]


def test_without_the_folder_there_are_none(tmp_path):
    """In a bundle `hwcompat` has `hwcompat.hardware` alone."""
    (tmp_path / "hwcompat").mkdir()
    (tmp_path / "hwcompat" / "__init__.py").write_bytes((ROOT / "hwcompat" / "__init__.py").read_bytes())
    (tmp_path / "hwcompat" / "hardware").symlink_to(ROOT / "hardware")
    code = "from hwcompat.hardware.plugins import plugins; print(plugins().loaded)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.returncode) == ("()\n", 0), done.stderr
