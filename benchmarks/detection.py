"""Wall time of a cold `run_test_generation.py --list-devices` as a ratio of a rival's inventory command, in one run.

The two are interleaved, so that a slow spell of the machine hits both.
"""

from __future__ import annotations

import os
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parent.parent
OURS = (sys.executable, "run_test_generation.py", "--list-devices")


@click.command(help=__doc__)
@click.option("--runs", type=click.IntRange(min=1), default=11, show_default=True)
@click.option("--rival", default="warpt list", show_default=True, help="The command to compare with.")
def main(runs: int, rival: str) -> None:
    """Print both medians and their ratio; say why where the rival can't be measured."""
    command = shlex.split(rival)
    program = shutil.which(command[0]) if command else None
    if program is None:
        click.echo(f"skipped: {rival!r} isn't installed (pip install warpt, or --rival PATH)")
        return
    theirs = (program, *command[1:])
    ours_s, theirs_s = [], []
    # The first run of each fills the disk cache and is thrown away.
    for number in range(runs + 1):
        pair = wall_time(OURS), wall_time(theirs)
        if number:
            ours_s.append(pair[0])
            theirs_s.append(pair[1])
    ours, other = statistics.median(ours_s), statistics.median(theirs_s)
    click.echo(f"{'command':<28} {'median ms':>10} {'min ms':>8} {'max ms':>8}")
    for name, times in (("--list-devices", ours_s), (rival[-28:], theirs_s)):
        low, middle, high = (1000 * one for one in (min(times), statistics.median(times), max(times)))
        click.echo(f"{name:<28} {middle:>10.0f} {low:>8.0f} {high:>8.0f}")
    click.echo(f"ratio of medians {ours / other:.2f} ({runs} runs each, interleaved)")


def wall_time(command: tuple[str, ...]) -> float:
    """Seconds from start to exit of one fresh process. Raises where it fails: a failure isn't a fast run.

    Both commands may keep their bytecode, as an installed program does.
    """
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    started = time.perf_counter()
    subprocess.run(
        command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
