"""Placement: devices with the sources of their figures, and workloads assigned to them.

`placement_device.py` holds the values that the other modules share.
"""

from __future__ import annotations

from hwcompat.hardware.plugins import Plugin

PLUGIN = Plugin(
    name="placement",
    package=__name__,
    commands=(".placement_commands:COMMANDS",),
    jobs={
        "place": ".place_command:report_placement",
        "mesh": ".mesh_command:report_mesh",
        "keep_rates": ".placement_commands:keep_rates_of",
    },
    checks={"resource_pool": ".pool_problems:check_pool"},
    problems={"resource_pool": ".pool_problems:pool_problems"},
)
