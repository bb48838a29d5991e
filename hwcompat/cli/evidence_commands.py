"""`hwcompat evidence`: merge, compact, publish, import, sign, check, refresh and clear-flaky."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from hwcompat.generators.options import Options
from hwcompat.hardware.command_names import own_command
from hwcompat.hardware.errors import UsageError, echo
from hwcompat.hardware.evidence.address import Address
from hwcompat.hardware.evidence.evidence_location import EvidenceLocation, read_only_location
from hwcompat.hardware.files import DEFAULT_EVIDENCE
from hwcompat.hardware.hardware_commands import check_command, sign_command
from hwcompat.hardware.plugins import plugins
from hwcompat.reports.evidence_command import clear_flaky, compact_folder, merge_folder, publish_folder

from .option_table import CELLS, PATTERNS, REFRESHING, WRITING, redact_unless_asked, takes


def _folder(_context: click.Context, _option: click.Parameter, place: Path | Address) -> Path:
    """Return the folder. Raises `UsageError` for an address in object storage."""
    if isinstance(place, Address):
        raise UsageError(
            f"evidence in {place} can't be changed",
            why="merge, compact and publish start from a folder",
            fix=f"Copy it to this machine first: hwcompat evidence merge {place} --evidence FOLDER",
        )
    return place


_FOLDER = click.option(
    "--evidence",
    type=EvidenceLocation(file_okay=False),
    default=DEFAULT_EVIDENCE,
    show_default=True,
    callback=_folder,
    metavar="DIR",
    help="Folder of evidence.",
)


@click.group("evidence", short_help="Merge, compact, publish, sign and refresh evidence.")
def evidence_group() -> None:
    """Merge, compact, publish, sign and refresh folders of evidence: one JSON object per line."""


@evidence_group.command("merge", short_help="Check evidence from elsewhere and add it to the folder.")
@click.argument("sources", nargs=-1, required=True, type=EvidenceLocation(), metavar="DIR|FILE|ADDRESS...")
@_FOLDER
def merge_command(sources: tuple[Path | Address, ...], evidence: Path) -> int:
    """Check evidence from elsewhere and add it to the folder.

    A source is a folder, a file that a page saved, or s3://bucket/prefix.
    """
    for source in sources:
        merge_folder(source, evidence)
    return 0


@evidence_group.command("compact", short_help="Pack finished files into Parquet, by month.")
@_FOLDER
def compact_command(evidence: Path) -> int:
    """Pack the finished files of the folder into Parquet files, by month."""
    compact_folder(evidence)
    return 0


@evidence_group.command("publish", short_help="Copy evidence of finished runs to object storage.")
@click.argument("address", type=EvidenceLocation(), metavar="ADDRESS")
@_FOLDER
def publish_command(address: Path | Address, evidence: Path) -> int:
    """Copy the evidence of finished runs to s3://bucket/prefix."""
    if not isinstance(address, Address):
        raise UsageError(
            f"{echo(str(address))} isn't an address in object storage",
            fix="Name one, such as s3://bucket/prefix. For a folder: hwcompat evidence merge HERE --evidence THERE",
        )
    publish_folder(evidence, address)
    return 0


@evidence_group.command("refresh", short_help="Run again the cells whose evidence has expired.")
@takes(*CELLS, *PATTERNS, *WRITING, *REFRESHING, "dry_run")
def refresh_command(asked: Options) -> int:
    """Run again the cells whose evidence has expired, and nothing else.

    \b
    Examples:
      hwcompat evidence refresh --dry-run
      hwcompat evidence refresh --device openvino
    """
    if asked.remote is not None and not asked.dry_run:
        raise read_only_location(asked.remote)
    redact_unless_asked(asked)
    code: int = plugins().job("refresh")(asked, own_command())
    return code


@evidence_group.command("clear-flaky", short_help="End the quarantine of flaky cells.")
@click.argument("cells", nargs=-1, required=True, metavar="CELL...")
@click.option("--reason", required=True, metavar="TEXT", help="Why: what made the cells flaky, and what fixed it.")
@takes("config", "evidence", formats=(), writes=True)
def clear_flaky_command(asked: Options, cells: tuple[str, ...], reason: str) -> int:
    """End the quarantine of flaky cells. Results from before no longer make them flaky; later ones do.

    A line with the reason is added to the evidence, and reports show it.

    \b
    Example:
      hwcompat evidence clear-flaky bert/fill-mask/cuda/float32 --reason "replaced the power supply"
    """
    return clear_flaky(asked, cells, reason)


evidence_group.add_command(sign_command)
evidence_group.add_command(check_command)
