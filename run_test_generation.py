"""Generates test suites for models on devices, runs them, and says what was proven.

Examples:

\b
  python run_test_generation.py --model bert --device auto --run
  python run_test_generation.py --model gpt2 --model t5 --device openvino --run
  python run_test_generation.py --model ./my-checkpoint --device cpu --run
  python run_test_generation.py --priority high --architectures vision,speech --device cpu --run --jobs 2
  python run_test_generation.py --hardware-compatibility --format markdown
  python run_test_generation.py --explain bert/fill-mask/openvino/float32
  python run_test_generation.py --hardware-compatibility --baseline matrix.json --fail-on worse
  python run_test_generation.py --coverage-report --targets cpu,openvino
  python run_test_generation.py --backlog qnn
  python run_test_generation.py --place --model bert --model gpt2 --inventory lab1.json
  python run_test_generation.py --check hwcompat-out/suites
  python run_test_generation.py --verify hwcompat-out/suites
  python run_test_generation.py --config hwcompat.toml --run
  python run_test_generation.py --refresh --dry-run
  python run_test_generation.py --model bert --device webgpu --web-page page.zip
  python run_test_generation.py --priority high --device cpu --run --distributed ray --address HOST:6379
  python run_test_generation.py --model bert --device cuda --host user@lab --run
  python run_test_generation.py --model llama --mesh data=2,tensor=2 --device cpu
  python run_test_generation.py --upstream ./transformers --model bert --device cpu

Without --run the suites are written, and the command that runs them is printed. What follows a lone -- goes to
pytest. Options are taken from the command line first, then from HWCOMPAT_... variables, then from the project file.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from generators.option_rules import refuse_together
from generators.options import Options, with_options
from hardware.command_line import note, run_command_line, terminal_width
from hardware.command_names import as_runnable, command_of, own_command, program_of
from hardware.errors import ModelError, ModelMissing
from hardware.evidence.evidence_location import fetch_remote
from hardware.evidence.versions import RELEASE
from hardware.plugins import plugins
from hardware.redaction import LEFT_IN, turn_off
from reports.suites_text import cells_text, compared_text, explained_text, published_text, verified_text, written_text

if TYPE_CHECKING:
    from generators.plan import PlannedSuite
    from generators.project.project_plan import ProjectRun
    from hardware.detection import HardwareInfo


@click.command(
    help=as_runnable(__doc__), context_settings={"max_content_width": 100, "help_option_names": ["-h", "--help"]}
)
@with_options
@click.version_option(RELEASE, prog_name="hwcompat")
@click.pass_context
def main(context: click.Context, /, **options: object) -> int:
    """Parse, call, print; see `help`."""
    asked = Options(**options, pytest_arguments=context.obj or ())
    given = {
        name: _was_given(context, option)
        for name, option in (("format_given", "format_"), ("address_given", "address"))
    }
    refuse_together(asked, **given)
    if asked.remote is not None:
        fetch_remote(asked.remote)
    if asked.no_redact:
        turn_off()
        note(f"--no-redact: {LEFT_IN} stay in evidence and reports; look through them before you hand them on")
    printed = _print_requested(asked)
    if printed is not None:
        return printed
    if asked.refresh:
        return plugins().job("refresh")(asked, _own_command())
    if asked.upstream:
        return plugins().job("upstream")(asked, asked.upstream, _own_command())
    if asked.check_folder or asked.update_folder:
        return _compare(asked)
    if (folder := asked.folder_to_verify()) is not None:
        return _verify(asked, sorted(folder.glob("test_*.py")))
    return _generate(asked)


def _print_requested(asked: Options) -> int | None:
    """Print what was requested and return the exit code; None if there is a job to do."""
    if asked.list_devices:
        return _list_devices(asked)
    if asked.hardware_compatibility:
        from reports.matrix_command import report_matrix

        return report_matrix(asked)
    if asked.explain:
        from reports.explain_command import report_explanation

        return report_explanation(asked, asked.explain)
    if asked.calibration:
        return plugins().job("calibration")(asked)
    if asked.coverage_report:
        from reports.coverage_command import report_coverage

        return report_coverage(asked, _own_command())
    if asked.place:
        return plugins().job("place")(asked)
    if asked.mesh is not None:
        return plugins().job("mesh")(asked, asked.mesh)
    if asked.backlog:
        return plugins().job("backlog")(asked, asked.backlog)
    return None


def _was_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def _inventory(asked: Options) -> HardwareInfo:
    """Return the inventory of this machine, or of the named one."""
    if asked.host:
        return plugins().job("host_inventory")(asked)
    from hardware.basic_detection import inventory_here

    return inventory_here()


def _list_devices(asked: Options) -> int:
    from hardware.inventory_text import list_text

    click.echo(list_text(_inventory(asked), asked.format_), nl=False)
    return 0


def _compare(asked: Options) -> int:
    from generators.suites.suite_files import compare_suites, regenerate
    from hardware.basic_detection import inventory_here

    folder = asked.update_folder or asked.check_folder
    assert folder is not None
    inventory = inventory_here()
    project = _project(asked, inventory)
    state = compare_suites(
        folder,
        lambda suite: regenerate(
            suite,
            inventory,
            template_folder=asked.template_dir,
            tolerance=project.project.tolerance_for(suite.cell) if project else None,
        ),
        planned={suite.file_name: suite.text for suite in project.kept} if project else {},
        update=asked.update_folder is not None,
        force=asked.force,
    )
    click.echo(compared_text(state, asked.format_))
    note(*state.notes)
    return state.exit_code


def _verify(asked: Options, paths: Sequence[Path]) -> int:
    from generators.suites.verify import verify_asked
    from reports.progress_bar import progress_on

    found = verify_asked(asked, paths, progress_on(sys.stderr))
    click.echo(verified_text(found, asked.format_))
    return found.exit_code


def _publish(asked: Options, planned: Sequence[PlannedSuite]) -> int:
    from generators.suites.verify import publish_suites, verify_asked
    from reports.progress_bar import progress_on

    progress = progress_on(sys.stderr)
    found = publish_suites(
        planned, asked.output_dir, force=asked.force, verify=lambda paths: verify_asked(asked, paths, progress)
    )
    click.echo(published_text(found, asked.format_))
    left = (
        f"{asked.output_dir / name} was edited by hand and is left alone (--force overwrites it)"
        for name in found.edited
    )
    note(*left)
    return found.exit_code


def _generate(asked: Options) -> int:
    from generators.plan import without_missing

    inventory = _inventory(asked)
    key = _key(asked, inventory)
    if key and _is_unchanged(asked, key):
        return 0
    project = _project(asked, inventory)
    every, refused, unmet = (project.kept, (), ()) if project else _plan(asked, inventory)
    planned = every
    here = asked.run and not (asked.host or asked.distributed)
    if not (here or asked.list_cells or asked.explain is not None):  # these report what is unknown
        planned, refused, unmet = without_missing(planned, refused, unmet)
    profiles = dict.fromkeys(suite.profile.note for suite in planned)
    notes = [*filter(None, profiles), *(f"no suite for {why}" for why in refused)]
    note(*notes)
    code = _do_job(asked, planned, inventory, project, notes, key="" if unmet else key)
    if unmet and code == 0:  # the others were done first
        missing = any(suite.profile.missing for suite in every)
        kind = ModelMissing if missing else ModelError
        raise kind(f"no suite for {', '.join(unmet)}", why="what was asked for is more than what was done")
    return code


def _do_job(
    asked: Options,
    planned: Sequence[PlannedSuite],
    inventory: HardwareInfo,
    project: ProjectRun | None,
    notes: Sequence[str],
    *,
    key: str,
) -> int:
    """Do the requested job with the planned suites; return the exit code."""
    from generators.run import write_suites  # importing what generates takes longer than finding nothing changed

    if asked.explain is not None:
        click.echo(explained_text(planned, asked.format_, width=terminal_width()))
        return 0
    if asked.list_cells:
        click.echo(cells_text(planned, asked.format_))
        return 0
    if asked.web_page:
        return plugins().job("web_page")(asked, asked.web_page, planned, inventory, _own_command())
    if asked.bundle:
        return _bundle(asked.bundle, planned, inventory)
    if asked.verify is not None:
        return _publish(asked, planned)
    written = write_suites(planned, asked.output_dir, force=asked.force)
    edited = [one for one in written if str(one.state) == "edited" and not asked.force]
    note(*(f"{one.path} was edited by hand and is left alone (--force overwrites it)" for one in edited))
    if asked.run:
        from reports.run_command import run_suites

        return run_suites(asked, written, inventory, project, _own_command())
    said = {one.path.name: f"{one.planned.verdict.level}, {one.planned.verdict.basis}" for one in written}
    _print_written(asked, said)
    if key and not (edited or any(not suite.profile.is_plain_type for suite in planned)):
        from generators.suites.manifest import remember

        remember(asked.output_dir, key, said, notes)
    return 0


def _bundle(path: Path, planned: Sequence[PlannedSuite], inventory: HardwareInfo) -> int:
    from generators.suites.bundle import write_bundle
    from hardware.evidence.versions import versions_of

    write_bundle(path, planned, versions_of(inventory))
    click.echo(f"{path}  ({len(planned)} suite(s), predictions stored)")
    click.echo(
        f"Carry it over, unpack it, and there: cd {shlex.quote(path.stem)} && python run.py --resume", err=True
    )
    return 0


def _plan(asked: Options, inventory: HardwareInfo) -> tuple[Sequence[PlannedSuite], Sequence[str], Sequence[str]]:
    """Return the suites that the command line requests, why models have none, and which of those were named."""
    from generators.chosen_models import choose_models, profiles_of
    from generators.run import plan_job
    from hardware.cell_selection import Shard

    chosen = choose_models(
        asked.models, priority=asked.priority, architectures=asked.architectures, read_list=sys.stdin.readlines
    )
    profiles, refused, unmet = profiles_of(chosen, asked.tasks, dims=asked.dims, allow_tiny=asked.allow_tiny)
    left_out = list(refused)
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
        on_note=left_out.append,
    )
    return planned, left_out, unmet


def _project(asked: Options, inventory: HardwareInfo) -> ProjectRun | None:
    """Return the plan of the project file, if one was named; the command line overrides it."""
    if asked.config is None:
        return None
    from generators.project.project_plan import plan_asked

    return plan_asked(
        asked,
        asked.config,
        inventory,
        read_list=sys.stdin.readlines,
        on_note=lambda why: note(f"no suite for {why}"),
    )


def _key(asked: Options, inventory: HardwareInfo) -> str:
    """Return a key of what these suites are made from, if only suites are requested and standard input isn't used."""
    more = asked.first_given("--run", "--list", "--explain", "--config", "--bundle", "--web-page", "--verify")
    if more or "-" in asked.models:
        return ""
    from generators.models.recipe import DERIVED
    from generators.suites.manifest import generation_key
    from hardware.files import cache_folder

    parts = (
        *("models", "priority", "architectures", "devices", "tasks", "dims", "allow_tiny", "precisions"),
        *("select", "skip", "shard"),
    )
    request = {name: getattr(asked, name) for name in parts}
    return generation_key(request, inventory.to_dict(), [cache_folder(DERIVED)], asked.template_dir)


