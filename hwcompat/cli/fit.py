"""Placeholder until the command is merged."""

import rich_click as click


@click.command("fit", short_help="Show whether a model fits a device's memory.")
def fit_command() -> int:
    """Show whether a model fits a device's memory."""
    return 0
