"""What a machine answered is kept and gives the same inventory elsewhere; of a person or a serial nothing is kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hardware.__main__ import main
from hardware.command_line import open_door
from hardware.detection import detect
from hardware.errors import BrokenInput
from hardware.machine import COMMAND_LIMIT_S, Library, LiveMachine, SourceReading
from hardware.recording import INDEX, MachineRecorder, ReplayedMachine, without_identity


class Chips(Library):
    """A vendor's library with two devices, one of which tells no temperature."""

    NAME = "chips"

    def ask(self, function: str, *arguments: Any) -> SourceReading[Any]:
        if function == "count":
            return SourceReading(value=2)
        if function == "temperature" and arguments == (0,):
            return SourceReading(value={"celsius": 41.5, "sensors": ["edge", "memory"]})
        return SourceReading(value=None, reason=f"{function} isn't told of {arguments}")


@pytest.fixture
def tree(tmp_path: Path) -> LiveMachine:
    (tmp_path / "sys" / "class" / "chip").mkdir(parents=True)
    (tmp_path / "sys" / "class" / "chip" / "name").write_text("Chip One\n")
    (tmp_path / "sys" / "class" / "chip" / "driver").symlink_to("../../bus/chip")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "chip0").touch()
    return LiveMachine(tmp_path)


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


def test_a_replayed_machine_answers_as_the_recorded_one(
    tree: LiveMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHIP_VISIBLE", "1")
    recorder = MachineRecorder(tree)
    live = asked(recorder)
    assert live["text"] == "Chip One"
    assert live["names"] == ("driver", "name")
    assert live["run"] == "three devices\n"
    assert live["failure"] == "sh ended with exit code 9: driver not loaded"
    recorder.write(tmp_path / "kept")
    monkeypatch.delenv("CHIP_VISIBLE")
    assert asked(ReplayedMachine(tmp_path / "kept")) == live


def test_this_machines_inventory_is_the_same_from_its_recording(tmp_path: Path) -> None:
    recorder = MachineRecorder(LiveMachine())
    live = detect(recorder)
    recorder.write(tmp_path)
    again = detect(ReplayedMachine(tmp_path))
    assert again.to_dict() == live.to_dict()
    other = json.loads((tmp_path / INDEX).read_text())
    other["host"]["machine"] = "sparc"
    (tmp_path / INDEX).write_text(json.dumps(other))
    assert detect(ReplayedMachine(tmp_path)).cpu == replace(live.cpu, architecture="sparc")


def test_the_list_of_a_recorded_machine_is_printed(tmp_path: Path) -> None:
    recorder = MachineRecorder(LiveMachine())
    detect(recorder)
    recorder.write(tmp_path)
    printed = CliRunner().invoke(main, ["list", "--format", "json", "--replay", str(tmp_path)])
    assert printed.exit_code == 0
    assert json.loads(printed.output)["host"]["machine"] == recorder.host().machine


@pytest.mark.parametrize("index", [None, "", "[]", "{", '{"format": 99}'])
def test_a_folder_that_holds_no_recording_is_an_error(tmp_path: Path, index: str | None) -> None:
    if index is not None:
        (tmp_path / INDEX).write_text(index)
    with pytest.raises(BrokenInput):
        ReplayedMachine(tmp_path)
    assert open_door(main, ["list", "--replay", str(tmp_path)], program="python -m hardware") == 4


def test_a_program_that_hangs_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hardware.machine.COMMAND_LIMIT_S", 0.2)
    assert COMMAND_LIMIT_S > 1
    assert LiveMachine().run("sleep", "30").reason == "sleep said nothing for 0 s"


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("Serial Number : 1320921012345", "Serial Number : <serial>"),
        ('"serial_number": "S4EWNX0M"', '"serial_number": "<serial>"'),
        ("<serial>1654922003</serial>", "<serial><serial></serial>"),
        ("GPU-5f4a3b2c-1d0e-4f9a-8b7c-6d5e4f3a2b1c", "GPU-00000000-0000-0000-0000-000000000000"),
        ("address 3c:ec:ef:12:34:56", "address 00:00:00:00:00:00"),
        ("/home/alice/model", "/home/<user>/model"),
        ("0000:17:00.0 NVIDIA H100", "0000:17:00.0 NVIDIA H100"),
        ('{"SerialNumber":null}', '{"SerialNumber":null}'),
        ("<serial>N/A</serial>", "<serial>N/A</serial>"),
    ],
)
def test_what_names_a_machine_or_a_person_is_not_kept(said: str, kept: str) -> None:
    assert without_identity(said) == kept


@pytest.mark.parametrize(
    "change",
    [
        {"host": {}},
        {"host": {"machine": 1}},
        {"torch": {"another": "x"}},
        {"packages": {"torch": [1]}},
        {"nodes": {"/dev/x": "yes"}},
        {"folders": {"/sys": [1]}},
        {"commands": [{"words": "ls"}]},
        {"commands": [{"words": ["ls"], "output": 1}]},
    ],
)
def test_an_index_of_another_shape_is_refused(tmp_path: Path, tree: LiveMachine, change: dict[str, Any]) -> None:
    recorder = MachineRecorder(tree)
    asked(recorder)
    recorder.host()
    recorder.write(tmp_path / "kept")
    index = tmp_path / "kept" / INDEX
    ReplayedMachine(tmp_path / "kept")
    index.write_text(json.dumps({**json.loads(index.read_text()), **change}))
    with pytest.raises(BrokenInput, match="can't be what a machine has"):
        ReplayedMachine(tmp_path / "kept")
