"""Commands that write, check and run test suites: run, generate, check, update, verify, bundle, web-page."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from hwcompat.generators.options import Options
from hwcompat.hardware.command_line import note
from hwcompat.hardware.command_names import command_of, own_arguments, own_command
from hwcompat.hardware.errors import BrokenInput, ModelError, ModelMissing, UsageError, echo
from hwcompat.hardware.files import DEFAULT_SUITES, PROJECT_FILE
from hwcompat.hardware.plugins import plugins
from hwcompat.reports.suites_text import cells_text, compared_text, published_text, verified_text, written_text

from .option_table import (
    CELLS,
    FILE,
    FOLDER,
    PATTERNS,
    RUNNING,
    WRITING,
    refuse_selection,
    rules_of,
    takes,
)
from .report_options import apply_evidence_options

if TYPE_CHECKING:
    from hwcompat.generators.plan import PlannedSuite
    from hwcompat.generators.project.project_plan import ProjectRun
    from hwcompat.generators.run import WrittenSuite
    from hwcompat.hardware.detection import HardwareInfo


@dataclass(frozen=True, kw_only=True)
class SelectedSuites:
    """The planned suites of a command, and which of the models that were named have none."""

    inventory: HardwareInfo
    planned: Sequence[PlannedSuite]
    notes: Sequence[str] = ()
    project: ProjectRun | None = None
    unmet: Sequence[str] = ()
    missing_weights: bool = False

    def finish(self, code: int) -> int:
        """Return the exit code of a command. Raises `ModelError` if a model that was named has no suite."""
        if self.unmet and code == 0:  # the others were done first
            kind = ModelMissing if self.missing_weights else ModelError
            raise kind(f"no suite for {', '.join(self.unmet)}", why="what was asked for is more than what was done")
        return code


def select_suites(asked: Options, *, with_missing: bool = False) -> SelectedSuites:
    """Plan the suites of the models, targets and precisions that were asked for.

    A checkpoint whose weights are missing has a suite only `with_missing`: its run reports `unknown`.
    """
    from hwcompat.generators.plan import without_missing

    inventory = inventory_of(asked)
    project = project_of(asked, inventory)
    every, refused, unmet = (project.kept, (), ()) if project else _planned(asked, inventory)
    planned = every
    if not with_missing:
        planned, refused, unmet = without_missing(planned, refused, unmet)
    notes = [*filter(None, dict.fromkeys(one.profile.note for one in planned))]
    notes += [f"no suite for {why}" for why in refused]
    note(*notes)
    return SelectedSuites(
        inventory=inventory,
        planned=planned,
        notes=notes,
        project=project,
        unmet=unmet,
        missing_weights=any(suite.profile.missing for suite in every),
    )


def inventory_of(asked: Options) -> HardwareInfo:
    """Return the inventory of this machine, or of the host that was named."""
    if asked.host:
        found: HardwareInfo = plugins().job("host_inventory")(asked)
        return found
    from hwcompat.hardware.basic_detection import inventory_here

    return inventory_here()


def project_of(asked: Options, inventory: HardwareInfo) -> ProjectRun | None:
    """Return the plan of the project file; None if none was named. Options override it."""
    if asked.config is None:
        return None
    from hwcompat.generators.project.project_plan import plan_asked

    return plan_asked(
        asked,
        asked.config,
        inventory,
        read_list=sys.stdin.readlines,
        on_note=lambda why: note(f"no suite for {why}"),
    )


def write(asked: Options, selection: SelectedSuites) -> Sequence[WrittenSuite]:
    """Write the suites; one that was edited by hand is left alone without `--force`, and named."""
    from hwcompat.generators.run import write_suites

    written = write_suites(selection.planned, asked.output_dir, force=asked.force)
    edited = [one for one in written if str(one.state) == "edited" and not asked.force]
    note(*(f"{one.path} was edited by hand and is left alone (--force overwrites it)" for one in edited))
    return written


@click.command("run", short_help="Run the suites of models on devices and report the verdicts.")
@click.argument("pytest_arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- PYTEST...]")
@takes(*CELLS, *PATTERNS, *WRITING, *RUNNING, writes=True)
def run_command(asked: Options, pytest_arguments: Sequence[str] = ()) -> int:
    """Write the suites of models on devices, run them, and report the verdicts.

    Without models, run the project file of this folder, hwcompat.toml.

    \b
    Examples:
      hwcompat run --model bert --device auto
      hwcompat run --model ./my-checkpoint --device openvino
      hwcompat run --config hwcompat.toml
      hwcompat run --priority high --device cpu --jobs 2
    """
    asked = replace(asked, run=True, pytest_arguments=_for_pytest(pytest_arguments))
    if asked.config is None and PROJECT_FILE.is_file():
        if asked.models or asked.priority or asked.architectures:
            note(f"{PROJECT_FILE} is not used; to use it, add --config {PROJECT_FILE}")
        else:
            note(f"no model is named: running {PROJECT_FILE}")
            with rules_of(asked.rules, PROJECT_FILE):
                return _run(replace(asked, config=PROJECT_FILE))
    if asked.resume and not (asked.models or asked.priority or asked.architectures or asked.config):
        raise UsageError("--resume needs the models of the run", fix="Repeat its command, and add --resume.")
    return _run(asked)


def _run(asked: Options) -> int:
    _check_run(asked)
    apply_evidence_options(asked)
    selection = select_suites(asked, with_missing=not (asked.host or asked.distributed))
    from hwcompat.generators.project.project_plan import with_lock_file
    from hwcompat.reports.run_command import run_suites

    project = with_lock_file(asked, selection.project, selection.planned)
    written = write(asked, selection)
    return selection.finish(run_suites(asked, written, selection.inventory, project, own_command()))


@click.command("generate", short_help="Write test suites for the chosen models and devices.")
@takes(*CELLS, *PATTERNS, *WRITING, "list_cells", "host", "host_python", "host_checkpoints")
def generate_command(asked: Options) -> int:
    """Write test suites for the chosen models and devices, and print the command that runs them.

    \b
    Examples:
      hwcompat generate --model bert --device cpu
      hwcompat generate --priority high --device all --list
    """
    key = _key(asked, inventory_of(asked))
    if key and _is_unchanged(asked, key):
        return 0
    selection = select_suites(asked, with_missing=asked.list_cells)
    if asked.list_cells:
        click.echo(cells_text(selection.planned, asked.format_))
        return selection.finish(0)
    written = write(asked, selection)
    levels = {one.path.name: f"{one.planned.verdict.level}, {one.planned.verdict.basis}" for one in written}
    _show_written(asked, levels)
    edited = any(str(one.state) == "edited" for one in written) and not asked.force
    if key and not (selection.unmet or edited or any(not one.profile.is_plain_type for one in selection.planned)):
        from hwcompat.generators.suites.manifest import remember

        remember(asked.output_dir, key, levels, selection.notes)
    return selection.finish(0)


@click.command("check", short_help="Show what generating a folder of suites again would change.")
@click.argument("folder", type=FOLDER, default=DEFAULT_SUITES)
@takes(*CELLS, *PATTERNS, "template_dir")
def check_command(asked: Options, folder: Path) -> int:
    """Show what generating the suites in FOLDER again would change. Exit with 1 if anything would.

    With --config, compare with the suites of the project file; --model and the like choose some of them.
    """
    return _compare(asked, folder, update=False)


@click.command("update", short_help="Generate again what changed in a folder of suites.")
@click.argument("folder", type=FOLDER, default=DEFAULT_SUITES)
@takes(*CELLS, *PATTERNS, "template_dir", "force")
def update_command(asked: Options, folder: Path) -> int:
    """Generate again the suites in FOLDER that would change."""
    return _compare(asked, folder, update=True)


@click.command("verify", short_help="Check that suites pass on the CPU and fail when their model is broken.")
@click.argument("folder", type=FOLDER, required=False)
@takes(*CELLS, *PATTERNS, *WRITING, "timeout", "jobs")
def verify_command(asked: Options, folder: Path | None) -> int:
    """Check that each suite compiles, is collected, passes on the CPU, and fails when its model is broken.

    Without models, check the suites in FOLDER. With models, write only the suites that pass this check.
    """
    from hwcompat.generators.suites.suite_files import suite_environment
    from hwcompat.generators.suites.verify import publish_suites, verify_asked
    from hwcompat.hardware.testing.pytest_environment import environment_with
    from hwcompat.reports.progress_bar import progress_on

    progress = progress_on(sys.stderr)
    if not (asked.models or asked.priority or asked.architectures or asked.config):
        where = folder or asked.output_dir
        if not where.is_dir():
            raise BrokenInput(f"{where} isn't a folder of suites", fix="Name the folder that --output-dir wrote to.")
        found = verify_asked(asked, sorted(where.glob("test_*.py")), progress, choose=True)
        click.echo(verified_text(found, asked.format_))
        return found.exit_code
    selection = select_suites(asked)
    with environment_with(suite_environment(selection.planned)):
        published = publish_suites(
            selection.planned,
            folder or asked.output_dir,
            force=asked.force,
            verify=lambda paths: verify_asked(asked, paths, progress, choose=False),
        )
    click.echo(published_text(published, asked.format_))
    note(*(f"{name} was edited by hand and is left alone (--force overwrites it)" for name in published.edited))
    return selection.finish(published.exit_code)


@click.command("bundle", short_help="Pack suites into a zip file that runs on another machine.")
@click.argument("path", type=FILE, metavar="FILE.zip")
@takes(*CELLS, *PATTERNS, "template_dir", formats=())
def bundle_command(asked: Options, path: Path) -> int:
    """Pack the suites of models on devices into FILE.zip, with a run.py for another machine."""
    from hwcompat.generators.suites.bundle import write_bundle
    from hwcompat.hardware.evidence.versions import versions_of

    selection = select_suites(asked)
    write_bundle(path, selection.planned, versions_of(selection.inventory))
    click.echo(f"{path}  ({len(selection.planned)} suites, predictions stored)")
    note(f"copy it over, unpack it, and there: cd {shlex.quote(path.stem)} && python run.py --resume")
    return selection.finish(0)


@click.command("web-page", short_help="Make a page that runs a cell's checks in a browser on another device.")
@click.argument("path", type=FILE, metavar="FILE.zip")
@takes(*CELLS, *PATTERNS, "template_dir", "evidence", "serve", formats=())
def web_page_command(asked: Options, path: Path) -> int:
    """Make a page that runs the checks of one model on webgpu or webnn in a browser on another device."""
    selection = select_suites(asked)
    job = plugins().job("web_page")
    return selection.finish(job(asked, path, selection.planned, selection.inventory, own_command()))


_HERE = ("durable", "measure")
_EXCLUDED = (
    ("distributed", "jobs", "the resources of a node set how many suites run at a time"),
    ("distributed", "machine", "each node names its own machine"),
    *((where, one, "other machines write the results") for where in ("distributed", "host") for one in _HERE),
    ("measure", "jobs", "suites beside each other are slower"),
    ("distributed", "no_redact", "nodes redact evidence before they send it"),
    ("distributed", "host", "a host is one machine"),
    ("host", "no_redact", "evidence is redacted where it is written"),
    ("host", "pytest_arguments", "pytest runs on the host; --select, --skip, --timeout and --jobs are passed"),
    *(("config", one, "the project file defines what fails the build") for one in ("fail_on", "baseline")),
    *(("expected", one, "the CSV defines what fails the build") for one in ("fail_on", "baseline")),
    ("expected", "update_expected", "hwcompat report --format expected writes the file"),
)
"""Options of a run that exclude each other, and why."""
_REQUIRED = (("update_expected", "config"), ("host_checkpoints", "host"), ("address", "distributed"))
"""Options of a run that need another one."""


def _check_run(asked: Options) -> None:
    """Raise `UsageError` for options of a run that don't go together."""
    for one, other, why in _EXCLUDED:
        if getattr(asked, one) and getattr(asked, other):
            raise UsageError(f"{_option_name(other)} doesn't go with {_option_name(one)}", why=why)
    for one, other in _REQUIRED:
        given = getattr(asked, one) and any(word.startswith(_option_name(one)) for word in own_arguments())
        if given and not getattr(asked, other):
            raise UsageError(f"{_option_name(one)} needs {_option_name(other)}")


