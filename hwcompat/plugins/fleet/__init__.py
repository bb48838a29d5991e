"""Fleets: run suites on other machines and merge their evidence here.

`ray_*.py` uses a Ray cluster, `lab_*.py` uses ssh. Both pack a bundle, run it on the machine that has the targets,
and merge the evidence. Verdicts are computed here.
"""

from __future__ import annotations

from hwcompat.hardware.plugins import Plugin

PLUGIN = Plugin(
    name="fleet",
    package=__name__,
    jobs={
        "distributed": ".ray_job:run_on_ray",
        "host": ".lab_run:run_in_lab",
        "host_inventory": ".lab_run:inventory_of_host",
    },
)
