"""The options of `run_test_generation.py`, and their values under their names."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from generators.models.priority import PRIORITIES
from hardware.cell import PRECISIONS
from hardware.command_line import PrecisionChoice
from hardware.errors import BrokenInput, UsageError, echo
from hardware.evidence.address import Address
from hardware.evidence.evidence_location import EvidenceLocation, split_location
from hardware.files import DEFAULT_EVIDENCE, DEFAULT_REPORTS, DEFAULT_SUITES

if TYPE_CHECKING:
    from hardware.evidence.store import Evidence

FORMATS = ("table", "text", "json", "markdown", "csv", "html")

_FILE = click.Path(path_type=Path, dir_okay=False)
_FOLDER = click.Path(path_type=Path, file_okay=False)
_FOLDER_THAT_IS_THERE = click.Path(path_type=Path, file_okay=False, exists=True)


def _listed(_context: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of an option that may be repeated and whose values may be comma-separated lists, each once.

    An empty value, as of an unset variable, is rejected: it would request nothing, and pass.
    """
    words = tuple(dict.fromkeys(word for text in texts for part in text.split(",") if (word := part.strip())))
    if texts and not words:
        raise click.BadParameter("it is given and empty")
    return words


def _a_number(_context: click.Context, _option: click.Parameter, value: float | None) -> float | None:
    """Return the number of an option; reject NaN, which passes every check of a range."""
    if value is not None and math.isnan(value):
        raise click.BadParameter("that is no number")
    return value


_Command = TypeVar("_Command", bound=Callable[..., object])


def _option(*names: str, **settings: Any) -> Any:
    """Return the field of `Options` for one option of the command line."""
    return functools.partial(click.option, *names, **settings)


