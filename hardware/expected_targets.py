"""The targets that may be available on a machine, decided by each target's class from the inventory alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from .command_names import as_runnable
from .inventory.target_status import TargetStatus as TargetStatus
from .target import Target

if TYPE_CHECKING:
    from .inventory.hardware_info import HardwareInfo


def expected_targets(inventory: HardwareInfo, names: Iterable[str]) -> tuple[TargetStatus, ...]:
    """Return the status of each named target on the machine of `inventory`. External targets aren't imported; a
    probe can test them."""
    from .backends.factory import declarations_of

    return tuple(replace(declarations_of(name).expected(inventory), target=name) for name in names)


def targets(inventory: HardwareInfo) -> tuple[TargetStatus, ...]:
    """Return for every known target whether it may be available, and the reason if not. It isn't tested."""
    from .backends.factory import known_targets

    return expected_targets(inventory, known_targets())


def why_absent(target: Target, inventory: HardwareInfo) -> str:
    """Return why a target with its variant can't be available, or an empty text."""
    from .backends.factory import declarations_of

    declared = declarations_of(target.name)
    if needed := declared.VARIANTS_NEED.get(target.variant):
        package, command = needed
        if absent := declared.variant_absent(target.variant, inventory):
            return absent
        return "" if inventory.packages.get(package) else f"{package} isn't set up: {as_runnable(command)}"
    (status,) = expected_targets(inventory, [target.name])
    return "" if status.expected else status.reason


def node_resources(inventory: HardwareInfo, cores: int | None = None) -> dict[str, int]:
    """Return how many cells of each target can run at a time, such as `{"cpu": 8, "cuda": 2}`: one per core for
    targets on the processor (`cores`, by default those available to this process), one per GPU that can be
    assigned, and one for every other target.

    Targets that need no device, such as `tpu:xla-cpu`, are included; simulated devices aren't.
    """
    from .backends.factory import backend_class, built_in_targets, known_targets
    from .inventory.system.processor import usable_cores

    found = [Target.parse(one.target) for one in expected_targets(inventory, known_targets()) if one.expected]
    variants = [
        Target(name=name, variant=one) for name in built_in_targets() for one in backend_class(name).VARIANTS_NEED
    ]
    found += [one for one in variants if not why_absent(one, inventory)]
    real = [one for one in found if not backend_class(one.name).SIMULATED]
    return {str(one): _at_a_time(one, inventory, cores or usable_cores()) for one in real}


def _at_a_time(target: Target, inventory: HardwareInfo, cores: int) -> int:
    from .backends.factory import backend_class

    backend = backend_class(target.name)
    if backend.is_shared(target):
        return cores
    vendor = backend.VENDOR if backend.NEEDS_TORCH_BUILD else None
    here = [one for one in inventory.accelerators if one.vendor == vendor and one.device_type == "gpu"]
    return max(1, sum("hidden_by" not in one.extra_info for one in here))
