"""Sustained load on devices, with what they did meanwhile: rates, memory bandwidth, heat, power, stability.

`stress_targets.py` says what is loaded, `stress_child.py` runs the load of one device in a process of its own with
`loads.py` on `load_devices.py`, `stress_run.py` starts these processes and samples meanwhile, `summary.py` makes the
results of `stress_result.py` of what came, `limits.py` says what the hardware could do at most.
"""

from __future__ import annotations

from hardware.plugins import Plugin

PLUGIN = Plugin(
    name="stress",
    package=__name__,
    commands=(".stress_commands:COMMANDS",),
    jobs={"stress": ".stress_page:show_stress"},
)