class Options:
    """The command line, by the names of its options."""

    models: tuple[str, ...] = _option(
        "--model",
        multiple=True,
        help="A type, checkpoint folder or Hub id; '-' reads a list. With the matrix: show only these models "
        "(comma-separated).",
    )
    priority: str | None = _option(
        "--priority", type=click.Choice(PRIORITIES), help="Types of a priority; medium: OpenVINO exports them."
    )
    architectures: tuple[str, ...] = _option(
        "--architectures",
        multiple=True,
        callback=_listed,
        help="Only these architectures or traits, separated by commas.",
    )
    config: Path | None = _option(
        "--config", type=_FILE, help="A project file, hwcompat.toml; the command line beats it."
    )
    update_expected: bool = _option(
        "--update-expected", is_flag=True, help="Write what was measured into the project file's lock."
    )
    devices: tuple[str, ...] = _option(
        "--device",
        multiple=True,
        envvar="HWCOMPAT_DEVICE",
        help="A target, 'all' that may be here, 'known' (all, here or not), or 'auto' (default).",
    )
    tasks: tuple[str, ...] = _option(
        "--tasks",
        "--task",
        multiple=True,
        callback=_listed,
        help="Tasks, separated by commas, or 'all'; default: the primary one.",
    )
    dims: str = _option(
        "--dims",
        type=click.Choice(("tiny", "real")),
        default="tiny",
        show_default=True,
        help="Real: one or two layers at the real widths, random weights.",
    )
    allow_tiny: bool = _option(
        "--allow-tiny",
        is_flag=True,
        help="If a checkpoint's weights aren't here, run a tiny model of its type, under the type's name.",
    )
    precisions: tuple[str, ...] = _option(
        "--precision",
        multiple=True,
        envvar="HWCOMPAT_PRECISION",
        type=PrecisionChoice(PRECISIONS),
        help="Default: float32.",
    )
    select: tuple[str, ...] = _option(
        "--select", multiple=True, help="Keep only cells that fit, such as 'bert/*/cpu/*'."
    )
    skip: tuple[str, ...] = _option("--skip", multiple=True, help="Leave out cells that fit.")
    shard: str | None = _option(
        "--shard", metavar="I/N", help="Only the I-th of N shares of the cells, for several machines."
    )
    list_cells: bool = _option("--list", is_flag=True, help="Print the cells and do nothing else.")
    explain: str | None = _option(
        "--explain",
        is_flag=False,
        flag_value="",
        metavar="[CELL]",
        help="Say what each prediction and choice rests on, of the selection or of one cell; write nothing.",
    )
    run: bool = _option("--run", is_flag=True, help="Run the suites and report the verdicts.")
    timeout: float | None = _option(
        "--timeout",
        type=click.FloatRange(min=0.1),
        callback=_a_number,
        envvar="HWCOMPAT_TIMEOUT",
        help="Seconds a check; default: the target's own (cpu 300).",
    )
    jobs: int | None = _option(
        "--jobs", type=click.IntRange(min=1), help="Suites at a time; default: what suits the machine."
    )
    resume: bool = _option(
        "--resume", is_flag=True, help="Go on with the newest run in the evidence folder if it was cut off."
    )
    refresh: bool = _option(
        "--refresh", is_flag=True, help="Run again what has expired in the evidence folder, and nothing else."
    )
    dry_run: bool = _option(
        "--dry-run", is_flag=True, help="With --refresh: say what has expired and how long it takes."
    )
    distributed: str | None = _option(
        "--distributed",
        type=click.Choice(("ray",)),
        help="With --run: on the nodes of a cluster, each cell where its target is.",
    )
    address: str | None = _option(
        "--address",
        metavar="HOST:PORT",
        envvar="RAY_ADDRESS",
        help="Of the cluster, or 'auto'; default: a node of this machine alone.",
    )
    allow_fallback: bool = _option(
        "--allow-fallback", is_flag=True, help="A named device that isn't here is no failure."
    )
    force: bool = _option("--force", is_flag=True, help="Overwrite suites that were edited by hand.")
    output_dir: Path = _option(
        "--output-dir", type=_FOLDER, default=DEFAULT_SUITES, show_default=True, help="For suites."
    )
    evidence: Path = _option(
        "--evidence",
        type=EvidenceLocation(file_okay=False),
        default=DEFAULT_EVIDENCE,
        show_default=True,
        metavar="DIR|ADDRESS",
        help="For evidence; what only reads it takes an address in object storage too: s3://bucket/prefix.",
    )
    report_dir: Path = _option(
        "--report-dir", type=_FOLDER, default=DEFAULT_REPORTS, show_default=True, help="For reports."
    )
    template_dir: Path | None = _option(
        "--template-dir", type=_FOLDER_THAT_IS_THERE, help="Templates that come before ours."
    )
    no_redact: bool = _option(
        "--no-redact",
        is_flag=True,
        help="Leave names of user and machine, home folders and addresses in the evidence; secrets are taken out.",
    )
    machine: str = _option("--machine", default="", help="A name for this machine in the evidence.")
    host: str | None = _option(
        "--host",
        metavar="[USER@]NAME[:FOLDER]",
        help="With --run: run on that machine, which ssh reaches. With --list-devices: what it has.",
    )
    host_python: str = _option(
        "--host-python",
        default="python3",
        metavar="PATH",
        help="The Python there that has torch, transformers and pytest; default: python3.",
    )
    host_checkpoints: tuple[str, ...] = _option(
        "--host-checkpoint", multiple=True, metavar="DIR", help="A folder of real weights there."
    )
    host_patience: float = _option(
        "--host-patience",
        type=click.FloatRange(min=0),
        callback=_a_number,
        default=600,
        show_default=True,
        metavar="S",
        help="Seconds for which a line that broke is tried again; the run goes on meanwhile.",
    )
    list_devices: bool = _option(
        "--list-devices", is_flag=True, help="What this machine has, and which targets may be here."
    )
    hardware_compatibility: bool = _option(
        "--hardware-compatibility", is_flag=True, help="The matrix, with basis and counts."
    )
    by: str | None = _option(
        "--by",
        type=click.Choice(("family", "model", "architecture", "accelerator", "machine")),
        help="One view of the matrix; default by family and by model.",
    )
    baseline: Path | None = _option(
        "--baseline",
        type=_FILE,
        metavar="FILE.json",
        help="Show only what changed since that matrix, worse first. With --run a report: what it has doesn't fail.",
    )
    fail_on: tuple[str, ...] = _option(
        "--fail-on",
        multiple=True,
        callback=_listed,
        metavar="WORDS",
        help="Exit with 1 if cells of the baseline became worse, expired, unsupported, unknown or changed. "
        "With --run: exit with 1 for findings of at least this severity: critical, error, warning or info.",
    )
    coverage_report: bool = _option(
        "--coverage-report", is_flag=True, help="How many of all model types work, why the others don't, what is new."
    )
    calibration: bool = _option(
        "--calibration",
        is_flag=True,
        help="How often the predictions that were stored before runs were right, by target and by rule.",
    )
    previous: Path | None = _option(
        "--previous", type=_FILE, metavar="FILE.json", help="The coverage report to compare with; default: the last."
    )
    fail_under: float | None = _option(
        "--fail-under",
        type=click.FloatRange(0, 100),
        callback=_a_number,
        metavar="PERCENT",
        help="Exit code 1 where fewer of the types that can be built passed.",
    )
    backlog: str | None = _option(
        "--backlog",
        metavar="TARGET",
        help="Operators that stand between model types and a target, those that unlock most first.",
    )
    targets: tuple[str, ...] = _option(
        "--targets",
        multiple=True,
        callback=_listed,
        help="Columns of the matrix (default all), or targets of the coverage (default cpu), separated by commas.",
    )
    format_: str = _option("--format", type=click.Choice(FORMATS), default="table", show_default=True)
    place: bool = _option(
        "--place", is_flag=True, help="Say which device each model goes on, by memory, speed and rules."
    )
    pin: tuple[str, ...] = _option(
        "--pin", multiple=True, metavar="MODEL=DEVICE", help="With --place: put this model on this device only."
    )
    forbid: tuple[str, ...] = _option(
        "--forbid", multiple=True, metavar="MODEL=DEVICE", help="With --place: not on this device."
    )
    inventory: tuple[Path, ...] = _option(
        "--inventory",
        multiple=True,
        type=_FILE,
        metavar="FILE.json",
        help="With --place: the devices of this machine, from python -m hardware list --format json. Repeatable.",
    )
    in_turn: bool = _option(
        "--in-turn", is_flag=True, help="With --place: models run one after the other, not all at once."
    )
    bundle: Path | None = _option(
        "--bundle", type=_FILE, metavar="FILE.zip", help="Pack the suites with a run.py, to run elsewhere."
    )
    web_page: Path | None = _option(
        "--web-page",
        type=_FILE,
        metavar="FILE.zip",
        help="Make a page of one model on webgpu or webnn, to open on another device: it runs the checks there.",
    )
    serve: bool = _option("--serve", is_flag=True, help="With --web-page: serve the page on 127.0.0.1 until Ctrl-C.")
    check_folder: Path | None = _option(
        "--check", type=_FOLDER, help="Say what regenerating would change (exit code 1)."
    )
    update_folder: Path | None = _option(
        "--update", type=_FOLDER, help="Regenerate what changed in a folder of suites."
    )
    verify: str | None = _option(
        "--verify",
        is_flag=False,
        flag_value="",
        metavar="[DIR]",
        help="Does each suite compile, get collected, pass on CPU, and fail when its model is broken? Of a selection "
        "those alone are written that do; without one it says so of the suites in DIR, or in --output-dir.",
    )
    mesh: str | None = _option(
        "--mesh",
        metavar="SPLIT",
        help="Plan one model over several devices and check the split with torch.distributed: data=2,tensor=2, "
        "pipeline=2, or auto, the fewest devices that it fits.",
    )
    upstream: Path | None = _option(
        "--upstream",
        type=_FOLDER_THAT_IS_THERE,
        metavar="CHECKOUT",
        help="Run transformers' own tests of the models, from a checkout of the installed version: a second opinion, "
        "which makes no level.",
    )
    debug: bool = _option("--debug", is_flag=True, help="Show tracebacks.")
    remote: Address | None = None
    pytest_arguments: Sequence[str] = ()

    def __init__(self, **values: object) -> None:
        self.__dict__.update(dict.fromkeys(_OPTIONS), **values)
        if isinstance(place := values.get("evidence"), Address):
            self.evidence, self.remote = split_location(place)

    def first_given(self, *options: str) -> str:
        """Return the first of these options (`--run`) whose value isn't its default; empty if there is none."""
        for option in options:
            name = _ATTRIBUTES[option]
            value = getattr(self, name)
            if value not in (None, (), _OPTIONS[name].keywords.get("default")) and value is not False:
                return option
        return ""

    @property
    def precision(self) -> str:
        """The one precision of a table: the first that was given."""
        return self.precisions[0] if self.precisions else "float32"

    def read_evidence(self) -> Evidence | None:
        """Return the evidence; None if no folder was named and the usual one doesn't exist yet.

        Raises `BrokenInput` if a named folder doesn't exist.
        """
        from hardware.evidence.store import read_folder

        return read_folder(self.evidence) if self.has_evidence else None

    @property
    def has_evidence(self) -> bool:
        """Whether a folder of evidence was named, or the usual one exists."""
        return self.evidence != DEFAULT_EVIDENCE or self.evidence.exists()

    def folder_to_verify(self) -> Path | None:
        """Return the folder that `--verify` names; None if it wasn't given, or if models were chosen.

        Raises `UsageError` if it is combined with another job, `BrokenInput` if there is no such folder.
        """
        if self.verify is None:
            return None
        chosen = bool(self.models or self.priority or self.architectures or self.config)
        if self.run or self.bundle or self.web_page or self.list_cells or self.explain is not None:
            fix = "Leave out --run, --bundle, --web-page, --list and --explain."
            raise UsageError("--verify is a job of its own", fix=fix)
        if chosen and self.verify:
            raise UsageError(
                f"--verify {echo(self.verify)} and a selection of models were both given",
                why="a folder holds the suites that it holds",
                fix="Name one of them; --select and --skip choose among a folder's cells.",
            )
        folder = Path(self.verify or self.output_dir)
        if not chosen and not folder.is_dir():
            raise BrokenInput(f"{folder} is no folder of suites", fix="Name the folder that --output-dir wrote to.")
        return None if chosen else folder


_OPTIONS = {name: one for name, one in vars(Options).items() if isinstance(one, functools.partial)}
_ATTRIBUTES = {option: name for name, one in _OPTIONS.items() for option in one.args}


def with_options(command: _Command) -> _Command:
    """Return the command with all options, in the order of the help."""
    for name, one in reversed(_OPTIONS.items()):
        command = one(name)(command)
    return command
