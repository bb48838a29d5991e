"""The commands of `python -m hardware` beside `list`: what they take, and their exit codes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import click

from .errors import OutputError, UsageError

_SECONDS = click.FloatRange(min=0)
_PERIOD = click.FloatRange(min=0.05, max=3600)


def deliver(text: str, output: Path | None) -> None:
    """Print a text, or write it to a file. Raises `OutputError`."""
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(
            f"can't write {output}", why=error.strerror or str(error), fix="Name a file in an existing folder."
        ) from error


def _formats(*names: str) -> Callable[..., Callable[..., int]]:
    return click.option("--format", "format_", type=click.Choice(names), default=names[0], show_default=True)


@click.command("monitor", help="Show what every accelerator, the processor and memory do now. Ctrl-C ends it.")
@_formats("auto", "live", "json")
@click.option("--interval", type=_PERIOD, default=1.0, show_default=True, metavar="S", help="Seconds between looks.")
@click.option("--duration", type=_SECONDS, metavar="S", help="End after this many seconds.")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="End after this many looks.")
def monitor_command(format_: str, interval: float, duration: float | None, count: int | None) -> int:
    """Watch until it is ended."""
    from .monitor import chosen_format, monitor, samples
    from .sampling import Sampler

    shown = chosen_format(format_, sys.stdout)
    sampler = Sampler()
    monitor(sampler, samples(sampler, interval_s=interval, duration_s=duration, count=count), shown)
    return 0


COMMANDS = (monitor_command,)
