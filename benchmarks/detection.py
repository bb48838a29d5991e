"""Wall time of a cold `python -m hardware list` as a ratio of rivals' inventory commands, in one run, and which of
the fields that `warpt list` shows aren't shown.

Commands are interleaved, so that a slow spell of the machine hits all of them.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parent.parent
OURS = (sys.executable, "-m", "hardware", "list")
RIVALS: Mapping[str, tuple[str, ...]] = {
    "warpt list": ("warpt", "list"),
    "torch.utils.collect_env": (sys.executable, "-m", "torch.utils.collect_env"),
    "transformers env": (sys.executable, "-c", "from transformers.cli.system import env; env()"),
}
"""By name. The last one is what `transformers env` runs; its own entry point imports a server first, whose packages
many environments lack."""

FIELDS: Mapping[tuple[str, str], str] = {
    ("CPU", "Total Sockets"): "Sockets",
    ("CPU", "Total Phys Cores"): "Physical cores",
    ("CPU", "Total Logic Cores"): "Logical cores",
    ("CPU", "Single-Core Boost"): "Boost frequency",
    ("Memory", "Free"): "Available",
    ("Storage", "Interface"): "Bus",
    ("ML Frameworks", "Pytorch"): "torch",
    ("Docker", "Installed"): "Docker",
}
"""Our label of a field of `warpt list`, by its section, where that is another word."""

SECTIONS: Mapping[str, str] = {"ML Frameworks": "Software", "Core Libraries": "Libraries", "Docker": "Containers"}
"""Our section, where that is another word."""

NO_FIELDS = ("GPU detection failed",)
"""What looks like a field and is an error message."""


@click.command(help=__doc__)
@click.option("--runs", type=click.IntRange(min=1), default=11, show_default=True)
@click.option("--warpt", default="warpt", show_default=True, help="The program warpt (pip install warpt==0.4.1).")
@click.option("--rival", multiple=True, help="One more command to compare with.")
def main(runs: int, warpt: str, rival: tuple[str, ...]) -> None:
    """Print medians and ratios, then the fields; say why where a rival can't be measured."""
    rivals = {**RIVALS, "warpt list": (warpt, "list"), **{one: tuple(shlex.split(one)) for one in rival}}
    usable = {name: command for name, command in rivals.items() if _is_usable(name, command)}
    times: dict[str, list[float]] = {"python -m hardware list": [], **{name: [] for name in usable}}
    # The first run of each fills the disk cache and is thrown away.
    for number in range(runs + 1):
        for name, command in {"python -m hardware list": OURS, **usable}.items():
            seconds = wall_time(command)
            if number:
                times[name].append(seconds)
    ours = statistics.median(times["python -m hardware list"])
    click.echo(f"{'command':<28} {'median ms':>10} {'min ms':>8} {'max ms':>8} {'ours to it':>11}")
    for name, found in times.items():
        low, middle, high = (1000 * one for one in (min(found), statistics.median(found), max(found)))
        ratio = f"{1000 * ours / middle:.2f}" if name in usable else ""
        click.echo(f"{name[-28:]:<28} {middle:>10.0f} {low:>8.0f} {high:>8.0f} {ratio:>11}")
    click.echo(f"({runs} runs each, interleaved)")
    if "warpt list" in usable:
        show_fields(rivals["warpt list"])


def _is_usable(name: str, command: tuple[str, ...]) -> bool:
    if not command or shutil.which(command[0]) is None:
        click.echo(f"skipped: {name!r}: {command[0] if command else 'it'} isn't installed")
        return False
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if ran.returncode:
        last = (ran.stderr.strip().splitlines() or ["no message"])[-1]
        click.echo(f"skipped: {name!r} fails here: {last}")
        return False
    return True


def wall_time(command: tuple[str, ...]) -> float:
    """Seconds from start to exit of one fresh process. Raises where it fails: a failure isn't a fast run.

    All commands may keep their bytecode, as an installed program does.
    """
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    started = time.perf_counter()
    subprocess.run(
        command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return time.perf_counter() - started


def fields_of(text: str) -> list[tuple[str, str]]:
    """Section and label of every line `  Label: value` below a line of dashes, in the order of the text.

    What isn't installed may stand in one row: each name in it is a field whose value the row's label is.
    """
    text = re.sub(r"(?<=\n)  Not installed:(.*(?:\n {6,}.*)*)", _one_by_one, text)
    found: list[tuple[str, str]] = []
    section = before = ""
    for line in text.splitlines():
        if re.fullmatch(r"-{3,}", line.strip()):
            section = before.strip()
        elif match := re.match(r"^\s+([A-Za-z][^:]*?):\s", f"{line} "):
            found.append((section, match[1].strip()))
        before = line
    return list(dict.fromkeys(found))


def _one_by_one(row: re.Match[str]) -> str:
    return "\n".join(f"  {name.strip()}: not installed" for name in row[1].split(","))


def show_fields(rival: tuple[str, ...]) -> None:
    """Which of the rival's fields are shown here too, under which label, and which aren't."""
    theirs, ours = (
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout for command in (rival, OURS)
    )
    wanted = [field for field in fields_of(theirs) if field[1] not in NO_FIELDS]
    shown = {(section.lower(), label.lower()) for section, label in fields_of(ours)}
    missing = [field for field in wanted if _ours(*field) not in shown]
    click.echo(f"\nfields of warpt list: {len(wanted)}, shown here: {len(wanted) - len(missing)}; ours: {len(shown)}")
    for section in dict.fromkeys(section for section, _ in missing):
        click.echo(f"  not shown, {section}: {', '.join(name for one, name in missing if one == section)}")


def _ours(section: str, label: str) -> tuple[str, str]:
    return SECTIONS.get(section, section).lower(), FIELDS.get((section, label), label).lower()


if __name__ == "__main__":
    main()
