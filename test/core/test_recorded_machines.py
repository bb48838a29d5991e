"""Each recorded machine gives the inventory and the metrics in its `inventory.json`, and names no one.

After an intended change: `pytest test/core/test_recorded_machines.py --update-golden`, and review the difference.
Recordings of machines: broken ones are refused, and nothing in them names a person or a machine.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from recorded_machines import FIXTURES, changed, computer, machine

from hardware import recording
from hardware.command_line import run_command_line
from hardware.detection import detect, targets
from hardware.errors import BrokenInput, UsageError
from hardware.inventory.system.main_memory import cgroup_memory
from hardware.inventory.system.storage import StorageDeviceInfo
from hardware.inventory.vendors import registered_vendors
from hardware.machine import LiveMachine
from hardware.recording import INDEX, MachineRecorder, ReplayedMachine, without_identity
from hwcompat.cli.device_commands import devices_group as main

METRICS = ("temperature", "memory", "utilization", "power", "throttle")
FRAMEWORKS = ("pytorch", "tensorflow", "jax", "openvino", "onnxruntime")
SCHEMA = Path(recording.__file__).parent / "schemas" / "inventory.json"


def known(value: Any, key: str = "") -> Any:
    """What is known: without empty values, and without the wording of reasons."""
    if key in ("reason", "reasons", "storage_failures", "failure"):
        return sorted(value) if isinstance(value, dict) else bool(value)
    if isinstance(value, dict):
        found = {name: known(one, name) for name, one in value.items()}
        return {name: one for name, one in found.items() if one or (one == 0 and one is not False)}
    return [known(one) for one in value] if isinstance(value, list | tuple) else value


def name_in(backend: Any, index: int, framework: str) -> str:
    try:
        return backend.get_framework_device_string(index, framework)
    except UsageError:
        return ""


@pytest.fixture(scope="module")
def inventories() -> dict[str, Any]:
    """What is detected on every recorded machine, with its disks' health, by `vendor/machine`."""
    names = sorted(str(index.parent.relative_to(FIXTURES)) for index in FIXTURES.glob(f"*/*/{INDEX}"))
    return {name: detect(machine(name), smart=True) for name in names}


def test_inventories_and_metrics_are_those_that_were_reviewed(inventories, update_golden):
    differing = []
    for name, inventory in inventories.items():
        readings: dict[str, Any] = {}
        for vendor in sorted({one.vendor for one in inventory.accelerators}):
            backend = registered_vendors().found[vendor.lower()](machine(name))
            for index in range(backend.get_device_count()):
                readings[f"{backend.VENDOR_NAME} {index}"] = {
                    **{metric: backend.reading(index, metric).value for metric in METRICS},
                    **{framework: name_in(backend, index, framework) for framework in FRAMEWORKS},
                }
        expected = {
            one.target: {"memory_bytes": one.memory_bytes, "device": one.device_name}
            for one in targets(inventory)
            if one.expected
        }
        found = known(json.loads(json.dumps({**inventory.to_dict(), "readings": readings, "targets": expected})))
        path = FIXTURES / name / "inventory.json"
        if update_golden:
            path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        differing += [] if json.loads(path.read_text(encoding="utf-8")) == found else [name]
    assert differing == []


def test_inventories_have_the_published_shape_and_explain_what_is_unknown(inventories):
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    assert [name for name, one in inventories.items() if not validator.is_valid(one.to_dict())] == []
    fields = StorageDeviceInfo.__dataclass_fields__
    assert [
        (name, disk.device_path, field)
        for name, one in inventories.items()
        for disk in one.storage
        for field in fields
        if getattr(disk, field) is None and not disk.reasons.get(field)
    ] == []
    assert [
        (name, one.model)
        for name, inventory in inventories.items()
        for one in inventory.accelerators
        if one.model == "unknown" or not (one.seen_by == "bus" or one.index is not None)
    ] == []


def test_recordings_state_their_source_and_name_no_person_or_serial_number(inventories):
    wrong = [name for name in inventories if len((FIXTURES / name / "SOURCE.md").read_text()) <= 80]
    for name in inventories:
        for file in (one for one in (FIXTURES / name).rglob("*") if one.is_file() and one.name != "SOURCE.md"):
            text = file.read_text(encoding="utf-8", errors="replace")
            if without_identity(text) != text or "S466NX0M" in text:
                wrong.append(str(file))
    assert wrong == []


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """The values in nested tables and lists, by their paths."""
    if not isinstance(value, dict | list):
        return {path: value}
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    return {name: one for key, part in inside for name, one in flat(part, f"{path}/{key}").items()}


def test_changes_of_machines_have_the_effects_that_were_reviewed(tmp_path, update_golden):
    """An effect is what differs in the inventory, with the reasons of vendors and the memory in use; None is gone."""
    path = FIXTURES / "changed_machines.json"
    cases = json.loads(path.read_text(encoding="utf-8"))

    def read(found: ReplayedMachine) -> dict[str, Any]:
        inventory = detect(found)
        backends = {one.vendor: registered_vendors().found[one.vendor.lower()](found) for one in inventory.vendors}
        used = {name: one.get_memory_usage(0) for name, one in backends.items() if one.get_device_count()}
        reasons = {one.vendor: one.reason for one in inventory.vendors}
        return flat({**known({**inventory.to_dict(), "used": used}), "reasons": reasons})

    before = {name: read(machine(name)) for name in {case["machine"] for case in cases}}
    differing = []
    for number, case in enumerate(cases):
        parts = {name: case[name] for name in ("files", "libraries", "remove") if name in case}
        entries = case.get("index", {})
        copy = changed(case["machine"], tmp_path / str(number), index=lambda one, e=entries: one.update(e), **parts)
        after, old = read(copy), before[case["machine"]]
        effect = {name: after.get(name) for name in {*after, *old} if after.get(name) != old.get(name)}
        differing += [case["title"]] if effect != case["effect"] else []
        case["effect"] = dict(sorted(effect.items()))
    if update_golden:
        path.write_text(json.dumps(cases, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert update_golden or differing == []


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
            assert index is not None or "isn't a recording" in capsys.readouterr().err


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
        with pytest.raises(BrokenInput, match="is not valid for a machine"):
            ReplayedMachine(folder)


def test_a_recording_overwrites_nothing_else(tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "letter.txt").write_text("x")
    for name in ("file", "folder"):
        arguments = ["doctor", "--no-check", "--record", str(tmp_path / name)]
        assert run_command_line(main, arguments, program="hardware") == 4
        assert "isn't a recording" in capsys.readouterr().err
    both = ["doctor", "--record", str(tmp_path / "new"), "--replay", str(computer("vm-virtio").folder)]
    assert run_command_line(main, both, program="hardware") == 4


def test_a_program_that_is_not_installed_is_a_reason():
    assert LiveMachine().run("no-such-program-here").reason == "no-such-program-here isn't installed"
