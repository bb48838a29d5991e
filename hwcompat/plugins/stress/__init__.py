"""Sustained load on devices, with what they did meanwhile: rates, memory bandwidth, heat, power, stability.

`targets.py` says what is loaded, `child.py` runs the load of one device in a process of its own with `loads.py` on
`devices.py`, `run.py` starts these processes and samples meanwhile, `summary.py` makes the results of `result.py` of
what came, `limits.py` says what the hardware could do at most.
"""

from __future__ import annotations

from hardware.plugins import Plugin

PLUGIN = Plugin(
    name="stress",
    package=__name__,
    commands=(".commands:COMMANDS",),
    jobs={"stress": ".page:show_stress"},
)
