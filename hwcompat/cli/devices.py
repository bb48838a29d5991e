"""Commands about devices: devices (list, doctor, monitor, stress, compare, …), fit, place and mesh."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from generators.options import Options
from hardware.errors import UsageError
from hardware.hardware_commands import compare_command, deliver, doctor_command
from hardware.inventory_text import FORMATS
from hardware.plugins import plugins

from .options import OPTIONS, takes


@click.group("devices", short_help="List, check, monitor and load the devices of this machine.")
def devices_group() -> None:
    """List, check, monitor and load the devices of this machine."""


@devices_group.command("list", short_help="List processor, memory, storage, accelerators and targets.")
@click.option("--format", "format_", type=click.Choice(FORMATS), default="table", show_default=True)
@click.option("--output", type=click.Path(path_type=Path), help="Write to this file instead of the terminal.")
@click.option("--replay", type=click.Path(path_type=Path), metavar="DIR", help="Show a recorded machine.")
@click.option("--smart", is_flag=True, help="Read the health of disks (smartctl; mostly needs root).")
@OPTIONS["host"]("host")
@OPTIONS["host_python"]("host_python")
@OPTIONS["host_patience"]("host_patience")
def list_command(
    format_: str,
    output: Path | None,
    replay: Path | None,
    smart: bool,
    host: str | None,
    host_python: str,
    host_patience: float,
) -> None:
    """List processor, memory, storage, accelerators by vendor, and the targets that may be here.

    \b
    Examples:
      hwcompat devices list
      hwcompat devices list --format json --output lab1.json
    """
    from hardware.detection import detect
    from hardware.inventory_text import list_text
    from hardware.recording import ReplayedMachine

    if host:
        if replay or smart:
            raise UsageError("--host doesn't go with --replay and --smart", fix="Leave one out.")
        asked = Options(host=host, host_python=host_python, host_patience=host_patience)
        inventory = plugins().job("host_inventory")(asked)
    else:
        inventory = detect(ReplayedMachine(replay) if replay else None, smart=smart)
    deliver(list_text(inventory, format_), output)


@click.command("place", short_help="Choose a device for each of several models.")
@takes(
    *("models", "priority", "architectures", "devices", "tasks", "dims", "precisions", "evidence"),
    *("pin", "forbid", "inventory", "in_turn"),
    formats=("table", "text", "json"),
)
def place_command(asked: Options) -> int:
    """Choose a device for each model, by memory, speed and rules.

    \b
    Examples:
      hwcompat place --model bert --model gpt2
      hwcompat place --model bert --model gpt2 --inventory lab1.json --pin bert=cuda:0
    """
    code: int = plugins().job("place")(asked)
    return code


@click.command("mesh", short_help="Split one model over several devices and check the split.")
@click.argument("split", metavar="SPLIT")
@takes("models", "devices", "precisions", "timeout", "report_dir", formats=("table", "text", "json"))
def mesh_command(asked: Options, split: str) -> int:
    """Plan one model over several devices and check the split with torch.distributed.

    SPLIT is for example data=2,tensor=2 or pipeline=2, or auto: the fewest devices that it fits.
    """
    code: int = plugins().job("mesh")(asked, split)
    return code


devices_group.add_command(doctor_command)
devices_group.add_command(compare_command)
for _command in plugins().commands():
    devices_group.add_command(_command)
