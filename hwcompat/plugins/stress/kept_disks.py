"""Keep the speeds of disks that a stress test measured: `devices list` shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwcompat.hardware.inventory.system.storage.measured_speeds import MeasuredSpeed, save_speed

from .disk_reads import AT_RANDOM, IN_ORDER, WRITES, disk_of
from .stress_result import StressEnding
from .stress_targets import is_storage

if TYPE_CHECKING:
    from hwcompat.hardware.detection import HardwareInfo

    from .stress_result import StressRun


def keep_disks(run: StressRun, inventory: HardwareInfo) -> int:
    """Store the speeds of the disks of a run; return their number."""
    disks = {one.device_path: one for one in inventory.storage}
    kept = 0
    for result in run.results:
        if not is_storage(result.target) or result.ending is not StressEnding.MEASURED:
            continue
        disk, found = disks[str(disk_of(result.target))], {one.kernel: one for one in result.bandwidths}
        random = found[AT_RANDOM]
        writes = found.get(WRITES)
        speed = MeasuredSpeed(
            max_read_mbps=round(1000 * (found[IN_ORDER].gbps or 0.0)),
            max_write_mbps=None if writes is None else round(1000 * (writes.gbps or 0.0)),
            max_iops=round(random.passes / random.seconds),
            date=run.started_at[:10],
        )
        save_speed(disk, speed)
        kept += 1
    return kept
