"""Recordings of machines: broken ones are refused, and nothing in them names a person or a machine."""

from __future__ import annotations

import json

import pytest
from recorded_machines import changed, computer

from hardware.command_line import run_command_line
from hardware.errors import BrokenInput
from hardware.inventory.system.main_memory import cgroup_memory
from hardware.machine import LiveMachine
from hardware.recording import INDEX, MachineRecorder, ReplayedMachine, without_identity
from hwcompat.cli.device_commands import devices_group as main


def test_what_names_a_machine_or_a_person_is_not_kept():
    wanted = {
        "Serial Number : 1320921012345": "Serial Number : <serial>",
        '"serial_number": "S4EWNX0M"': '"serial_number": "<serial>"',
        "<serial>1654922003</serial>": "<serial><serial></serial>",
        "GPU-5f4a3b2c-1d0e-4f9a-8b7c-6d5e4f3a2b1c": "GPU-00000000-0000-0000-0000-000000000000",
        "address 3c:ec:ef:12:34:56": "address 00:00:00:00:00:00",
        "/home/alice/model": "/home/<user>/model",
        "0000:17:00.0 NVIDIA H100": "0000:17:00.0 NVIDIA H100",
        '{"SerialNumber":null}': '{"SerialNumber":null}',
        "<serial>N/A</serial>": "<serial>N/A</serial>",
    }
    assert {text: without_identity(text) for text in wanted} == wanted


def test_the_names_of_control_groups_are_not_kept(tmp_path):
    container = "3f4c" * 16
    files = {
        "proc/self/cgroup": f"0::/docker/{container}\n",
        f"sys/fs/cgroup/docker/{container}/memory.max": str(2**30),
        f"sys/fs/cgroup/docker/{container}/memory.current": str(2**20),
    }
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


def test_a_folder_without_a_recording_is_an_error(tmp_path, capsys):
    for index in (None, "", "[]", "{", '{"format": 99}'):
        if index is not None:
            (tmp_path / INDEX).write_text(index)
        with pytest.raises(BrokenInput):
            ReplayedMachine(tmp_path)
        for command in ("list", "doctor"):
            assert run_command_line(main, [command, "--replay", str(tmp_path)], program="hwcompat devices") == 4
            assert index is not None or "holds no recording" in capsys.readouterr().err


def test_an_index_of_another_shape_is_refused(tmp_path):
    folder = changed("machines/vm-virtio", tmp_path).folder
    index = json.loads((folder / INDEX).read_text())
    for change in (
        {"host": {}},
        {"host": {"machine": 1}},
        {"torch": {"another": "x"}},
        {"packages": {"torch": [1]}},
        {"nodes": {"/dev/x": "yes"}},
        {"folders": {"/sys": [1]}},
        {"commands": [{"words": "ls"}]},
        {"commands": [{"words": ["ls"], "output": 1}]},
    ):
        (folder / INDEX).write_text(json.dumps({**index, **change}))
        with pytest.raises(BrokenInput, match="can't be what a machine has"):
            ReplayedMachine(folder)


def test_a_recording_overwrites_nothing_else(tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "letter.txt").write_text("x")
    for name in ("file", "folder"):
        arguments = ["doctor", "--no-check", "--record", str(tmp_path / name)]
        assert run_command_line(main, arguments, program="hardware") == 4
        assert "something else" in capsys.readouterr().err
    both = ["doctor", "--record", str(tmp_path / "new"), "--replay", str(computer("vm-virtio").folder)]
    assert run_command_line(main, both, program="hardware") == 4


def test_a_program_that_is_not_installed_is_a_reason():
    assert LiveMachine().run("no-such-program-here").reason == "no-such-program-here isn't installed"
