"""Commands of `hwcompat devices` that monitor devices and load them."""

from __future__ import annotations

import sys
from pathlib import Path

import rich_click as click

from hardware.errors import UsageError, did_you_mean, echo
from hardware.hardware_commands import LOAD, OUTPUT, PERIOD, SECONDS, as_json, deliver, formats, say
from hardware.plugins import plugins


@click.command("monitor", short_help="Show what every device does now, until Ctrl-C.")
@formats("auto", "live", "json")
@click.option("--interval", type=PERIOD, default=1.0, show_default=True, metavar="S", help="Seconds between samples.")
@click.option("--duration", type=SECONDS, metavar="S", help="End after this many seconds.")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="End after this many samples.")
def monitor_command(format_: str, interval: float, duration: float | None, count: int | None) -> int:
    """Show what every accelerator, the processor and memory do now. Ctrl-C ends it.

    \b
    Examples:
      hwcompat devices monitor
      hwcompat devices monitor --format json --count 10 --interval 0.5
    """
    from hardware.inventory.telemetry import Sampler
    from hwcompat.plugins.stress.monitor import chosen_format, monitor, samples

    shown = chosen_format(format_, sys.stdout)
    sampler = Sampler()
    monitor(sampler, samples(sampler, interval_s=interval, duration_s=duration, count=count), shown)
    return 0


@click.command("stress", short_help="Load devices and report what they did.")
@click.argument("targets", nargs=-1, required=True, metavar="TARGET...")
@click.option("--duration", type=LOAD, default=60.0, show_default=True, metavar="S", help="Sustained load.")
@click.option("--warmup", type=SECONDS, default=30.0, show_default=True, metavar="S", help="Load before it.")
@click.option("--interval", type=PERIOD, default=1.0, show_default=True, metavar="S", help="Seconds between samples.")
@click.option("--precision", "precisions", multiple=True, metavar="NAME", help="Of products; the first is sustained.")
@click.option(
    "--timeout", type=LOAD, default=120.0, show_default=True, metavar="S", help="End a load that is silent."
)
@click.option("--keep", is_flag=True, help="Keep the rates: `fit`, `capabilities` and placement go by them.")
@formats("table", "json")
@OUTPUT
def stress_command(
    targets: tuple[str, ...],
    duration: float,
    warmup: float,
    interval: float,
    precisions: tuple[str, ...],
    timeout: float,
    keep: bool,
    format_: str,
    output: Path | None,
) -> int:
    """Load devices and report what they did: cpu, ram, cuda, rocm, xpu, mps, simulated, all.

    \b
    Examples:
      hwcompat devices stress cpu ram
      hwcompat devices stress cuda:0 --duration 300 --keep

    \b
    Accelerators run at once, a process each; cpu and ram before them, one after the other.
    A target without an index means all its devices. What isn't here is skipped with its reason.
    Exit codes: 0 all is right, 1 a wrong result, a failure, or a named target that isn't here.
    """
    from hardware.detection import detect
    from hardware.inventory.telemetry import Sampler
    from hwcompat.plugins.stress.loads import PRECISIONS
    from hwcompat.plugins.stress.stress_child import StressOptions
    from hwcompat.plugins.stress.stress_report import stress_text
    from hwcompat.plugins.stress.stress_result import StressEnding
    from hwcompat.plugins.stress.stress_run import run_stress
    from hwcompat.plugins.stress.stress_targets import chosen_devices

    for name in precisions:
        if name not in PRECISIONS:
            hint = did_you_mean(name, PRECISIONS)
            raise UsageError(
                f"{echo(name)} is no precision of a load", fix=f"{hint} Known: {', '.join(PRECISIONS)}.".strip()
            )
    inventory = detect()
    chosen = chosen_devices(targets, inventory)
    options = StressOptions(
        warmup_s=warmup,
        duration_s=duration,
        interval_s=interval,
        silence_s=timeout,
        precisions=tuple(dict.fromkeys(precisions)) or PRECISIONS,
    )
    sampler = Sampler()
    try:
        run = run_stress(chosen, inventory, options, sampler=sampler, note=say)
    finally:
        sampler.close()
    deliver(as_json(run.to_dict()) if format_ == "json" else stress_text(run.to_dict()), output)
    if keep:
        kept = plugins().job("keep_rates")(run, inventory)
        say(f"{kept} device(s): rates are kept for placement")
    named = {one.target for one in chosen if one.named}
    bad = [one for one in run.results if one.ending is not StressEnding.MEASURED]
    return int(any(one.ending is not StressEnding.SKIPPED or one.target in named for one in bad))


COMMANDS = (monitor_command, stress_command)
