"""Plans of meshes: devices and layers of each rank, groups of ranks, and reasons against a split."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from recorded_machines import machine

from hardware.detection import detect
from hardware.errors import UsageError
from hwcompat.plugins.placement.mesh.axes import HOST, DeviceMesh, Split
from hwcompat.plugins.placement.mesh.mesh_check import environment_of
from hwcompat.plugins.placement.mesh.mesh_plan import DoesntFit, MeshPlan, MeshRefused, plan_mesh
from hwcompat.plugins.placement.mesh.model_figures import ModelFigures, cut
from hwcompat.plugins.placement.placement_device import Device, Figure, accelerators_of, processor_ranks

GIB = 2**30
LLAMA = ModelFigures(
    name="llama",
    dtype="bfloat16",
    parameters=6_700_000_000,
    layers=(GIB,) * 32,
    before=2 * GIB,
    after=2 * GIB,
    split_layers=(GIB,) * 32,
    divided={"attention heads": 32, "key-value heads": 8},
    tensor_plan="transformers' own tensor plan",
)


def device(name: str, vendor: str, gib: float | None) -> Device:
    memory = Figure(reason="its driver tells none") if gib is None else Figure(value=gib * GIB, source="driver")
    return Device(name=name, target=name.rpartition("/")[2].partition(":")[0], vendor=vendor, memory_total=memory)


def nvidia(count: int, gib: float | None = 80) -> list[Device]:
    return [device(f"cuda:{place}", "NVIDIA", gib) for place in range(count)]


def amd(count: int, gib: float | None = 192) -> list[Device]:
    return [device(f"rocm:{place}", "AMD", gib) for place in range(count)]


def devices_of(plan: MeshPlan) -> list[str]:
    return [one.device.name for one in plan.ranks]


def test_a_split_is_read_from_its_text() -> None:
    assert Split.parse("data=2, tensor=4") == Split(data=2, tensor=4)
    assert Split.parse("auto") is None
    assert str(Split(pipeline=2, tensor=2)) == "pipeline=2,tensor=2"
    assert str(Split()) == "one device"
    for text in ("", "data", "data=0", "data=-1", "data=٣", "rows=2", "data=2,data=2", "data=99999"):
        with pytest.raises(UsageError):
            Split.parse(text)
    with pytest.raises(UsageError, match="'tensor'"):
        Split.parse("tensr=2")


def test_ranks_of_a_tensor_group_are_neighbors_and_stages_are_far_apart() -> None:
    mesh = DeviceMesh(devices=tuple(nvidia(8)), split=Split(pipeline=2, data=2, tensor=2))
    assert mesh.groups("tensor") == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert mesh.groups("data") == ((0, 2), (1, 3), (4, 6), (5, 7))
    assert mesh.groups("pipeline") == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert [mesh.coordinates(rank) for rank in (1, 2, 4)] == [(0, 0, 1), (0, 1, 0), (1, 0, 0)]
    with pytest.raises(UsageError, match="twice"):
        DeviceMesh(devices=(nvidia(1)[0], nvidia(1)[0]), split=Split(data=2))


def test_auto_uses_the_fewest_devices_that_hold_the_model() -> None:
    plan = plan_mesh(nvidia(8, 24), LLAMA, None)
    assert plan.mesh.split == Split(tensor=2)
    assert [one.parameter_bytes for one in plan.ranks] == [20 * GIB, 20 * GIB]
    assert "one device" in plan.rejected[0]
    assert "36 GiB" in plan.rejected[0]
    assert "cuda:2" in plan.left_out[0]
    assert devices_of(plan_mesh([*nvidia(2, 16), *amd(1, 80)], LLAMA, None)) == ["rocm:0"]
    without_tensor_plan = replace(LLAMA, tensor_plan="", no_tensor="none")
    assert plan_mesh(nvidia(4, 24), without_tensor_plan, None).mesh.split == Split(pipeline=2)
    with pytest.raises(DoesntFit) as refusal:
        plan_mesh(nvidia(2, 8), LLAMA, None)
    assert "tensor=2: rank 0 needs 20 GiB on cuda:0, which has 7.2 GiB for parameters" in refusal.value.why


def test_vendors_are_joined_only_as_stages_through_the_host() -> None:
    plan = plan_mesh([*nvidia(2), *amd(2)], LLAMA, Split(pipeline=2, tensor=2))
    kinds = [(group.axis, group.ranks, group.backend) for group in plan.groups]
    assert ("tensor", (0, 1), "nccl (RCCL)") in kinds
    assert ("tensor", (2, 3), "nccl") in kinds
    assert ("pipeline", (0, 2), HOST) in kinds
    assert len({one.device.vendor for one in plan.ranks if one.coordinates[0] == 0}) == 1
    with pytest.raises(MeshRefused, match="only be stages of a pipeline") as refusal:
        plan_mesh([*nvidia(2), *amd(2)], LLAMA, Split(tensor=4))
    assert "2 of NVIDIA cuda" in refusal.value.why
    with pytest.raises(MeshRefused, match="only be stages of a pipeline"):
        plan_mesh([*nvidia(1), *amd(1)], LLAMA, Split(data=2))


def test_a_device_without_collectives_may_be_a_stage_and_not_in_a_group() -> None:
    devices = [device("cpu", "", 64), device("simulated", "simulated", None)]
    assert plan_mesh(devices, LLAMA, Split(pipeline=2)).groups[0].backend == HOST
    with pytest.raises(MeshRefused):
        plan_mesh([*devices[1:], device("lab2/simulated", "simulated", None)], LLAMA, Split(data=2))


def test_layers_are_divided_by_memory() -> None:
    plan = plan_mesh([*amd(1, 16), *nvidia(1, 80)], LLAMA, Split(pipeline=2))
    counts = {one.device.name: one.layers[1] - one.layers[0] for one in plan.ranks}
    assert counts == {"rocm:0": 4, "cuda:0": 28}
    assert any("uneven" in reason for reason in plan.reasons)

    figures = replace(LLAMA, layers=(5, 1, 1, 7, 2, 2, 3), split_layers=(0,) * 7, before=4, after=1)
    for memory in ((16.0, 80.0), (80.0, 16.0, 16.0), (5.0, 1.0, 1.0, 9.0)):
        places = itertools.combinations(range(1, 7), len(memory) - 1)
        every = [tuple(itertools.pairwise((0, *stops, 7))) for stops in places]
        fullest = {
            stages: max(figures.part_bytes(*part, 1) / own for part, own in zip(stages, memory, strict=True))
            for stages in every
        }
        assert fullest[cut(figures, 1, memory)] == min(fullest.values()), memory


def test_every_reason_against_a_split_is_given() -> None:
    figures = replace(LLAMA, divided={"attention heads": 6}, layers=(GIB,) * 2, split_layers=(GIB,) * 2, batch=3)
    with pytest.raises(MeshRefused) as refusal:
        plan_mesh(nvidia(4), figures, Split(pipeline=3, data=2, tensor=4))
    for part in (
        "4 doesn't divide 6 attention heads",
        "2 layer(s), fewer than stages",
        "a batch of 3",
        "needs 24 device(s), and there are 4",
    ):
        assert part in refusal.value.why
    with pytest.raises(MeshRefused, match="no tensor plan for gpt2"):
        plan_mesh(nvidia(2), replace(LLAMA, tensor_plan="", no_tensor="no tensor plan for gpt2"), Split(tensor=2))
    with pytest.raises(MeshRefused, match="pass on more"):
        plan_mesh(nvidia(2), replace(LLAMA, no_pipeline="its layers pass on more"), Split(pipeline=2))


def test_unknown_memory_is_not_shown_to_fit() -> None:
    plan = plan_mesh([*nvidia(1, 80), *nvidia(2, None)[1:]], LLAMA, Split(pipeline=2))
    assert plan.ranks[1].room_bytes is None or plan.ranks[0].room_bytes is None
    assert any("its part may not fit" in reason for reason in plan.reasons)


def test_a_device_that_runs_no_torch_module_is_left_out_with_the_reason() -> None:
    plan = plan_mesh([*nvidia(1), device("qnn:0", "Qualcomm", 16)], LLAMA, None)
    assert "qnn runs whole exported graphs" in plan.left_out[0]
    laptop = accelerators_of(detect(machine("intel/core-ultra-laptop")))
    plan = plan_mesh(laptop, replace(LLAMA, layers=(1,)), Split())
    assert plan.left_out == ("intel-npu:1: torch has no target for it",)


def test_devices_of_recorded_machines_have_the_memory_that_their_driver_reports() -> None:
    eight = accelerators_of(detect(machine("nvidia/h100-x8")))
    mixed = [*accelerators_of(detect(machine("amd/mi300x-x2")), "lab2"), *(replace(one) for one in eight[:2])]
    assert [one.name for one in eight] == [f"cuda:{place}" for place in range(8)]
    assert all(one.memory_total.value and one.memory_total.value > 79 * GIB for one in eight)
    assert [one.name for one in mixed[:2]] == ["lab2/rocm:0", "lab2/rocm:1"]
    plan = plan_mesh(mixed, replace(LLAMA, layers=(6 * GIB,) * 32, split_layers=(6 * GIB,) * 32), None)
    assert plan.mesh.split.pipeline > 1 or len({one.device.vendor for one in plan.ranks}) == 1
    (slice_,) = accelerators_of(detect(machine("nvidia/h100-mig")))
    assert 0 < (slice_.memory_total.value or 0) < 10 * GIB
    (shared,) = accelerators_of(detect(machine("nvidia/jetson-orin")))
    assert shared.memory_total.value


def test_ranks_on_one_processor_share_its_memory() -> None:
    inventory = detect(machine("machines/xeon-two-sockets"))
    alone, (first, *_) = processor_ranks(inventory, 1), processor_ranks(inventory, 4)
    assert alone[0].memory_total.value is not None
    assert first.memory_total.value == alone[0].memory_total.value // 4


def test_each_rank_hashes_in_its_own_way_and_stays_on_this_machine() -> None:
    first, second, again = (environment_of(rank, 4) for rank in (0, 1, 0))
    assert first["PYTHONHASHSEED"] == again["PYTHONHASHSEED"] != second["PYTHONHASHSEED"]
    assert {first[name] for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")} <= {"lo", "lo0"}
    assert first["MASTER_ADDR"] == "127.0.0.1"
