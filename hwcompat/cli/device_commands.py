"""Commands about devices: devices (list, doctor, monitor, stress, compare, …), fit, place and mesh."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from hwcompat.generators.options import Options
from hwcompat.hardware.errors import UsageError
from hwcompat.hardware.hardware_commands import compare_command, deliver, doctor_command
from hwcompat.hardware.inventory_text import FORMATS
from hwcompat.hardware.plugins import plugins
from hwcompat.reports.report_request import Request

from .option_table import takes
from .report_options import requests


@click.group("devices", short_help="List, check, monitor and load the devices of this machine.")
def devices_group() -> None:
    """List, check, monitor and load the devices of this machine."""


@devices_group.command("list", short_help="List processor, memory, storage, accelerators and targets.")
@click.option("--output", type=click.Path(path_type=Path), help="Write to this file instead of the terminal.")
@click.option("--replay", type=click.Path(path_type=Path), metavar="DIR", help="Show a recorded machine.")
@click.option("--smart", is_flag=True, help="Read the health of disks (smartctl; mostly needs root). Implies --all.")
@click.option("--all", "everything", is_flag=True, help="List everything: caches, disks, libraries, packages.")
@takes("host", "host_python", "host_patience", formats=FORMATS)
def list_command(asked: Options, output: Path | None, replay: Path | None, smart: bool, everything: bool) -> int:
    """List processor, memory, storage, accelerators by vendor, and the targets that may be here.

    \b
    Examples:
      hwcompat devices list
      hwcompat devices list --format json --output lab1.json
    """
    from hwcompat.hardware.basic_detection import inventory_here
    from hwcompat.hardware.inventory_text import list_text
    from hwcompat.hardware.recording import ReplayedMachine

    if asked.host:
        if replay or smart:
            raise UsageError("--host doesn't go with --replay and --smart", fix="Leave one out.")
        inventory = plugins().job("host_inventory")(asked)
    elif not (replay or smart):
        inventory = inventory_here()
    else:
        from hwcompat.hardware.detection import detect

        inventory = detect(ReplayedMachine(replay) if replay else None, smart=smart)
    deliver(list_text(inventory, asked.format_, everything or smart), output)
    return 0


@devices_group.command("probe", short_help="Probe how a target computes: precision, rounding, NaN, sizes.")
@click.argument("target")
@takes(formats=("table", "json", "markdown"))
def probe_command(asked: Options, target: str) -> int:
    """Probe how TARGET computes: precision of products and sums, rounding, subnormal numbers, NaN, integers, layouts,
    sizes and repeats. Exit with 1 if it crashes or computes wrong numbers.

    \b
    Examples:
      hwcompat devices probe cuda
      hwcompat devices probe openvino --format json
    """
    from hwcompat.hardware.backends.factory import resolve_target
    from hwcompat.hardware.operators.device_probe import probe_device
    from hwcompat.reports.operator_tables import probe_text
    from hwcompat.reports.progress_bar import working_on

    place = resolve_target(target)
    with working_on(f"probing {place}"):
        answers = probe_device(place)
    click.echo(probe_text(place, answers, asked.format_), nl=False)
    return int(any(one.is_fault for one in answers))


@devices_group.command("recommend", short_help="Print the targets to prefer for an architecture.")
@click.option("--architecture", default="", metavar="NAME", help="Architecture, trait or family. Default: all.")
@takes(formats=("table", "json"))
def recommend_command(asked: Options, architecture: str) -> int:
    """Print the targets to prefer for an architecture, best first, and which of them may be on this machine.

    \b
    Examples:
      hwcompat devices recommend --architecture speech
      hwcompat devices recommend --format json
    """
    from hwcompat.generators.compatibility.selection import is_eligible, recommended_lists
    from hwcompat.hardware.basic_detection import inventory_here
    from hwcompat.hardware.detection import targets
    from hwcompat.hardware.plain_text import columns, json_text

    here = {one.target for one in targets(inventory_here()) if is_eligible(one)}
    lists = recommended_lists(architecture)
    if asked.format_ == "json":
        rows = [
            {"name": name, "targets": wanted, "here": [one for one in wanted if one in here], "reason": reason}
            for name, (wanted, reason) in lists.items()
        ]
        click.echo(json_text({"schema_version": 1, "recommended": rows}))
        return 0
    table = [
        [name, " > ".join(wanted), next((one for one in wanted if one in here), "none")]
        for name, (wanted, _) in lists.items()
    ]
    click.echo("\n".join(columns(["for", "prefer", "first here"], table)))
    return 0


@click.command("place", short_help="Choose a device for each of several models.")
@takes(
    *("models", "priority", "architectures", "rules", "devices", "tasks", "dims", "precision", "evidence"),
    *("pin", "forbid", "inventory", "in_turn", "costs"),
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
@takes(
    *("models", "devices", "precision", "timeout", "report_dir"),
    formats=("table", "text", "json"),
    helps={"devices": "Target of the devices, or 'auto' (default). Repeatable."},
)
def mesh_command(asked: Options, split: str) -> int:
    """Plan one model over several devices and check the split with torch.distributed.

    SPLIT is for example data=2,tensor=2 or pipeline=2, or auto: the fewest devices that the model fits on.
    """
    code: int = plugins().job("mesh")(asked, split)
    return code


@devices_group.command("show-stress", short_help="Show a stress run that was written to a file.")
@click.argument("path", type=click.Path(path_type=Path), metavar="FILE")
@requests("output_dir", formats=("markdown", "json", "html"))
def show_stress_command(request: Request, path: Path) -> int:
    """Show a stress run that `hwcompat devices stress` wrote to FILE, with its curves."""
    code: int = plugins().job("stress")(request, path)
    return code


devices_group.add_command(doctor_command)
devices_group.add_command(compare_command)
for _command in plugins().commands():
    devices_group.add_command(_command)
