"""`python -m hardware`: the front door of the inventory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .errors import OutputError
from .front_door import open_door
from .listing import FORMATS, list_text

if TYPE_CHECKING:
    from .machine import Machine


@click.group(help="What this machine has, and which targets may run here.")
def main() -> None:
    """Front door; the commands below do the work."""


@main.command("list", help="Print CPU, memory, storage, accelerators by vendor, and the targets that may be here.")
@click.option("--format", "format_", type=click.Choice(FORMATS), default="table", show_default=True)
@click.option("--output", type=click.Path(path_type=Path), help="Write to this file instead of the terminal.")
@click.option("--replay", type=click.Path(path_type=Path), metavar="DIR", help="Of a machine that was recorded.")
@click.option("--smart", is_flag=True, help="Ask the disks for their health (smartctl; mostly needs root).")
def list_command(format_: str, output: Path | None, replay: Path | None, smart: bool) -> None:
    """Detect and print."""
    from .detection import detect

    text = list_text(detect(_recorded(replay), smart=smart), format_)
    if output is None:
        click.echo(text, nl=False)
    else:
        _write(output, text)


@main.command("device-spec", help="Print the file by which transformers' own tests learn of a target.")
@click.argument("target")
@click.option("--output", type=click.Path(path_type=Path), help="Write to this file instead of the terminal.")
def device_spec_command(target: str, output: Path | None) -> None:
    """Name the target, print the file."""
    from .backends.factory import resolve_target
    from .upstream.device_spec import spec_text

    text = spec_text(resolve_target(target))
    if output is None:
        click.echo(text, nl=False)
    else:
        _write(output, text)


def _recorded(folder: Path | None) -> Machine | None:
    if folder is None:
        return None
    from .recording import ReplayedMachine

    return ReplayedMachine(folder)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(
            f"can't write {path}", why=error.strerror or str(error), fix="Name a file in an existing folder."
        ) from error


if __name__ == "__main__":
    sys.exit(open_door(main, sys.argv[1:], program="python -m hardware"))
