"""`--refresh`: what has expired in the folder of evidence runs again, or with `--dry-run` is told with its time."""

from __future__ import annotations

import sys
from dataclasses import replace

import click

from generators.options import Options
from hardware.detection import detect
from hardware.errors import BackendUnavailable, NothingMatched, UsageError
from hardware.evidence.store import read_folder
from hardware.evidence.writer import machine_label, now
from hardware.front_door import INTERRUPTED, note, terminal_width
from hwcompat.plugins.study.refresh.planning import RefreshPlan, plan_refresh, still_expired, suites_of
from reports.text import printable
from reports.wording import texts

from .refresh_view import refresh_json, refresh_table, summary

_OTHER_JOBS = ("run", "list_cells", "explain", "bundle", "check_folder", "update_folder", "upstream")
_SHOWN = 6


def refresh(asked: Options, command: str) -> int:
    """Do it, and return the exit code: 0 where nothing has expired or all of it was measured again without a failure.

    1 for a failed check, and for a cell that stays expired though its model or device was named (`--allow-fallback`
    makes that 0); 2 where it was interrupted. Raises `NothingMatched` (5) where no cell was measured or fits, and
    where everything that has expired can't run here. `command` goes into the evidence.
    """
    _refuse_other_jobs(asked)
    evidence = asked.read_evidence()
    if evidence is None:
        raise NothingMatched(
            "nothing was measured yet", why=f"there is no {asked.evidence}", fix="Measure something with --run first."
        )
    inventory = detect()
    machine = asked.machine or machine_label()
    project = None
    if asked.config is not None:
        from generators.project.asked import plan_asked

        project = plan_asked(asked, asked.config, inventory, read_list=sys.stdin.readlines)
    plan = plan_refresh(asked, evidence, inventory, machine, project, read_list=sys.stdin.readlines)
    if asked.dry_run:
        click.echo(refresh_json(plan, now()) if asked.format_ == "json" else refresh_table(plan, terminal_width()))
        return 0
    if not plan.cells:
        click.echo(summary(plan))
        return 0
    note(summary(plan))
    suites, refused = suites_of(plan, asked, inventory, project)
    left = {cell: "; ".join(texts(why)) for cell, why in plan.left.items()} | refused
    note(*(f"{cell} stays expired: {why}" for cell, why in left.items()))
    if not suites:
        raise _nothing_ran(plan, left, asked)

    from generators.job import write_suites
    from reports.run_command import run_suites

    written = write_suites(suites, asked.output_dir, force=asked.force)
    edited = [one for one in written if str(one.state) == "edited" and not asked.force]
    note(*(f"{one.path} was edited by hand and is left alone (--force overwrites it)" for one in edited))
    code = run_suites(
        asked, written, inventory, project and replace(project, kept=suites, left_by="--refresh"), command
    )
    if code == INTERRUPTED:
        return code
    ran = [one.cell.id for one in suites]
    again = still_expired(ran, read_folder(asked.evidence), inventory, machine, project)
    after = {cell: "; ".join(texts(why)) for cell, why in again.items()}
    click.echo(_said(len(plan.cells), len(ran) - len(after), left | after))
    return 1 if code == 0 and left | after and _is_named(plan, asked) else code


def _refuse_other_jobs(asked: Options) -> None:
    given = [name for name in _OTHER_JOBS if getattr(asked, name)] + ["verify"] * (asked.verify is not None)
    if given:
        raise UsageError(
            "--refresh is a job of its own", fix="Leave out --run, --list, --explain, --bundle and the like."
        )
    if asked.dry_run and asked.format_ not in ("table", "text", "json"):
        raise UsageError(f"--refresh --dry-run isn't told as {asked.format_}", fix="Take table or json.")


def _is_named(plan: RefreshPlan, asked: Options) -> bool:
    """Whether somebody asked for these very cells: then one that stays expired is no success."""
    return bool(asked.models or plan.devices) and not asked.allow_fallback


def _nothing_ran(plan: RefreshPlan, left: dict[str, str], asked: Options) -> NothingMatched | BackendUnavailable:
    what = f"{len(left)} cell(s) have expired and none can be measured again here"
    why = next(iter(left.values()))
    kind = BackendUnavailable if plan.devices and not asked.allow_fallback else NothingMatched
    return kind(what, why=why, fix="--refresh --dry-run lists them.")


def _said(expired: int, measured: int, left: dict[str, str]) -> str:
    lines = [f"Refreshed   {measured} of {expired} expired cell(s)"]
    lines += [f"Still       {cell} is expired: {why}" for cell, why in list(left.items())[:_SHOWN]]
    if len(left) > _SHOWN:
        lines.append(f"Still       {len(left) - _SHOWN} more are expired (--refresh --dry-run lists them)")
    return "\n".join(map(printable, lines))
