"""Commands of `hwcompat devices` that show what devices can do, and choose one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from hwcompat.hardware.hardware_commands import OUTPUT, SECONDS, as_json, deliver, formats

if TYPE_CHECKING:
    from hwcompat.hardware.detection import HardwareInfo
    from hwcompat.plugins.stress.stress_result import StressRun


@click.command("capabilities", short_help="Print each device's memory and speed, with sources.")
@formats("table", "json")
@OUTPUT
def capabilities_command(format_: str, output: Path | None) -> int:
    """Print each device's memory and speed, with the source of each figure or the reason why it is unknown.

    \b
    Examples:
      hwcompat devices capabilities
      hwcompat devices capabilities --format json
    """
    from hwcompat.plugins.placement.adapter import HardwareAdapter
    from hwcompat.plugins.placement.placement_text import capabilities_text

    devices = HardwareAdapter(enable_hal=True).discover_devices()
    plain = {"schema_version": 1, "devices": [asdict(one) for one in devices]}
    deliver(as_json(plain) if format_ == "json" else capabilities_text(devices), output)
    return 0


@click.command("fit", short_help="Name the best device with at least this much memory and speed.")
@click.option("--memory-gb", type=SECONDS, default=0.0, show_default=True, help="Free memory, in 2^30 bytes.")
@click.option("--tflops", type=SECONDS, default=0.0, show_default=True, help="Speed; 0 means any.")
@click.option("--precision", default="float32", show_default=True, help="Precision of the speed.")
@click.option(
    "--vendor", "vendors", multiple=True, help="Preferred vendor, not a filter. Repeatable, most preferred first."
)
@formats("table", "json")
@OUTPUT
def fit_command(
    memory_gb: float, tflops: float, precision: str, vendors: tuple[str, ...], format_: str, output: Path | None
) -> int:
    """Name the best device with at least this much memory and speed, and why each other device was not chosen.

    \b
    Examples:
      hwcompat devices fit --memory-gb 10 --tflops 5
      hwcompat devices fit --memory-gb 40 --vendor nvidia --vendor amd

    \b
    Exit codes: 0 one fits, 1 none does.
    """
    from hwcompat.plugins.placement.adapter import HardwareAdapter
    from hwcompat.plugins.placement.placement_text import choice_dict, choice_text

    adapter = HardwareAdapter(enable_hal=True)
    found = adapter.get_optimal_device_hal(memory_gb, tflops, vendors, precision=precision)
    deliver(as_json(choice_dict(found)) if format_ == "json" else choice_text(found), output)
    return int(not found)


def keep_rates_of(run: StressRun, inventory: HardwareInfo) -> int:
    """Store the rates of real devices in a stress run for placement; return the number of devices."""
    from .placement_device import known_devices
    from .saved_rates import save_rates

    return len(save_rates(run, known_devices(inventory)))


COMMANDS = (capabilities_command, fit_command)
