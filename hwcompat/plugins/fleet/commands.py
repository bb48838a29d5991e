"""What `--distributed` and `--host` do: the cells of a run elsewhere, and what another machine has."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from generators.options import Options
from generators.suites.files import WrittenSuite
from hardware.errors import UsageError
from hardware.front_door import note
from hardware.testing.runner import Limits
from reports.progress_bar import progress_on

from .lab_host import LabHost
from .lab_inventory import lab_inventory
from .lab_run import LabRequest, run_in_lab
from .ray_job import RayRun, run_on_ray

if TYPE_CHECKING:
    from generators.job import JobResult
    from generators.project.planning import ProjectRun
    from hardware.detection import HardwareInfo


def inventory_of_host(asked: Options) -> HardwareInfo:
    """What the machine has that `--host` names."""
    assert asked.host
    return lab_inventory(LabHost.parse(asked.host, asked.host_python))


def run_on_cluster(
    asked: Options, written: Sequence[WrittenSuite], inventory: HardwareInfo, limits: Limits, command: str
) -> JobResult:
    """Run suites on the nodes of a Ray cluster."""
    run = RayRun(
        address=asked.address,
        evidence=asked.evidence,
        command=command,
        limits=limits,
        resume=asked.resume,
        pytest_arguments=asked.pytest_arguments,
        progress=progress_on(sys.stderr),
        on_note=note,
    )
    return run_on_ray(written, inventory, run)


def run_on_host(
    asked: Options,
    host: str,
    written: Sequence[WrittenSuite],
    inventory: HardwareInfo,
    project: ProjectRun | None,
    command: str,
) -> JobResult:
    """Run suites on the machine that `host` names. Raises `UsageError` where the project file has timeouts."""
    if project and project.timeouts and not asked.timeout:
        raise UsageError(
            "the project file's timeouts aren't passed to another machine",
            fix="Name one for all checks with --timeout S, which comes before them.",
        )
    return run_in_lab(
        written,
        LabHost.parse(host, asked.host_python),
        inventory,
        LabRequest(
            machine=asked.machine,
            timeout_s=asked.timeout,
            jobs=asked.jobs,
            allow_fallback=asked.allow_fallback,
            resume=asked.resume,
            checkpoints=asked.host_checkpoints,
        ),
        evidence=asked.evidence,
        command=command,
        patience_s=asked.host_patience,
        progress=progress_on(sys.stderr),
        on_note=note,
    )
