"""Sustained load on devices, with what they did meanwhile: rates, memory bandwidth, heat, power, stability.

`targets.py` says what is loaded, `child.py` runs the load of one device in a process of its own over `products.py`
and `memory.py`, `run.py` starts these processes and samples meanwhile, `result.py` holds what came of it, `limits.py`
what the hardware could do at most.
"""

from __future__ import annotations

from hardware.plugins import Plugin

PLUGIN = Plugin(
    name="stress",
    package=__name__,
    commands=(".commands:COMMANDS",),
    jobs={"stress": ".stress_command:show_stress"},
)
