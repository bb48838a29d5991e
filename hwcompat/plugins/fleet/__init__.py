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
        "distributed": ".ray_job:run_on_ray",
        "host": ".lab_run:run_in_lab",
        "host_inventory": ".lab_run:inventory_of_host",
    },
)
