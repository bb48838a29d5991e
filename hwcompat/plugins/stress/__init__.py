"""Stress runs: sustained load on devices, with rates, memory bandwidth, temperature, power and stability.

`stress_targets.py` resolves device names, `stress_child.py` runs the load of one device in a child process with
`loads.py` on `load_devices.py`, `stress_run.py` starts these processes and samples telemetry, `summary.py` computes
the results (`stress_result.py`), and `limits.py` holds the limits of the hardware.
"""

from __future__ import annotations

from hwcompat.hardware.plugins import Plugin

PLUGIN = Plugin(
    name="stress",
    package=__name__,
    commands=(".stress_commands:COMMANDS",),
    jobs={"stress": ".stress_page:show_stress"},
)
