"""`python -m hardware COMMAND`: the same as `hwcompat devices COMMAND`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from .command_line import run_command_line
from .command_names import as_runnable, program_of
from .hardware_commands import COMMANDS, deliver
from .inventory_text import FORMATS, list_text
from .plugins import plugins

_HELP = """What this machine has, and which targets may run here.

\b
Examples:
  python -m hardware list
  python -m hardware doctor
  python -m hardware fit --memory-gb 10 --tflops 5
  python -m hardware stress cpu ram
"""


@click.group(help=as_runnable(_HELP), context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Group the commands below."""


@main.command("list", short_help="Print what is here, and the targets that may be.")
@click.option("--format", "format_", type=click.Choice(FORMATS), default="table", show_default=True)
@click.option("--output", type=click.Path(path_type=Path), help="Write to this file instead of the terminal.")
@click.option("--replay", type=click.Path(path_type=Path), metavar="DIR", help="Of a machine that was recorded.")
@click.option("--smart", is_flag=True, help="Read the health of disks (smartctl; mostly needs root). Implies --all.")
@click.option("--all", "everything", is_flag=True, help="List everything: caches, disks, libraries, packages.")
def list_command(format_: str, output: Path | None, replay: Path | None, smart: bool, everything: bool) -> None:
    """Print CPU, memory, storage, accelerators by vendor, and the targets that may be here.

    \b
    Examples:
      python -m hardware list
      python -m hardware list --format json --output lab1.json
    """
    from .detection import detect
    from .recording import ReplayedMachine

    inventory = detect(ReplayedMachine(replay) if replay else None, smart=smart)
    deliver(list_text(inventory, format_, everything or smart), output)


for _command in (*COMMANDS, *plugins().commands()):
    main.add_command(_command)
for _command in main.commands.values():
    _command.help = as_runnable(_command.help or "")


def start() -> int:
    """Run the command line and return its exit code."""
    return run_command_line(main, sys.argv[1:], program=program_of("hardware"))


if __name__ == "__main__":
    from hwcompat.cli.earlier_scripts import hardware_main

    sys.exit(hardware_main())
