"""What the resource pool of this process met, in the words of findings."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .diagnosis import identify
from .finding import Severity

if TYPE_CHECKING:
    from hardware.resource_pool import Incident


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
