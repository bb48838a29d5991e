"""What a cluster is asked and told, without one: resources, reports of nodes, evidence that is believed or not."""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from recorded_machines import machine

from hardware.cell import Cell
from hardware.detection import detect
from hardware.errors import BrokenInput, UsageError
from hardware.evidence.record import CheckLine, Outcome, RunLine
from hardware.evidence.store import read_folder
from hardware.evidence.writer import EvidenceWriter, new_run_id, now
from hardware.expected_targets import node_resources
from hardware.inventory_text import list_text
from hardware.target import Target
from hardware.testing.suite_file import SuiteFile
from hwcompat.plugins.fleet import ray_node
from hwcompat.plugins.fleet.nodes import Demand, FleetNode, demand_of, notes_on, refuse_unready
from hwcompat.plugins.fleet.ray_cluster import connected
from hwcompat.plugins.fleet.ray_evidence import done_before, longest_first, take_in

CELL, OTHER = "bert/fill-mask/cpu/float32", "gpt2/text-generation/cpu/float32"
VERDICT = {"level": "high"}
COMMAND = "python run_test_generation.py --model bert --run --distributed ray --address 127.0.0.1:6379"


def suite_of(cell: str = CELL) -> SuiteFile:
    return SuiteFile(
        path=Path(f"test_{Cell.parse(cell).slug}.py"),
        cell=Cell.parse(cell),
        subject="tiny",
        checks=("builds", "matches_reference"),
        suite_hash="h",
    )


def line_of(run_id: str, cell: str, check: str, **changes: Any) -> CheckLine:
    model, task, target, precision = cell.split("/")
    return CheckLine(
        run_id=run_id,
        cell_id=cell,
        check_name=check,
        outcome=changes.pop("outcome", Outcome.PASSED),
        subject="tiny",
        requested_target=target,
        actual_target=target,
        precision=precision,
        model=model,
        task=task,
        suite_hash=changes.pop("suite_hash", "h"),
        started_at=now(),
        duration_s=0.1,
        **changes,
    )


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


def test_what_a_node_saw_is_taken_in_as_it_is(tmp_path: Path) -> None:
    answer = ran(tmp_path / "there")
    run_id, lines = take_in(answer, [suite_of()], {CELL: VERDICT}, tmp_path / "home")
    assert run_id == answer["run_id"]
    assert [one.check_name for one in lines[CELL]] == ["builds", "matches_reference"]
    assert read_folder(tmp_path / "home") == read_folder(tmp_path / "there")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"end": False}, "isn't that of one finished run"),
        ({"checks": ("builds",)}, "not every check has a line"),
        ({"node": "node-2"}, "of another node"),
        ({"plan": (suite_of().planned({"level": "none"}),)}, "isn't the stored one"),
        ({"plan": (replace(suite_of(), suite_hash="other").planned(VERDICT),)}, "another suite ran"),
        ({"plan": (suite_of().planned(VERDICT), suite_of(OTHER).planned(VERDICT))}, "of other cells"),
    ],
)
def test_what_is_not_the_whole_of_what_was_sent_is_refused(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    answer = ran(tmp_path / "there", **changes)
    with pytest.raises(BrokenInput, match=why):
        take_in(answer, [suite_of()], {CELL: VERDICT}, tmp_path / "home")
    assert not list(tmp_path.glob("home/*"))


def test_lines_that_were_changed_on_their_way_are_refused(tmp_path: Path) -> None:
    answer = ran(tmp_path / "there")
    answer["files"] = {name: data.replace(b'"builds"', b'"buiLds"', 1) for name, data in answer["files"].items()}
    with pytest.raises(BrokenInput):
        take_in(answer, [suite_of()], {CELL: VERDICT}, tmp_path / "home")


def test_no_file_of_an_answer_leaves_its_folder(tmp_path: Path) -> None:
    answer = ran(tmp_path / "there")
    answer["files"] = {f"../../{name}": data for name, data in answer["files"].items()}
    take_in(answer, [suite_of()], {CELL: VERDICT}, tmp_path / "deep" / "er" / "home")
    assert {path.parent.name for path in tmp_path.rglob("*.jsonl")} == {"there", "home"}


def test_an_error_of_a_node_is_its_reason(tmp_path: Path) -> None:
    with pytest.raises(BrokenInput, match="torch isn't installed"):
        take_in({"error": "torch isn't installed", "files": {}}, [suite_of()], {CELL: VERDICT}, tmp_path)


def test_the_same_command_goes_on_with_what_is_missing(tmp_path: Path) -> None:
    here = {"torch": "2.13.0"}
    assert done_before(tmp_path / "none", [suite_of()], COMMAND, {}, here) == {}
    run_id = ran(tmp_path)["run_id"]
    ran(tmp_path, OTHER, checks=("builds",), end=False)
    suites = [suite_of(), suite_of(OTHER)]
    again = COMMAND.replace("6379", "6380") + " --resume"
    assert done_before(tmp_path, suites, again, {}, here) == {CELL: run_id}
    assert done_before(tmp_path, suites, COMMAND.replace("bert", "gpt2"), {}, here) == {}
    assert done_before(tmp_path, suites, again, {"machine-1": {"torch": "2.14.0"}}, here) == {}
    assert done_before(tmp_path, [replace(suites[0], suite_hash="new")], again, {}, here) == {}


def test_a_newer_run_of_a_cell_that_was_cut_off_counts_and_not_the_one_before(tmp_path: Path) -> None:
    ran(tmp_path)
    ran(tmp_path, checks=("builds",), end=False)
    assert done_before(tmp_path, [suite_of()], COMMAND, {}, {"torch": "2.13.0"}) == {}


@pytest.mark.parametrize(
    ("demand", "offers", "fits"),
    [
        (Demand(target="cpu", cpus=1), {"cpu": 1, "CPU": 1}, True),
        (Demand(target="cpu", cpus=1), {"cpu": 1, "CPU": 0}, False),
        (Demand(target="cpu", cpus=1), {"CPU": 8}, False),
        (Demand(target="cuda", gpus=1), {"cuda": 1}, False),
        (Demand(target="openvino:NPU"), {"openvino:NPU": 1}, True),
        (Demand(target="cpu"), {"cpu": 0.5}, False),
    ],
)
def test_a_task_fits_a_node_that_offers_all_of_it(demand: Demand, offers: dict[str, float], fits: bool) -> None:
    assert demand.fits(offers) is fits


def test_what_computes_on_the_processor_takes_one_and_a_gpu_is_rays_to_hand_out() -> None:
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


def test_versions_that_moved_and_targets_that_cannot_be_are_said() -> None:
    node = FleetNode(id="abc", offers={"cuda": 1, "node:127.0.0.1": 1}).reporting(REPORT)
    said = " ".join(notes_on([node], {"python": "3.11.7", "torch": "2.14.0"}, ["cuda"]))
    assert "node abc on machine-1 offers cuda 1: " in said
    assert "torch 2.13.0 (here 2.14.0)" in said
    assert "python 3.11.7 (here" not in said
    assert "offers cuda, which can't be there: no NVIDIA GPU is on the bus" in said
    assert not list(notes_on([node], {}, ["cpu"]))


def test_a_node_without_torch_is_named_before_anything_runs() -> None:
    lacking = FleetNode(id="abc", offers={"cpu": 1}).reporting({**REPORT, "missing": ["torch"]})
    silent = FleetNode(id="def", offers={"cpu": 1}).reporting({"error": "no room"})
    refuse_unready([lacking, silent], ["openvino"])
    with pytest.raises(UsageError, match=r"abc lacks torch; def doesn't report \(no room\)"):
        refuse_unready([lacking, silent], ["cpu"])


def packed(text: str, name: str = "suite/run.py") -> tuple[str, bytes]:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr(name, text)
    return hashlib.sha256(data.getvalue()).hexdigest(), data.getvalue()


def test_a_bundle_that_is_another_is_never_run() -> None:
    with pytest.raises(ValueError, match="isn't the one that was sent"):
        ray_node.answer((packed("1")[0], lambda: packed("2")[1]), {})


@pytest.mark.parametrize("name", ["../out.py", "/tmp/hwcompat-out.py", "suite/../../out.py"])
def test_no_file_of_a_bundle_lies_outside_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ValueError, match="outside its folder"):
        ray_node.NodeRunner(packed("1", name)[1])
    assert list(tmp_path.rglob("*out.py")) == []


