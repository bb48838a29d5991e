"""`hwcompat evidence`: merge, import, compact, publish, sign, check, refresh and clear-flaky."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import rich_click as click

from hwcompat.generators.compatibility.expiry import flaky_cells
from hwcompat.generators.options import Options
from hwcompat.generators.project.project_reader import read_project
from hwcompat.hardware.cell import parsed
from hwcompat.hardware.command_line import note
from hwcompat.hardware.command_names import own_command
from hwcompat.hardware.errors import UsageError, did_you_mean, echo
from hwcompat.hardware.evidence.address import Address
from hwcompat.hardware.evidence.bucket import publish
from hwcompat.hardware.evidence.compacted import compact
from hwcompat.hardware.evidence.evidence_location import EvidenceLocation, fetch_remote, read_only_location
from hwcompat.hardware.evidence.latest import read_latest
from hwcompat.hardware.evidence.merge import merge_evidence
from hwcompat.hardware.evidence.record import Origin, RunLine
from hwcompat.hardware.evidence.writer import EvidenceWriter, new_run_id, now
from hwcompat.hardware.hardware_commands import check_command, sign_command
from hwcompat.hardware.plain_text import one_line
from hwcompat.hardware.plugins import plugins

from .option_table import CELLS, PATTERNS, REFRESHING, WRITING, takes
from .report_options import apply_evidence_options


@click.group("evidence", short_help="Merge, import, compact, publish, sign and refresh evidence.")
def evidence_group() -> None:
    """Merge, import, compact, publish, sign and refresh folders of evidence: one JSON object per line."""


@evidence_group.command("merge", short_help="Check evidence from elsewhere and add it to the folder.")
@click.argument("sources", nargs=-1, required=True, type=EvidenceLocation(), metavar="DIR|FILE|ADDRESS...")
@takes("evidence", formats=(), writes=True)
def merge_command(asked: Options, sources: tuple[Path | Address, ...]) -> int:
    """Check evidence from elsewhere and add it to the folder.

    A source is a folder, a file that a page saved, or s3://bucket/prefix.
    """
    for source in sources:
        for one in merge_evidence(fetch_remote(source) if isinstance(source, Address) else source, asked.evidence):
            cut = "; its last line was cut off and is left out" if one.cut else ""
            note(f"{one.name}: {one.state}, {one.lines} line(s){cut}")
    return 0


@evidence_group.command("import", short_help="Add results that others published to the folder.")
@click.argument("format", metavar="SOURCE")
@click.argument("path", type=click.Path(path_type=Path), metavar="PATH")
@click.option("--source-version", default="", metavar="TEXT", help="Version or commit of the source.")
@click.option("--license", "license_", default="", metavar="NAME", help="License of the results.")
@click.option("--published", type=click.DateTime(["%Y-%m-%d"]), metavar="YYYY-MM-DD", help="Day of the results.")
@click.option("--target", default="", metavar="NAME", help="Target of results that name none.")
@click.option("--precision", default="", metavar="NAME", help="Precision of results that name none.")
@takes("evidence", formats=(), writes=True)
def import_command(asked: Options, format: str, path: Path, **given: Any) -> int:
    """Add results that others published to the folder, all of PATH or none of it.

    SOURCE is a format: aihub, ctrf_json, dynamo, hf_ci, junit_xml, llama_cpp, mlperf, openvino_hub, optimum_habana,
    table, torch_xpu, tt_xla, vllm_tpu, or one of a plugin. PATH is a file, or a folder with files of the format.

    \b
    Examples:
      hwcompat evidence import aihub site-packages/qai_hub_models --source-version 0.65.0
      hwcompat evidence import junit_xml report.xml --target cuda
    """
    from hwcompat.generators.compatibility.import_published import import_published
    from hwcompat.generators.compatibility.published_rows import Given

    day = given.pop("published")
    known = Given(
        version=given["source_version"],
        license=given["license_"],
        day=f"{day:%Y-%m-%d}" if day else "",
        target=given["target"],
        precision=given["precision"],
    )
    done = import_published(format, path, asked.evidence, known, own_command())
    lines, unmapped = done.mapped.lines, done.mapped.unmapped
    types = len({line.model for line in lines})
    click.echo(f"{asked.evidence}: {len(lines)} of {done.rows} results imported, of {types} model types")
    if done.undecided:
        note(f"{done.undecided} decide no level: their type isn't certain, or they are about training")
    if done.mapped.harness:
        note(f"{done.mapped.harness} are dropped: their set-up or a download failed")
    if unmapped:
        note(
            f"{sum(unmapped.values())} are dropped: no known type is in {one_line(', '.join(unmapped), longest=120)}"
        )
    return 0


@evidence_group.command("compact", short_help="Pack finished files into Parquet, by month.")
@takes("evidence", formats=(), writes=True)
def compact_command(asked: Options) -> int:
    """Pack the finished files of the folder into Parquet files, by month."""
    done = compact(asked.evidence)
    if not done.files and not done.joined:
        note(f"nothing in {asked.evidence} can be compacted")
    if done.files:
        months = ", ".join(sorted({path.parent.name for path in done.paths}))
        said = f"{done.files} file(s), {done.lines} line(s), now in {len(done.paths)} of Parquet: {months}"
        note(f"{asked.evidence}: {said}")
    if done.joined:
        note(f"{done.joined} small file(s) of Parquet were joined with others")
    for name, why in done.left:
        note(f"{name} is left as it is: {why}")
    return 0


@evidence_group.command("publish", short_help="Copy evidence of finished runs to object storage.")
@click.argument("address", type=EvidenceLocation(), metavar="ADDRESS")
@takes("evidence", formats=(), writes=True)
def publish_command(asked: Options, address: Path | Address) -> int:
    """Copy the evidence of finished runs to s3://bucket/prefix."""
    if not isinstance(address, Address):
        raise UsageError(
            f"{echo(str(address))} isn't an address in object storage",
            fix="Name one, such as s3://bucket/prefix. For a folder: hwcompat evidence merge HERE --evidence THERE",
        )
    done = publish(asked.evidence, address)
    for one in done:
        if one.state != "known":
            note(f"{one.name}: {one.state}{f', {one.why}' if one.why else ''}")
    known = sum(one.state == "known" for one in done)
    note(f"{address}: {sum(one.state in ('put', 'longer') for one in done)} file(s) put, {known} known there already")
    return 0


