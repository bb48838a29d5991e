"""Incidents of this process's resource pool as findings."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

from hwcompat.hardware.errors import HwCompatError
from hwcompat.reports.diagnose import identify
from hwcompat.reports.finding import Severity


def pool_problems() -> list[SimpleNamespace]:
    """Return the incidents so far, and the current memory use, as arguments of `add_error`; empty if the pool wasn't
    used.

    Low-memory mode is a remark; memory pressure and failed loads have the severity of their error types.
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
        fields: dict[str, Any] = {"error_type": "memory_pressure"}
        if incident.kind == "low_memory":
            fields["severity"] = Severity.INFO
        elif incident.kind == "failed_load":
            diagnosis = identify(incident.error, recorded=incident.error_type)
            fields = {"error_type": diagnosis.error_type, "severity": diagnosis.severity, "cause": diagnosis.cause}
            fields["model_name"] = incident.model or None
        message = f"{incident.text} ({incident.count} times)" if incident.count > 1 else incident.text
        found.append(SimpleNamespace(**fields, hardware_type=incident.device.partition(":")[0], message=message))
    return found


def check_pool() -> None:
    """Check that a pool loads once, finds the resource again, releases it, and knows the memory of the host.

    Raises `HwCompatError` if it doesn't.
    """
    from hwcompat.plugins.placement.pool import ResourcePool

    pool = ResourcePool()
    first = pool.get_resource("component", "resource_pool", object)
    again = pool.get_resource("component", "resource_pool", object)
    info = pool.get_stats()
    pool.clear()
    left = pool.get_stats()["resources"]
    if first is not again or info["loads"] != 1 or left:
        raise HwCompatError("the resource pool doesn't work", why=f"{info['loads']} loads, {len(left)} not released")
    if info["devices"]["cpu"]["budget_bytes"] is None:
        raise HwCompatError("the resource pool has no budget for the host", why=info["devices"]["cpu"]["budget_from"])
