"""`hwcompat`: the program, whose commands are imported when they are used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import rich_click as click

from hardware.command_line import open_door
from hardware.errors import UsageError, did_you_mean, echo
from hardware.evidence.versions import RELEASE

COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "run": "suites:run_command",
        "generate": "suites:generate_command",
        "check": "suites:check_command",
        "update": "suites:update_command",
        "verify": "suites:verify_command",
        "bundle": "suites:bundle_command",
        "web-page": "suites:web_page_command",
        "matrix": "knowledge:matrix_command",
        "coverage": "knowledge:coverage_command",
        "explain": "knowledge:explain_command",
        "calibration": "knowledge:calibration_command",
        "backlog": "knowledge:backlog_command",
        "classify": "knowledge:classify_command",
        "report": "findings:report_command",
        "compare": "findings:compare_command",
        "diagnose": "findings:diagnose_command",
        "localize": "findings:localize_command",
        "repro": "findings:repro_command",
        "fix": "findings:fix_command",
        "upstream": "findings:upstream_command",
        "devices": "devices:devices_group",
        "doctor": "devices:doctor_command",
        "place": "devices:place_command",
        "mesh": "devices:mesh_command",
        "evidence": "evidence:evidence_group",
    }
)
"""Each command with its module in this package and its name there."""

_PANELS = (
    ("Test models", ("run", "generate", "check", "update", "verify", "bundle", "web-page")),
    ("Show what is known", ("matrix", "coverage", "explain", "calibration", "backlog", "classify")),
    ("Find and fix failures", ("report", "compare", "diagnose", "localize", "repro", "fix", "upstream")),
    ("Devices", ("devices", "doctor", "place", "mesh")),
    ("Evidence", ("evidence",)),
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
            raise UsageError(
                f"unknown command {echo(cmd_name)}", fix=did_you_mean(cmd_name, COMMANDS) or "See hwcompat --help."
            )
        module, _, attribute = place.partition(":")
        command: click.Command = getattr(importlib.import_module(f".{module}", __package__), attribute)
        return command


def _panels(group: click.RichGroup) -> click.RichGroup:
    for name, commands in _PANELS:
        group = click.command_panel(name, commands=list(commands))(group)
    return group


@_panels
@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(RELEASE, prog_name="hwcompat")
def program() -> None:
    """Find out whether a model works on a device: with a test that proves it, a cause, and a fix.

    \b
    Examples:
      hwcompat doctor
      hwcompat run --model bert --device auto
      hwcompat matrix --targets cpu,openvino
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    own = list(sys.argv[1:] if arguments is None else arguments)
    return open_door(program, own, program="hwcompat")


if __name__ == "__main__":
    sys.exit(main())
