"""Recordings of machines from anywhere (fixtures, `doctor --replay`): nothing but their own files is read, and names
in them are text wherever they are shown."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hostile import MARK
from readers import check_json, check_markdown, check_terminal
from rich.console import Console
from watched import Sentinel, Surroundings, refused_or

from hardware.detection import detect, targets
from hardware.doctor.hardware_diagnosis import diagnose_machine, diagnosis_text, kinds_of
from hardware.hardware_commands import as_json
from hardware.inventory.system.processor_telemetry import CpuTelemetry
from hardware.inventory.telemetry import DeviceSample, HostSample, Sample
from hardware.inventory_diff import comparison_text
from hardware.inventory_text import list_text
from hardware.machine import LiveMachine
from hardware.recording import INDEX, MachineRecorder, ReplayedMachine
from hwcompat.plugins.stress.monitor import View

ROOT = Path(__file__).parents[2]
MACHINES = sorted((ROOT / "test" / "fixtures" / "machines").iterdir())
SMALL = ROOT / "test" / "fixtures" / "machines" / "container-cgroup-v2"


def copied(machine: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(machine, to, symlinks=True)
    return to


def shown(folder: Path) -> None:
    """Everything that a person or program is shown of a recorded machine."""
    machine = ReplayedMachine(folder)
    inventory = detect(machine)
    check_terminal(list_text(inventory, "table"))
    check_terminal(list_text(inventory, "table", everything=True))
    check_json(list_text(inventory, "json"))
    check_markdown(list_text(inventory, "markdown"))
    diagnosis = diagnose_machine(inventory, targets(inventory), kinds_of(machine))
    check_terminal(diagnosis_text(diagnosis))
    check_json(as_json(diagnosis.to_dict()))


@pytest.mark.fuzz(60)
def test_an_index_is_whole_or_refused(fuzz: Any, place: Path, sentinel: Sentinel) -> None:
    folder = copied(SMALL, place / "machine")
    index = json.loads((folder / INDEX).read_text())
    read = []

    for hostile in fuzz:
        told = (
            hostile.retold(index, keep=("format",), share=0.05) if hostile.random() < 0.5 else hostile.changed(index)
        )
        (folder / INDEX).write_bytes(hostile.line(told))
        if refused_or(ReplayedMachine, folder) is not None:
            read.append(refused_or(shown, folder))
    assert read


@pytest.mark.fuzz(60)
def test_files_and_answers_of_a_machine_are_text(fuzz: Any, place: Path, sentinel: Sentinel) -> None:
    folders = [copied(machine, place / machine.name) for machine in MACHINES]
    whole = {
        folder: {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
        for folder in folders
    }

    for hostile in fuzz:
        folder = hostile.choice(folders)
        found = [path for path in whole[folder] if path.name not in (INDEX, "SOURCE.md")]
        chosen = hostile.sample(found, min(len(found), hostile.randint(1, 6)))
        for path in chosen:
            text = path.read_text(errors="replace")
            if path.suffix == ".json":
                told = (
                    hostile.changed(json.loads(text)) if hostile.random() < 0.5 else hostile.retold(json.loads(text))
                )
                path.write_bytes(hostile.line(told))
            else:
                words = text.split(" ")
                words[hostile.randrange(len(words))] = hostile.text()
                path.write_bytes(" ".join(words).encode(errors="replace"))
        refused_or(shown, folder)
        for path in chosen:
            path.write_bytes(whole[folder][path])


def test_nothing_outside_of_a_recording_is_read(place: Path) -> None:
    secret = place.parent / "secret"
    secret.write_text(f"model name : {MARK}-secret")
    folder = copied(SMALL, place / "machine")
    index = json.loads((folder / INDEX).read_text())
    for output in (str(secret), "../../secret", "commands/../../../secret"):
        index["commands"] = [{"words": ["tool"], "output": output}]
        (folder / INDEX).write_text(json.dumps(index))
        told = ReplayedMachine(folder).run("tool")
        assert told.value is None
        assert "outside" in told.reason
    (folder / "files" / "proc").mkdir(parents=True, exist_ok=True)
    for link, name in (("proc/linked", secret), ("proc/folder", place.parent), ("proc/up", "../../../..")):
        (folder / "files" / link).symlink_to(name)
    machine = ReplayedMachine(folder)
    assert machine.text("/proc/linked") is None
    assert machine.text("/proc/folder/secret") is None
    assert machine.text("/../../../secret") is None
    assert machine.names("/proc/folder") is None
    assert machine.names("/../../..") is None


class Climbing(LiveMachine):
    """A machine whose links lead up, as control groups and devices in containers do."""

    def text(self, path: str) -> str | None:
        return f"{MARK}"


def test_recording_writes_below_its_folder_alone(place: Path) -> None:
    around = Surroundings(place.parent, place)
    recorder = MachineRecorder(Climbing())
    for path in ("/sys/fs/cgroup/../../../../../escaped", "/../../../escaped", "/proc/cpuinfo", "/a/../../../../b\n"):
        recorder.text(path)
    written = recorder.write(place)
    around.check()
    assert (place / "files" / "proc" / "cpuinfo").read_text() == f"{MARK}\n"
    assert written


@pytest.mark.fuzz(40)
def test_the_live_view_shows_names_as_text(fuzz: Any, sentinel: Sentinel) -> None:
    for hostile in fuzz:
        view = View()
        device = DeviceSample(
            vendor=hostile.text(),
            index=0,
            device_type="gpu",
            model=hostile.text(),
            reason=hostile.choice(("", hostile.text())),
            throttle_reasons=(hostile.text(),),
        )
        host = HostSample(
            cpu=CpuTelemetry(throttle_reasons=(hostile.text(),)),
            cpu_model=hostile.text(),
            memory_used_bytes=None,
            memory_total_bytes=None,
            memory_reason=hostile.text(),
        )
        told = {hostile.text(): hostile.text()}
        view.add(Sample(time="2026-01-01T00:00:00", elapsed_s=1.0, host=host, devices=(device,), vendors=told))
        console = Console(width=hostile.choice((80, 140)), record=True, color_system=None, file=io.StringIO())
        console.print(view.render(console.width))
        check_terminal(console.export_text())


@pytest.mark.fuzz(60)
def test_what_differs_between_machines_is_text(fuzz: Any, place: Path, sentinel: Sentinel) -> None:
    from hardware.inventory_diff import compare_inventories
    from hardware.inventory_file import load_inventory

    whole = json.loads(list_text(detect(ReplayedMachine(SMALL)), "json"))
    path = place / "inventory.json"

    for hostile in fuzz:
        told = hostile.retold(whole, share=0.1) if hostile.random() < 0.5 else hostile.changed(whole)
        path.write_bytes(hostile.line(told))
        inventory = refused_or(load_inventory, path)
        if inventory is not None:
            found = compare_inventories(whole, inventory)
            check_terminal(comparison_text(found))
            check_json(as_json(found.to_dict()))
