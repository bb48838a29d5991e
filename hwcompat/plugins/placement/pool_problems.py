"""What the resource pool of this process met, in the words of findings."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

from hardware.errors import HwCompatError
from reports.diagnose import identify
from reports.finding import Severity


def pool_problems() -> list[SimpleNamespace]:
    """What was met so far, and how full devices are now, as `add_error` takes it; nothing where nobody asked the pool
    for anything.

    Low-memory mode is a remark, memory pressure as bad as its error type, a failed load what its error shows.
    """
    if "hwcompat.plugins.placement.pool.pool" not in sys.modules:
        return []
    from hwcompat.plugins.placement.pool.pool import used_global_pool

    pool = used_global_pool()
    if pool is None:
        return []
    pool.check_memory()
    found = []
    for incident in pool.incidents():
        told: dict[str, Any] = {"error_type": "memory_pressure"}
        if incident.kind == "low_memory":
            told["severity"] = Severity.INFO
        elif incident.kind == "failed_load":
            diagnosis = identify(incident.error, recorded=incident.error_type)
            told = {"error_type": diagnosis.error_type, "severity": diagnosis.severity, "cause": diagnosis.cause}
            told["model_name"] = incident.model or None
        message = f"{incident.text} ({incident.count} times)" if incident.count > 1 else incident.text
        found.append(SimpleNamespace(**told, hardware_type=incident.device.partition(":")[0], message=message))
    return found


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
