"""What the resource pool of this process met, in the words of findings."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hardware.errors import HwCompatError
from reports.diagnosis import identify
from reports.finding import Severity

if TYPE_CHECKING:
    from hwcompat.plugins.placement.pool import Incident


@dataclass(frozen=True, kw_only=True)
class PoolProblem:
    """What `add_error` is given of one incident. No severity: that of the error type."""

    hardware_type: str
    error_type: str
    message: str
    severity: Severity | None = None
    model_name: str | None = None
    cause: str = ""


def pool_problems() -> list[PoolProblem]:
    """What was met so far, and how full devices are now; nothing where nobody asked the pool for anything."""
    if "hwcompat.plugins.placement.pool.pool" not in sys.modules:
        return []
    from hwcompat.plugins.placement.pool.pool import used_global_pool

    pool = used_global_pool()
    if pool is None:
        return []
    pool.check_memory()
    return [problem_of(incident) for incident in pool.incidents()]


def problem_of(incident: Incident) -> PoolProblem:
    """Low-memory mode is a remark, memory pressure as bad as its error type, a failed load what its error shows."""
    message = f"{incident.text} ({incident.count} times)" if incident.count > 1 else incident.text
    target = incident.device.partition(":")[0]
    if incident.kind != "failed_load":
        mild = Severity.INFO if incident.kind == "low_memory" else None
        return PoolProblem(hardware_type=target, error_type="memory_pressure", message=message, severity=mild)
    diagnosis = identify(incident.error, recorded=incident.error_type)
    return PoolProblem(
        hardware_type=target,
        error_type=diagnosis.error_type,
        message=message,
        severity=diagnosis.severity,
        model_name=incident.model or None,
        cause=diagnosis.cause,
    )


def check_pool() -> None:
    """A pool of its own loads once, finds again, and lets go; and it knows how much the host may hold.

    Raises `HwCompatError` if it doesn't.
    """
    from hwcompat.plugins.placement.pool import ResourcePool

    pool = ResourcePool()
    first = pool.get_resource("component", "resource_pool", object)
    again = pool.get_resource("component", "resource_pool", object)
    told = pool.get_stats()
    pool.clear()
    left = pool.get_stats()["resources"]
    if first is not again or told["loads"] != 1 or left:
        raise HwCompatError("the resource pool doesn't work", why=f"{told['loads']} loads, {len(left)} left over")
    if told["devices"]["cpu"]["budget_bytes"] is None:
        raise HwCompatError("the resource pool has no budget for the host", why=told["devices"]["cpu"]["budget_from"])