def _is_unchanged(asked: Options, key: str) -> bool:
    from generators.suites.manifest import what_is_there

    present = what_is_there(asked.output_dir, key)
    if present is not None:
        said, notes = present
        _print_written(asked, said)
        note(*notes, f"nothing has changed: {len(said)} suite(s) are as they were written")
    return present is not None


def _print_written(asked: Options, said: Mapping[str, str]) -> None:
    command = _next_command()
    if said:
        click.echo(written_text(asked.output_dir, said, asked.format_, command))
    click.echo(f"Run it: {command}", err=True)


def _own_command() -> str:
    return own_command("run_test_generation", sys.argv[1:])


def _next_command() -> str:
    own, for_pytest = _split(sys.argv[1:])
    more = ["--", *for_pytest] if for_pytest else []
    return f"{command_of('run_test_generation')} {shlex.join([*own, '--run', *more])}"


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split our own arguments from those of pytest after a lone `--`."""
    if "--" not in arguments:
        return list(arguments), []
    place = list(arguments).index("--")
    return list(arguments[:place]), list(arguments[place + 1 :])


def start() -> int:
    """Parse, run, and convert every error to one line and an exit code."""
    own, for_pytest = _split(sys.argv[1:])
    main.context_settings["obj"] = for_pytest
    return run_command_line(main, own, program=program_of("run_test_generation"))


if __name__ == "__main__":
    sys.exit(start())