@evidence_group.command("refresh", short_help="Run again the cells whose evidence has expired.")
@takes(
    *(*CELLS, *PATTERNS, *WRITING, *REFRESHING, "dry_run"),
    helps={"evidence": "Folder of evidence; with --dry-run, also s3://bucket/prefix."},
)
def refresh_command(asked: Options) -> int:
    """Run again the cells whose evidence has expired, and nothing else.

    \b
    Examples:
      hwcompat evidence refresh --dry-run
      hwcompat evidence refresh --device openvino
    """
    if asked.remote is not None and not asked.dry_run:
        raise read_only_location(asked.remote)
    apply_evidence_options(asked)
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
    Examples:
      hwcompat evidence clear-flaky bert/fill-mask/cuda/float32 --reason "replaced the power supply"
    """
    if not (reason := one_line(reason, longest=500)):
        raise UsageError("--reason is empty", fix="Say what made the cells flaky, and what fixed it.")
    latest = read_latest(asked.evidence)
    limits = read_project(asked.config).limits_of(latest.cells) if asked.config else {}
    ids = [cell.id if (cell := parsed(name)) else name for name in cells]
    if unknown := [cell for cell in ids if cell not in latest.cells]:
        fix = did_you_mean(unknown[0], latest.cells) or "List its cells: hwcompat matrix --by model"
        raise UsageError(f"{asked.evidence} has no results of {echo(unknown[0])}", fix=fix)
    flaky = flaky_cells(latest, limits)
    if steady := [cell for cell in ids if cell not in flaky]:
        why = "none of its checks passed and failed without a recorded difference since its quarantine last ended"
        raise UsageError(f"{echo(steady[0])} isn't flaky", why=why)
    moment = now()
    if any(line.cell_id in ids and line.started_at > moment for line in latest.alternating):
        raise UsageError("results of these cells are dated in the future", fix="Set the clock, or try again later.")
    machines = {cell: {latest.machines.get(run) or "" for run in flaky[cell]} for cell in ids}
    for machine in sorted(set().union(*machines.values())):
        writer = EvidenceWriter(asked.evidence, new_run_id())
        run = RunLine(
            run_id=writer.run_id,
            started_at=moment,
            command=own_command(),
            machine=machine,
            inventory={},
            versions={},
            plan=(),
            isolation="nothing was run",
            origin=Origin.CHANGED,
            cleared={cell: reason for cell in ids if machine in machines[cell]},
        )
        writer.write(run)
        writer.end("finished", {})
        writer.close()
    click.echo("\n".join(f"{cell}: no longer quarantined ({reason})" for cell in ids))
    return 0


evidence_group.add_command(sign_command)
evidence_group.add_command(check_command)
