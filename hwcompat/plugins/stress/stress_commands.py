"""The commands that monitor devices and put load on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from hwcompat.hardware.errors import NothingMatched, UsageError, did_you_mean, echo
from hwcompat.hardware.hardware_commands import LOAD, OUTPUT, PERIOD, SECONDS, as_json, deliver, formats, say
from hwcompat.hardware.plugins import plugins

if TYPE_CHECKING:
    from hwcompat.hardware.inventory.hardware_info import HardwareInfo

    from .stress_result import StressRun
    from .stress_targets import Chosen


@click.command("monitor", short_help="Show temperature, use, memory and power of every device.")
@formats("auto", "live", "json")
@click.option("--interval", type=PERIOD, default=1.0, show_default=True, metavar="S", help="Seconds between samples.")
@click.option("--duration", type=SECONDS, metavar="S", help="Stop after this many seconds.")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Stop after this many samples.")
def monitor_command(format_: str, interval: float, duration: float | None, count: int | None) -> int:
    """Show temperature, use, memory and power of the accelerators and the processor until Ctrl-C, or `q` on a
    terminal; `?` explains the columns.

    \b
    Examples:
      hwcompat devices monitor
      hwcompat devices monitor --format json --count 10 --interval 0.5
    """
    from hwcompat.hardware.inventory.telemetry import Sampler
    from hwcompat.plugins.stress.monitor import monitor, samples

    sampler = Sampler()
    monitor(sampler, samples(sampler, interval_s=interval, duration_s=duration, count=count), format_)
    return 0


@click.command("stress", short_help="Put load on devices and measure rates, heat and power.")
@click.argument("targets", nargs=-1, required=True, metavar="TARGET...")
@click.option("--duration", type=LOAD, default=60.0, show_default=True, metavar="S", help="Sustained load, in s.")
@click.option("--warmup", type=SECONDS, default=30.0, show_default=True, metavar="S", help="Warm-up, in s.")
@click.option("--interval", type=PERIOD, default=1.0, show_default=True, metavar="S", help="Seconds between samples.")
@click.option("--precision", "precisions", multiple=True, metavar="NAME", help="Precision to test. Repeatable.")
@click.option("--timeout", type=LOAD, default=120.0, show_default=True, metavar="S", help="Stop if silent this long.")
@click.option(
    "--library",
    type=click.Choice(("torch", "tensorflow")),
    default="torch",
    show_default=True,
    help="What computes. JAX loads tpu.",
)
@click.option("--write", is_flag=True, help="Write 1 GiB on each disk for the time of the test, and read that.")
@click.option("--keep", is_flag=True, help="Save the rates for fit, capabilities, place and list.")
@formats("table", "json")
@OUTPUT
def stress_command(
    targets: tuple[str, ...],
    duration: float,
    warmup: float,
    interval: float,
    precisions: tuple[str, ...],
    timeout: float,
    library: str,
    write: bool,
    keep: bool,
    format_: str,
    output: Path | None,
) -> int:
    """Put load on devices and report rates and heat: cpu, ram, storage, cuda, rocm, xpu, mps, tpu,
    simulated, all.

    \b
    Examples:
      hwcompat devices stress cpu ram
      hwcompat devices stress cuda:0 --duration 300 --keep
      hwcompat devices stress storage --write --duration 10 --warmup 0

    \b
    cpu, ram and disks run first, one after the other, then all accelerators at the same time. Disks aren't part of
    all; storage:nvme0n1 is one of them.
    A target without an index means all its devices. Devices that don't exist are skipped.
    Exit codes: 0 passed, 1 a wrong result, a failure, or a named target that doesn't exist, 5 nothing was loaded
    because the named vendors have no load.
    """
    from hwcompat.hardware.detection import detect
    from hwcompat.hardware.inventory.telemetry import Sampler
    from hwcompat.plugins.stress.kept_disks import keep_disks
    from hwcompat.plugins.stress.stress_child import StressOptions
    from hwcompat.plugins.stress.stress_report import stress_text
    from hwcompat.plugins.stress.stress_run import run_stress

    inventory = detect()
    chosen = _chosen(targets, inventory, library=library, writes=write)
    options = StressOptions(
        warmup_s=warmup,
        duration_s=duration,
        interval_s=interval,
        silence_s=timeout,
        precisions=_known(precisions),
        library=library,
    )
    sampler = Sampler()
    try:
        run = run_stress(chosen, inventory, options, sampler=sampler, note=say)
    finally:
        sampler.close()
    deliver(as_json(run.to_dict()) if format_ == "json" else stress_text(run.to_dict()), output)
    if keep:
        kept = plugins().job("keep_rates")(run, inventory) + keep_disks(run, inventory)
        say(f"saved the rates of {kept} device{'' if kept == 1 else 's'}")
    return _exit_code(chosen, run)


def _chosen(targets: Sequence[str], inventory: HardwareInfo, *, library: str, writes: bool) -> tuple[Chosen, ...]:
    from hwcompat.plugins.stress.stress_child import is_pjrt
    from hwcompat.plugins.stress.stress_targets import chosen_devices
    from hwcompat.plugins.stress.tensorflow_device import TENSORFLOW, why_not_loaded

    chosen = chosen_devices(targets, inventory, writes=writes)
    if library != TENSORFLOW:
        return chosen
    return tuple(
        one if is_pjrt(one.target) else replace(one, reason=one.reason or why_not_loaded(one.target))
        for one in chosen
    )


def _known(precisions: Sequence[str]) -> tuple[str, ...]:
    """Return these precisions, or all. Raises `UsageError` for an unknown one."""
    from hwcompat.plugins.stress.loads import PRECISIONS

    for name in precisions:
        if name not in PRECISIONS:
            hint = did_you_mean(name, PRECISIONS)
            raise UsageError(
                f"unknown precision {echo(name)} for a stress test",
                fix=f"{hint} Known: {', '.join(PRECISIONS)}.".strip(),
            )
    return tuple(dict.fromkeys(precisions)) or PRECISIONS


def _exit_code(chosen: Sequence[Chosen], run: StressRun) -> int:
    from hwcompat.plugins.stress.stress_result import StressEnding
    from hwcompat.plugins.stress.stress_targets import NO_LOAD

    if chosen and all(one.reason.startswith(NO_LOAD) for one in chosen):
        return NothingMatched.exit_code
    named = {one.target for one in chosen if one.named}
    bad = [one for one in run.results if one.ending is not StressEnding.MEASURED]
    return int(any(one.ending is not StressEnding.SKIPPED or one.target in named for one in bad))


COMMANDS = (monitor_command, stress_command)
