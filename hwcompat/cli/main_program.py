"""`hwcompat`: the program, whose commands are imported when they are used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import rich_click as click

from hwcompat.hardware.command_line import be_quiet, run_command_line
from hwcompat.hardware.command_names import PROGRAM, as_runnable
from hwcompat.hardware.errors import UsageError, did_you_mean, echo
from hwcompat.hardware.evidence.versions import RELEASE

COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "run": "suite_commands:run_command",
        "generate": "suite_commands:generate_command",
        "check": "suite_commands:check_command",
        "update": "suite_commands:update_command",
        "verify": "suite_commands:verify_command",
        "bundle": "suite_commands:bundle_command",
        "web-page": "suite_commands:web_page_command",
        "ops": "ops_command:ops_command",
        "enable": "enable_command:enable_command",
        "matrix": "knowledge_commands:matrix_command",
        "coverage": "knowledge_commands:coverage_command",
        "explain": "knowledge_commands:explain_command",
        "calibration": "knowledge_commands:calibration_command",
        "backlog": "knowledge_commands:backlog_command",
        "classify": "hwcompat.generators.models.classifier:main",
        "report": "finding_commands:report_command",
        "compare": "finding_commands:compare_command",
        "diagnose": "finding_commands:diagnose_command",
        "compare-devices": "finding_commands:compare_devices_command",
        "localize": "finding_commands:localize_command",
        "repro": "finding_commands:repro_command",
        "fix": "finding_commands:fix_command",
        "upstream": "finding_commands:upstream_command",
        "fit": "fit:fit_command",
        "devices": "device_commands:devices_group",
        "doctor": "device_commands:doctor_command",
        "place": "device_commands:place_command",
        "mesh": "device_commands:mesh_command",
        "evidence": "evidence_commands:evidence_group",
        "init": "init_command:init_command",
        "completion": "init_command:completion_command",
        "mcp": "mcp_command:mcp_command",
    }
)
"""Each command with its module in this package and its name there."""

_PANELS = (
    ("Test models", ("run", "generate", "check", "update", "verify", "bundle", "web-page", "ops", "enable")),
    ("Show what is known", ("matrix", "coverage", "explain", "calibration", "backlog", "classify")),
    (
        "Find and fix failures",
        ("report", "compare", "diagnose", "compare-devices", "localize", "repro", "fix", "upstream"),
    ),
    ("Devices", ("devices", "doctor", "fit", "place", "mesh")),
    ("Evidence and setup", ("evidence", "init", "completion", "mcp")),
)


class LazyGroup(click.RichGroup):
    """A group that imports the module of a command when the command is used or listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        return [*COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command. Raises `UsageError` for an unknown name, with the nearest ones."""
        place = COMMANDS.get(cmd_name)
        if place is None:
            fix = did_you_mean(cmd_name, COMMANDS) or "List the commands: hwcompat --help"
            raise UsageError(f"unknown command {echo(cmd_name)}", fix=fix)
        module, _, attribute = place.partition(":")
        return _prepared(
            getattr(importlib.import_module(module if "." in module else f".{module}", __package__), attribute)
        )


def _prepared(command: click.Command) -> click.Command:
    """Add the options that all commands have to a command, and make its examples pasteable here; return it."""
    if isinstance(command, click.Group):
        for one in command.commands.values():
            _prepared(one)
    if not any(one.name == "quiet" for one in command.params):
        command.params += [
            click.Option(
                ["--quiet", "-q"], is_flag=True, expose_value=False, callback=_quiet, help="Hide notes and progress."
            ),
            click.Option(["--debug"], is_flag=True, expose_value=False, help="Show tracebacks."),
        ]
        command.help = as_runnable(command.help or "")
    return command


def _quiet(_context: click.Context, _option: click.Parameter, value: bool) -> None:
    if value:
        be_quiet(True)


click.rich_click.MAX_WIDTH = 100
click.rich_click.OPTIONS_TABLE_COLUMN_TYPES = ["required", "opt_long", "opt_short", "help"]
click.rich_click.OPTIONS_TABLE_HELP_SECTIONS = ["help", "metavar", "default", "required"]


def _panels(group: click.RichGroup) -> click.RichGroup:
    for name, commands in _PANELS:
        group = click.command_panel(name, commands=list(commands))(group)
    return group


@_panels
@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(RELEASE, prog_name=PROGRAM)
def program() -> None:
    """Test whether a model works on a device, find the cause if it doesn't, and try fixes.

    \b
    Examples:
      hwcompat doctor
      hwcompat run --model bert --device auto
      hwcompat matrix --targets cpu,openvino
    """


program.help = as_runnable(program.help or "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    own = list(sys.argv[1:] if arguments is None else arguments)
    return run_command_line(program, own, program=PROGRAM)
