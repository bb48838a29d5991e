"""Which parts are there: the packages that the product uses, whether its own parts work on this machine, and what the
resource pool of this process met."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hardware.errors import HwCompatError
from hardware.own_commands import as_runnable
from hardware.software import is_installed, package_versions

from .diagnosis import identify
from .finding import Severity

if TYPE_CHECKING:
    from hardware.resource_pool import Incident


_PACKAGES = Path(__file__).with_name("components.toml")


@dataclass(frozen=True, kw_only=True)
class Component:
    """One part. `state` is `available`, `missing`, `failed` or `unknown`; `severity` grades its absence."""

    name: str
    state: str
    version: str | None = None
    reason: str = ""
    severity: Severity = Severity.ERROR


def packages() -> tuple[Component, ...]:
    """The packages of `components.toml`, found without importing any of them."""
    listed = tomllib.loads(as_runnable(_PACKAGES.read_text(encoding="utf-8")))["package"]
    versions = package_versions(one["distribution"] for one in listed)
    found = []
    for one in listed:
        name, there = one["distribution"], is_installed(one["module"])
        found.append(
            Component(
                name=name,
                state="available" if there else "missing",
                version=versions[name] if there else None,
                reason="" if there else f"{name} isn't installed: {one['without']}",
                severity=Severity(one["severity"]),
            )
        )
    return tuple(found)


def own_parts(inventory: Callable[[], object]) -> tuple[Component, ...]:
    """The product's own parts, each tried once; one that fails doesn't stop the others. `inventory` detects."""
    parts: tuple[tuple[str, Callable[[], object]], ...] = (
        ("hardware_detection", inventory),
        ("model_classifier", _classifier),
        ("compatibility_rules", _rules),
        ("resource_pool", _pool),
    )
    return tuple(_tried(name, use) for name, use in parts)


def _tried(name: str, use: Callable[[], object]) -> Component:
    try:
        use()
    except HwCompatError as error:
        return Component(name=name, state="failed", reason=str(error))
    except Exception as error:  # a part that fails in any way is what this is here to report
        return Component(name=name, state="failed", reason=f"{type(error).__name__}: {error}")
    return Component(name=name, state="available")


def _classifier() -> object:
    from generators.models.catalog import load_catalog

    return load_catalog()


def _rules() -> object:
    from generators.compatibility.rules import load_rules

    return load_rules()


def _pool() -> object:
    """A pool of its own loads once, finds again, and lets go; and it knows how much the host may hold."""
    from hardware.resource_pool import ResourcePool

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
    return pool


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
    if "hardware.resource_pool.pool" not in sys.modules:
        return []
    from hardware.resource_pool.pool import used_global_pool

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
