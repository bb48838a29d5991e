"""Splits over real accelerators of one kind, by NCCL, RCCL or oneCCL: skipped by name where there aren't two."""

from __future__ import annotations

import pytest

from hardware.basic_detection import inventory_here
from hwcompat.plugins.placement.mesh.axes import COLLECTIVES, Split
from hwcompat.plugins.placement.mesh.mesh_input import mesh_input
from hwcompat.plugins.placement.mesh.mesh_plan import plan_mesh
from hwcompat.plugins.placement.mesh_command import run_check
from hwcompat.plugins.placement.placement_device import accelerators_of

pytestmark = [pytest.mark.gpu, pytest.mark.slow]


@pytest.mark.parametrize("target", [one for one in COLLECTIVES if one != "cpu"])
@pytest.mark.parametrize("split", [Split(data=2), Split(tensor=2), Split(pipeline=2)], ids=str)
def test_two_accelerators_give_what_one_device_gives(target: str, split: Split) -> None:
    devices = [one for one in accelerators_of(inventory_here()) if one.target == target]
    if len(devices) < 2:
        pytest.skip(f"{target}: {len(devices)} device(s) are here, and a mesh takes two")
    subject = mesh_input("llama")
    plan = plan_mesh(devices, subject.tiny_figures, split)
    found = run_check(subject, plan, 300)
    assert found.passed, found.broken or found.cases
    assert {one.device.partition(":")[0] for one in found.cases[0].ranks} == {"cuda" if target == "rocm" else target}
