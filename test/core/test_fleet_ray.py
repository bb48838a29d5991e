"""Fleets on Ray without a cluster: resources, reports of nodes, and evidence of nodes that is accepted or refused."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from judged_cells import line
from recorded_machines import machine

from hardware.cell import Cell
from hardware.detection import detect
from hardware.errors import BrokenInput, UsageError
from hardware.evidence.record import CheckLine, RunLine
from hardware.evidence.store import read_folder
from hardware.evidence.writer import EvidenceWriter, new_run_id, now
from hardware.expected_targets import node_resources
from hardware.inventory_text import list_text
from hardware.target import Target
from hardware.testing.suite_file import SuiteFile
from hwcompat.plugins.fleet.nodes import Demand, FleetNode, demand_of, notes_on, refuse_unready
from hwcompat.plugins.fleet.ray_cluster import connected
from hwcompat.plugins.fleet.ray_evidence import done_before, longest_first, take_in

CELL, OTHER = "bert/fill-mask/cpu/float32", "gpt2/text-generation/cpu/float32"
VERDICT = {"level": "high"}
COMMAND = "hwcompat run --model bert --distributed ray --address 127.0.0.1:6379"


def suite_of(cell: str = CELL) -> SuiteFile:
    return SuiteFile(
        path=Path(f"test_{Cell.parse(cell).slug}.py"),
        cell=Cell.parse(cell),
        subject="tiny",
        checks=("builds", "matches_reference"),
        suite_hash="h",
    )


def line_of(run_id: str, cell: str, check: str, **changes: Any) -> CheckLine:
    model, task, target, _ = cell.split("/")
    where = {"model": model, "task": task, "requested_target": target, "actual_target": target}
    values = {"run_id": run_id, "cell_id": cell, "suite_hash": "h", "started_at": now()}
    return line(check, **{**where, **values, **changes})


def ran(
    folder: Path,
    cell: str = CELL,
    *,
    checks: tuple[str, ...] = ("builds", "matches_reference"),
    end: bool = True,
    **changes: Any,
) -> dict[str, Any]:
    """What a node answers that ran one cell, with its evidence as it lies in a folder of its own."""
    folder.mkdir(exist_ok=True)
    run = RunLine(
        run_id=new_run_id(),
        started_at=now(),
        command=COMMAND,
        machine="machine-1",
        inventory={},
        versions={"torch": "2.13.0"},
        plan=(suite_of(cell).planned(VERDICT),),
        node="node-1",
    )
    run = replace(run, **changes)
    writer = EvidenceWriter(folder, run.run_id)
    writer.write(run)
    for check in checks:
        writer.write(line_of(run.run_id, cell, check, suite_hash=run.plan[0].suite_hash))
    if end:
        writer.end("finished", {"passed": 2})
    writer.close()
    return {
        "run_id": run.run_id,
        "node": "node-1",
        "files": {path.name: path.read_bytes() for path in folder.glob(f"{run.run_id}*")},
    }


def test_evidence_of_a_node_is_merged_as_it_is(tmp_path: Path) -> None:
    answer = ran(tmp_path / "there")
    run_id, lines = take_in(answer, [suite_of()], {CELL: VERDICT}, tmp_path / "home")
    assert run_id == answer["run_id"]
    assert [one.check_name for one in lines[CELL]] == ["builds", "matches_reference"]
    assert read_folder(tmp_path / "home") == read_folder(tmp_path / "there")
    answer["files"] = {f"../../{name}": data for name, data in answer["files"].items()}
    take_in(answer, [suite_of()], {CELL: VERDICT}, tmp_path / "deep" / "er" / "home")
    assert {path.parent.name for path in tmp_path.rglob("*.jsonl")} == {"there", "home"}, "no file leaves its folder"


def test_evidence_that_differs_from_what_was_sent_is_refused(tmp_path: Path) -> None:
    changed = ran(tmp_path / "changed")
    changed["files"] = {name: data.replace(b'"builds"', b'"buiLds"', 1) for name, data in changed["files"].items()}
    answers = [
        (changed, "isn't one finished run"),
        ({"error": "torch isn't installed", "files": {}}, "torch isn't installed"),
    ]
    for number, (changes, why) in enumerate(
        (
            ({"end": False}, "isn't one finished run"),
            ({"checks": ("builds",)}, "not every check has a line"),
            ({"node": "node-2"}, "to another node"),
            ({"plan": (suite_of().planned({"level": "none"}),)}, "isn't the stored one"),
            ({"plan": (replace(suite_of(), suite_hash="other").planned(VERDICT),)}, "isn't the one that was sent"),
            ({"plan": (suite_of().planned(VERDICT), suite_of(OTHER).planned(VERDICT))}, "to other cells"),
        )
    ):
        answers.append((ran(tmp_path / str(number), **changes), why))
    for answer, why in answers:
        with pytest.raises(BrokenInput, match=why):
            take_in(answer, [suite_of()], {CELL: VERDICT}, tmp_path / "home")
    assert not list(tmp_path.glob("home/*"))


def test_the_same_command_goes_on_with_what_is_missing(tmp_path: Path) -> None:
    here = {"torch": "2.13.0"}
    assert done_before(tmp_path / "none", [suite_of()], COMMAND, {}, here) == {}
    run_id = ran(tmp_path)["run_id"]
    ran(tmp_path, OTHER, checks=("builds",), end=False)
    suites = [suite_of(), suite_of(OTHER)]
    again = COMMAND.replace("6379", "6380") + " --resume"
    earlier = "python run_test_generation.py --model bert --run --distributed ray"
    assert done_before(tmp_path, suites, earlier, {}, here) == {CELL: run_id}
    assert done_before(tmp_path, suites, again, {}, here) == {CELL: run_id}
    assert done_before(tmp_path, suites, COMMAND.replace("bert", "gpt2"), {}, here) == {}
    assert done_before(tmp_path, suites, again, {"machine-1": {"torch": "2.14.0"}}, here) == {}
    assert done_before(tmp_path, [replace(suites[0], suite_hash="new")], again, {}, here) == {}
    ran(tmp_path, checks=("builds",), end=False)  # a newer run of it was cut off
    assert done_before(tmp_path, [suite_of()], COMMAND, {}, here) == {}


def test_a_task_goes_to_a_node_that_offers_all_of_it() -> None:
    for demand, offers, fits in (
        (Demand(target="cpu", cpus=1), {"cpu": 1, "CPU": 1}, True),
        (Demand(target="cpu", cpus=1), {"cpu": 1, "CPU": 0}, False),
        (Demand(target="cpu", cpus=1), {"CPU": 8}, False),
        (Demand(target="cuda", gpus=1), {"cuda": 1}, False),
        (Demand(target="openvino:NPU"), {"openvino:NPU": 1}, True),
        (Demand(target="cpu"), {"cpu": 0.5}, False),
    ):
        assert demand.fits(offers) is fits, (demand, offers)
    nodes = (FleetNode(id="a", offers={"cuda": 2, "GPU": 2, "cpu": 4, "CPU": 4}),)
    assert demand_of(Target.parse("cpu"), nodes) == Demand(target="cpu", cpus=1)
    assert demand_of(Target.parse("cuda"), nodes) == Demand(target="cuda", gpus=1)
    assert demand_of(Target.parse("openvino:NPU"), nodes) == Demand(target="openvino:NPU")
    uncounted = (FleetNode(id="a", offers={"cuda": 1}),)
    assert demand_of(Target.parse("cuda"), uncounted).gpus == 0


def test_a_machine_offers_each_of_its_gpus_and_its_cores_and_nothing_simulated() -> None:
    inventory = detect(machine("nvidia/h100-x8"))
    offered = node_resources(inventory, cores=8)
    assert offered["cpu"] == 8
    assert offered["cuda"] == len([one for one in inventory.accelerators if one.vendor == "NVIDIA"])
    assert "simulated" not in offered
    assert json.loads(list_text(inventory, "ray")).keys() == offered.keys()


REPORT = {
    "machine": "machine-1",
    "versions": {"python": "3.11.7", "torch": "2.13.0"},
    "missing": [],
    "free_memory_bytes": 8 << 30,
    "targets": [{"target": "cuda", "expected": False, "reason": "no NVIDIA GPU is on the bus"}],
}


def test_notes_on_nodes_name_other_versions_absent_targets_and_missing_packages() -> None:
    node = FleetNode(id="abc", offers={"cuda": 1, "node:127.0.0.1": 1}).reporting(REPORT)
    said = " ".join(notes_on([node], {"python": "3.11.7", "torch": "2.14.0"}, ["cuda"]))
    assert "node abc on machine-1 offers cuda 1: " in said
    assert "torch 2.13.0 (here 2.14.0)" in said
    assert "python 3.11.7 (here" not in said
    assert "offers cuda, which isn't available on it: no NVIDIA GPU is on the bus" in said
    assert not list(notes_on([node], {}, ["cpu"]))
    lacking = FleetNode(id="abc", offers={"cpu": 1}).reporting({**REPORT, "missing": ["torch"]})
    silent = FleetNode(id="def", offers={"cpu": 1}).reporting({"error": "no room"})
    refuse_unready([lacking, silent], ["openvino"])
    with pytest.raises(UsageError, match=r"abc lacks torch; def doesn't report \(no room\)"):
        refuse_unready([lacking, silent], ["cpu"])


def test_an_address_without_a_cluster_is_refused_before_ray_is_asked() -> None:
    before = dict(os.environ)
    for address, reason in (
        ("ray://127.0.0.1:10001", "address of Ray's client"),
        ("127.0.0.1", "isn't an address of a cluster"),
        ("127.0.0.1:99999", "isn't an address of a cluster"),
        ("127.0.0.1:1", "no Ray cluster answers"),
    ):
        with pytest.raises(UsageError, match=reason), connected(address, {}, 1):
            pass
    assert dict(os.environ) == before


def test_the_cell_that_took_longest_before_goes_first(tmp_path: Path) -> None:
    never = "vit/image-classification/cpu/float32"
    assert longest_first([(CELL,), (OTHER,)], tmp_path / "nothing") == [0, 1]
    writer = EvidenceWriter(tmp_path, new_run_id())
    for cell, check, seconds in ((CELL, "builds", 1.0), (CELL, "matches_reference", 1.5), (OTHER, "builds", 2.0)):
        writer.write(replace(line_of(writer.run_id, cell, check), duration_s=seconds))
    writer.close()
    assert longest_first([(OTHER,), (never,), (CELL,)], tmp_path) == [1, 2, 0]
    assert longest_first([(OTHER,), (CELL, OTHER)], tmp_path) == [1, 0]