def _option_name(name: str) -> str:
    names = {"pytest_arguments": "-- PYTEST…", "host_checkpoints": "--host-checkpoint"}
    return names.get(name, f"--{name.replace('_', '-')}")


def _for_pytest(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words after `--`. Raises `UsageError` for a word before it, such as a model without `--model`."""
    given = list(own_arguments())
    after = given[given.index("--") + 1 :] if "--" in given else []
    if len(after) != len(words):
        raise UsageError(
            f"unexpected argument {echo(words[0])}",
            fix=f"Name a model with --model {words[0]}; arguments for pytest come after --.",
        )
    return tuple(words)


def _compare(asked: Options, folder: Path, *, update: bool) -> int:
    from hwcompat.generators.suites.suite_files import compare_suites, regenerate

    if asked.config is None:
        refuse_selection("all suites of the folder are compared", "Leave it out, or add --config FILE.")
    inventory = inventory_of(asked)
    project = project_of(asked, inventory)
    state = compare_suites(
        folder,
        lambda suite: regenerate(
            suite,
            inventory,
            template_folder=asked.template_dir,
            tolerance=project.project.tolerance_for(suite.cell) if project else None,
        ),
        planned={suite.file_name: suite.text for suite in project.kept} if project else {},
        update=update,
        force=asked.force,
    )
    click.echo(compared_text(state, asked.format_))
    note(*state.notes)
    return state.exit_code


def _planned(asked: Options, inventory: HardwareInfo) -> tuple[Sequence[PlannedSuite], Sequence[str], Sequence[str]]:
    """Return the suites that the command line asks for, why models have none, and which of those were named."""
    from hwcompat.generators.chosen_models import choose_models, profiles_of
    from hwcompat.generators.run import plan_job
    from hwcompat.hardware.cell_selection import Shard

    chosen = choose_models(
        asked.models, priority=asked.priority, architectures=asked.architectures, read_list=sys.stdin.readlines
    )
    profiles, refused, unmet = profiles_of(
        chosen, asked.tasks, dims=asked.dims, length=asked.length, allow_tiny=asked.allow_tiny, inputs=asked.inputs
    )
    without_suite = list(refused)
    planned = plan_job(
        profiles,
        asked.devices,
        asked.precisions or ("float32",),
        inventory,
        select=asked.select,
        skip=asked.skip,
        shard=Shard.parse(asked.shard) if asked.shard else None,
        template_folder=asked.template_dir,
        suites=asked.output_dir,
        on_note=without_suite.append,
    )
    return planned, without_suite, unmet


_OF_A_REQUEST = (
    *("models", "priority", "architectures", "devices", "tasks", "dims", "length"),
    *("allow_tiny", "inputs", "precisions", "select", "skip", "shard"),
)


def _key(asked: Options, inventory: HardwareInfo) -> str:
    """Return a hash of everything that the suites are made from; empty if that can't be known beforehand."""
    if asked.list_cells or asked.config or asked.rules or asked.host or "-" in asked.models:
        return ""
    from hwcompat.generators.models.recipe import DERIVED
    from hwcompat.generators.suites.manifest import generation_key
    from hwcompat.hardware.files import cache_folder

    request = {name: getattr(asked, name) for name in _OF_A_REQUEST}
    return generation_key(request, inventory.to_dict(), [cache_folder(DERIVED)], asked.template_dir)


def _is_unchanged(asked: Options, key: str) -> bool:
    from hwcompat.generators.suites.manifest import what_is_there

    present = what_is_there(asked.output_dir, key)
    if present is not None:
        levels, notes = present
        _show_written(asked, levels)
        note(*notes, f"nothing has changed since these {len(levels)} suites were written")
    return present is not None


def _show_written(asked: Options, levels: Mapping[str, str]) -> None:
    command = command_of("run", *own_arguments()[1:])
    if levels:
        click.echo(written_text(asked.output_dir, levels, asked.format_, command))
    click.echo(f"Run them: {command}", err=True)
