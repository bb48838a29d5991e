"""The command of `python -m hardware` that writes the file by which transformers' own tests know a target."""

from __future__ import annotations

from pathlib import Path

import click

from hardware.commands import OUTPUT, deliver


@click.command("device-spec", short_help="Print the file that tells transformers' tests of a target.")
@click.argument("target")
@OUTPUT
def device_spec_command(target: str, output: Path | None) -> None:
    """Print the file by which transformers' own tests learn of a target.

    \b
    Examples:
      python -m hardware device-spec openvino --output spec.py
    """
    from hardware.backends.factory import resolve_target
    from hwcompat.plugins.triage.upstream.device_spec import spec_text

    deliver(spec_text(resolve_target(target)), output)


COMMANDS = (device_spec_command,)
