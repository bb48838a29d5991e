"""Runs suites on other machines, and takes home what they saw: the same suites, the same evidence, the same levels.

Each of its ways (`ray_*.py` on a cluster, `lab_*.py` over ssh) packs a bundle, has it run where the targets are, and
merges the evidence. Verdicts are given here.
"""

from __future__ import annotations

from hardware.plugins import Plugin

PLUGIN = Plugin(
    name="fleet",
    package=__name__,
    jobs={
        "distributed": ".commands:run_on_cluster",
        "host": ".commands:run_on_host",
        "host_inventory": ".commands:inventory_of_host",
    },
)