def test_a_runner_that_dies_is_told_by_its_last_words() -> None:
    runner = ray_node.NodeRunner(packed("import sys; sys.exit('out of luck')")[1])
    with pytest.raises(ray_node.RunnerLost, match="ended with 1: out of luck"):
        runner.ask({"do": "report"})
    runner.close()


def test_a_runner_ends_with_its_input(tmp_path: Path) -> None:
    text = f"import os, sys; print({{}}, flush=True); sys.stdin.read(); os.rmdir({str(tmp_path / 'x')!r})"
    (tmp_path / "x").mkdir()
    runner = ray_node.NodeRunner(packed(text)[1])
    assert runner.ask({}) == {}
    runner.close()
    assert not runner.is_alive
    assert not (tmp_path / "x").exists()
    assert not runner.root.exists()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("ray://127.0.0.1:10001", "address of Ray's client"),
        ("127.0.0.1", "is no address of a cluster"),
        ("127.0.0.1:99999", "is no address of a cluster"),
        ("127.0.0.1:1", "no Ray cluster answers"),
    ],
)
def test_an_address_where_no_cluster_is_is_refused_before_ray_is_asked(address: str, said: str) -> None:
    before = dict(os.environ)
    with pytest.raises(UsageError, match=said), connected(address, {}, 1):
        pass
    assert dict(os.environ) == before


def test_what_took_longest_before_is_handed_over_first(tmp_path: Path) -> None:
    never = "vit/image-classification/cpu/float32"
    assert longest_first([(CELL,), (OTHER,)], tmp_path / "nothing") == [0, 1]
    writer = EvidenceWriter(tmp_path, new_run_id())
    for cell, check, seconds in ((CELL, "builds", 1.0), (CELL, "matches_reference", 1.5), (OTHER, "builds", 2.0)):
        writer.write(replace(line_of(writer.run_id, cell, check), duration_s=seconds))
    writer.close()
    assert longest_first([(OTHER,), (never,), (CELL,)], tmp_path) == [1, 2, 0]
    assert longest_first([(OTHER,), (CELL, OTHER)], tmp_path) == [1, 0]
