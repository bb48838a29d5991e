"""Generates test suites for models on devices, runs them, and says what was proven.

Examples:

\b
  python run_test_generation.py --model bert --device auto --run
  python run_test_generation.py --model gpt2 --model t5 --device openvino --run
  python run_test_generation.py --model ./my-checkpoint --device cpu --run
  python run_test_generation.py --priority high --architectures vision,speech --device cpu --run --jobs 2
  python run_test_generation.py --hardware-compatibility --format markdown
  python run_test_generation.py --check hwcompat-out/suites

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

from generators.models.priority import PRIORITIES
from hardware.cell import PRECISIONS
from hardware.errors import NothingMatched, OutputError, UsageError
from hardware.evidence.versions import VERSION
from hardware.front_door import INTERRUPTED, open_door, terminal_width
from hardware.paths import DEFAULT_EVIDENCE, DEFAULT_REPORTS, DEFAULT_SUITES

if TYPE_CHECKING:
    from generators.job import CellResult, JobResult, WrittenSuite
    from generators.plan import PlannedSuite
    from hardware.detection import HardwareInfo
    from hardware.testing.suite_file import SuiteFile

FORMATS = ("table", "json", "markdown", "csv")

_FOLDER = click.Path(path_type=Path, file_okay=False)
_FOLDER_THAT_IS_THERE = click.Path(path_type=Path, file_okay=False, exists=True)


@click.command(help=__doc__, context_settings={"max_content_width": 100, "help_option_names": ["-h", "--help"]})
@click.option("--model", "models", multiple=True, help="Model type, checkpoint folder or Hub id; '-' reads a list.")
@click.option("--priority", type=click.Choice(PRIORITIES), help="Types of a priority; medium: OpenVINO exports them.")
@click.option("--architectures", multiple=True, help="Only these architectures or traits, separated by commas.")
@click.option("--device", "devices", multiple=True, help="A target, 'all' that may be here, or 'auto' (default).")
@click.option(
    "--tasks", "--task", multiple=True, help="Tasks, separated by commas, or 'all'; default: the primary one."
)
@click.option("--precision", "precisions", multiple=True, type=click.Choice(PRECISIONS), help="Default: float32.")
@click.option("--select", multiple=True, help="Keep only cells that fit, such as 'bert/*/cpu/*'.")
@click.option("--skip", multiple=True, help="Leave out cells that fit.")
@click.option("--list", "list_cells", is_flag=True, help="Print the cells and do nothing else.")
@click.option("--explain", is_flag=True, help="Say what each prediction and choice rests on; write nothing.")
@click.option("--run", is_flag=True, help="Run the suites and conclude.")
@click.option("--timeout", type=click.FloatRange(min=0.1), default=300.0, show_default=True, help="Seconds a check.")
@click.option("--allow-fallback", is_flag=True, help="A named device that isn't here is no failure.")
@click.option("--force", is_flag=True, help="Overwrite suites that were edited by hand.")
@click.option("--output-dir", type=_FOLDER, default=DEFAULT_SUITES, show_default=True, help="For suites.")
@click.option("--evidence", type=_FOLDER, default=DEFAULT_EVIDENCE, show_default=True, help="For evidence.")
@click.option("--report-dir", type=_FOLDER, default=DEFAULT_REPORTS, show_default=True, help="For reports.")
@click.option("--template-dir", type=_FOLDER_THAT_IS_THERE, help="Templates that come before ours.")
@click.option("--machine", default="", help="A name for this machine in the evidence.")
@click.option("--list-devices", is_flag=True, help="What this machine has, and which targets may be here.")
@click.option("--hardware-compatibility", is_flag=True, help="The matrix, with basis and counts.")
@click.option("--by", type=click.Choice(("family", "model")), help="One view of the matrix; default both.")
@click.option("--targets", multiple=True, help="Columns of the matrix, separated by commas; default all.")
@click.option("--format", "format_", type=click.Choice(FORMATS), default="table", show_default=True)
@click.option("--check", "check_folder", type=_FOLDER, help="Say what regenerating would change (exit code 1).")
@click.option("--update", "update_folder", type=_FOLDER, help="Regenerate what changed in a folder of suites.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.version_option(VERSION, prog_name="hwcompat")
@click.pass_context
def main(context: click.Context, /, **options: object) -> int:
    """Parse, call, print; see `help`."""
    asked = _Options(**options, pytest_arguments=context.obj or ())
    if not (asked.list_devices or asked.hardware_compatibility) and _was_given(context, "format_"):
        raise UsageError("--format goes with --list-devices or --hardware-compatibility", fix="Leave it out.")
    if asked.targets and not asked.hardware_compatibility:
        raise UsageError("--targets goes with --hardware-compatibility", fix="A device to run on is --device.")
    if asked.list_devices:
        return _list_devices(asked)
    if asked.hardware_compatibility:
        return _matrix(asked)
    if asked.check_folder or asked.update_folder:
        return _compare(asked)
    return _generate(asked)


def _was_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


class _Options:
    """The command line, by the names of its options."""

    models: tuple[str, ...]
    priority: str | None
    architectures: tuple[str, ...]
    devices: tuple[str, ...]
    tasks: tuple[str, ...]
    precisions: tuple[str, ...]
    select: tuple[str, ...]
    skip: tuple[str, ...]
    list_cells: bool
    explain: bool
    run: bool
    timeout: float
    allow_fallback: bool
    force: bool
    output_dir: Path
    evidence: Path
    report_dir: Path
    template_dir: Path | None
    machine: str
    list_devices: bool
    hardware_compatibility: bool
    by: str | None
    targets: tuple[str, ...]
    format_: str
    check_folder: Path | None
    update_folder: Path | None
    debug: bool
    pytest_arguments: Sequence[str]

    def __init__(self, **values: object) -> None:
        self.__dict__.update(values)


def _list_devices(asked: _Options) -> int:
    from hardware.detection import detect
    from hardware.listing import list_text

    click.echo(list_text(detect(), asked.format_), nl=False)
    return 0


def _matrix(asked: _Options) -> int:
    from generators.compatibility.current import current_matrix
    from generators.compatibility.matrix_text import matrix_text
    from hardware.detection import detect
    from hardware.evidence.store import read_folder
    from hardware.evidence.writer import now

    # Without evidence there are still rules; but a folder that was named has to be there.
    absent = asked.evidence == DEFAULT_EVIDENCE and not asked.evidence.exists()
    evidence = None if absent else read_folder(asked.evidence)
    precision = asked.precisions[0] if asked.precisions else "float32"
    matrix = current_matrix(evidence, detect(), timestamp=now(), precision=precision)
    targets = [name.strip() for text in asked.targets for name in text.split(",") if name.strip()]
    if targets:
        matrix = matrix.only(targets)
    if asked.format_ == "csv" and not asked.by:
        raise UsageError("csv is one table", fix="Say which view: --by family or --by model.")
    one_view = asked.format_ in ("json", "csv")  # JSON holds both
    views = [asked.by] if asked.by else ["family"] if one_view else ["family", "model"]
    width = terminal_width()
    parts = [
        matrix_text(matrix, asked.format_, by=view, width=width, legend=view == views[-1]).rstrip() for view in views
    ]
    click.echo("\n\n".join(parts))
    return 0


def _compare(asked: _Options) -> int:
    from generators.suites.files import State, compare_folder, write_suite
    from generators.suites.regenerate import regenerate
    from hardware.detection import detect

    folder = asked.update_folder or asked.check_folder
    assert folder is not None

    inventory = detect()

    def again(suite: SuiteFile) -> str:
        return regenerate(suite, inventory, template_folder=asked.template_dir)

    compared, texts = compare_folder(folder, again)
    if not compared:
        raise NothingMatched(f"{folder} holds no suites", fix="Name the folder that --output-dir wrote to.")
    for one in compared:
        if asked.update_folder and one.path in texts:
            write_suite(folder, one.path.name, texts[one.path], force=asked.force)
        click.echo(f"{one.state:<8} {one.path.name}" + (f"  ({one.reason})" if one.reason else ""))
    if any(one.state is State.EDITED for one in compared) and not asked.force:
        _note(["edited files are left alone; --update DIR --force overwrites them"])
    if asked.check_folder and any(one.state is State.CHANGED for one in compared):
        _note([f"--update {shlex.quote(str(folder))} regenerates what changed"])
    if asked.update_folder:
        left = [one for one in compared if one.state in (State.EDITED, State.ORPHAN)]
        return 1 if left and not asked.force else 0
    return 0 if all(one.state is State.CURRENT for one in compared) else 1


def _generate(asked: _Options) -> int:
    from generators.chosen import choose_models, profiles_of
    from generators.job import plan_job, write_suites
    from hardware.detection import detect

    inventory = detect()
    key = _key(asked, inventory)
    if key and _is_unchanged(asked, key):
        return 0
    chosen = choose_models(
        asked.models, priority=asked.priority, architectures=asked.architectures, read_list=sys.stdin.readlines
    )
    profiles, refused = profiles_of(chosen, asked.tasks)
    _note([*(profile.note for profile in profiles if profile.note), *(f"no suite for {why}" for why in refused)])
    planned = plan_job(
        profiles,
        asked.devices,
        asked.precisions or ("float32",),
        inventory,
        select=asked.select,
        skip=asked.skip,
        template_folder=asked.template_dir,
    )
    if asked.list_cells or asked.explain:
        click.echo(_cells_text(planned, explain=asked.explain))
        return 0
    written = write_suites(planned, asked.output_dir, force=asked.force)
    edited = [one for one in written if str(one.state) == "edited" and not asked.force]
    _note([f"{one.path} was edited by hand and is left alone (--force overwrites it)" for one in edited])
    if asked.run:
        return _run(asked, written, inventory)
    said = {one.path.name: f"({one.planned.verdict.level}, {one.planned.verdict.basis})" for one in written}
    _say_written(asked, said)
    if key and not (edited or refused or any(not profile.is_plain_type for profile in profiles)):
        from generators.suites.manifest import remember

        remember(asked.output_dir, key, said)
    return 0


def _key(asked: _Options, inventory: HardwareInfo) -> str:
    """What these suites are made from, where only suites are asked for and standard input has no part in it."""
    if asked.run or asked.list_cells or asked.explain or "-" in asked.models:
        return ""
    from generators.suites.manifest import generation_key
    from hardware.paths import cache_folder

    parts = ("models", "priority", "architectures", "devices", "tasks", "precisions", "select", "skip")
    request = {name: getattr(asked, name) for name in parts}
    return generation_key(request, inventory.to_dict(), [cache_folder("recipes")], asked.template_dir)


def _is_unchanged(asked: _Options, key: str) -> bool:
    from generators.suites.manifest import what_is_there

    present = what_is_there(asked.output_dir, key)
    if present is not None:
        _say_written(asked, {one.name: one.said for one in present})
        _note([f"nothing has changed: {len(present)} suite(s) are as they were written"])
    return present is not None


def _say_written(asked: _Options, said: Mapping[str, str]) -> None:
    for name, text in said.items():
        click.echo(f"{asked.output_dir / name}  {text}")
    click.echo(f"Run it: {_next_command()}", err=True)


def _cells_text(planned: Sequence[PlannedSuite], *, explain: bool) -> str:
    if not explain:
        return "\n".join(suite.cell.id for suite in planned)
    from generators.compatibility.rules import load_rules
    from generators.explain import explanation

    rules = load_rules()
    return "\n\n".join(explanation(suite, rules) for suite in planned)


def _note(texts: Sequence[str]) -> None:
    for text in texts:
        click.echo(f"note: {text}", err=True)


def _next_command() -> str:
    own, for_pytest = _split(sys.argv[1:])
    return shlex.join(["python", sys.argv[0], *own, "--run", *(["--", *for_pytest] if for_pytest else [])])


def _run(asked: _Options, written: Sequence[WrittenSuite], inventory: HardwareInfo) -> int:
    from generators.job import JobInterrupted
    from hardware.evidence.record import Outcome
    from reports.run_files import write_run_reports
    from reports.run_table import run_text

    _prepare(asked.report_dir)
    ending = ""
    try:
        result = _run_written(asked, written, inventory)
    except JobInterrupted as error:
        result, ending = error.result, "interrupted"
    report = write_run_reports(result, asked.evidence, asked.report_dir)
    click.echo(run_text(result, report, width=terminal_width()))
    if ending:
        lines = [line for cell in result.cells for line in cell.lines]
        done = sum(line.outcome is not Outcome.NOT_RUN for line in lines)
        click.echo(f"error: interrupted: {done} of {len(lines)} checks were done, the rest is not_run", err=True)
        return INTERRUPTED
    _explain(result, asked)
    return result.exit_code(allow_fallback=asked.allow_fallback)


def _run_written(asked: _Options, written: Sequence[WrittenSuite], inventory: HardwareInfo) -> JobResult:
    from generators.job import run_job
    from hardware.testing.runner import Limits, default_memory_limit

    return run_job(
        written,
        inventory,
        evidence=asked.evidence,
        command=shlex.join(["python", "run_test_generation.py", *sys.argv[1:]]),
        machine=asked.machine,
        limits=Limits(timeout_s=asked.timeout, memory_bytes=default_memory_limit()),
        pytest_arguments=asked.pytest_arguments,
        on_progress=lambda suite, check: click.echo(f"{suite.cell.id}  {check}", err=True),
    )


def _prepare(report_dir: Path) -> None:
    """Make the folder for reports before anything runs, so that no run is spent on reports that can't be kept."""
    try:
        report_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"reports cannot be written to {report_dir}",
            why=error.strerror or str(error),
            fix="Name another folder with --report-dir.",
        ) from error


def _explain(result: JobResult, asked: _Options) -> None:
    missing: list[CellResult] = [c for c in result.cells if c.substituted and c.written.planned.required]
    for cell in missing:
        mild = asked.allow_fallback
        ending = "allowed by --allow-fallback" if mild else "exit code 1; --allow-fallback makes it 0"
        click.echo(
            f"{'note' if mild else 'error'}: {cell.written.planned.device} was asked for and isn't here "
            f"({cell.substituted}); nothing counts for it ({ending})",
            err=True,
        )


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our own arguments, and pytest's after a lone `--`."""
    if "--" not in arguments:
        return list(arguments), []
    place = list(arguments).index("--")
    return list(arguments[:place]), list(arguments[place + 1 :])


if __name__ == "__main__":
    own, for_pytest = _split(sys.argv[1:])
    main.context_settings["obj"] = for_pytest
    sys.exit(open_door(main, own, program="run_test_generation.py"))
