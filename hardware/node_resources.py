"""What a machine offers a fleet: for each target that may be here, how many cells at a time. Ray takes it as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .expected_targets import why_absent
from .target import Target

if TYPE_CHECKING:
    from .detection import HardwareInfo

DEVICES_OF = {"cuda": "NVIDIA", "rocm": "AMD", "xpu": "Intel"}
"""Targets whose devices a fleet hands out one by one, with the vendor that lists them: Ray gives a task its GPU and
hides the others from it."""


def node_resources(inventory: HardwareInfo, cores: int | None = None) -> dict[str, int]:
    """Cells at a time by target, as `{"cpu": 8, "cuda": 2}`: what computes on the processor one a core (`cores`, here
    those that this process may use), a GPU that can be handed out one each, and of every other target one.

    What needs no device of its own is a target too (`tpu:xla-cpu`); simulated devices are none.
    """
    from .backends.factory import backend_class
    from .detection import targets
    from .testing.schedule import usable_cores

    found = [Target.parse(one.target) for one in targets(inventory) if one.expected]
    variants = [Target(name=name, variant=one) for name, one in (("tpu", "xla-cpu"), ("webgpu", "native"))]
    found += [one for one in variants if not why_absent(one, inventory)]
    real = [one for one in found if not backend_class(one.name).SIMULATED]
    return {str(one): _at_a_time(one, inventory, cores or usable_cores()) for one in real}


def _at_a_time(target: Target, inventory: HardwareInfo, cores: int) -> int:
    from .backends.factory import backend_class

    if backend_class(target.name).is_shared(target):
        return cores
    vendor = DEVICES_OF.get(target.name)
    here = [one for one in inventory.accelerators if one.vendor == vendor and one.device_type == "gpu"]
    return max(1, sum("hidden_by" not in one.extra_info for one in here))


def resources_text(inventory: HardwareInfo) -> str:
    """The resources as `ray start --resources` takes them, on one line."""
    return json.dumps(node_resources(inventory), sort_keys=True) + "\n"
