"""Every option of the command line, by the name of its value in `Options` or `Request`.

A command names the options that it takes (`takes`), so that options that don't go together don't meet. The earlier
scripts take the same options under the same names (`earlier_scripts.py`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import rich_click as click
from click.core import ParameterSource

from hwcompat.generators.models.priority import PRIORITIES
from hwcompat.generators.options import Options
from hwcompat.hardware.cell import PRECISIONS
from hwcompat.hardware.command_line import PrecisionChoice, listed, note
from hwcompat.hardware.errors import HwCompatError, UsageError
from hwcompat.hardware.evidence.address import Address
from hwcompat.hardware.evidence.evidence_location import EvidenceLocation, fetch_remote, read_only_location
from hwcompat.hardware.files import DEFAULT_EVIDENCE, DEFAULT_REPORTS, DEFAULT_SUITES

FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)
EXISTING_FOLDER = click.Path(path_type=Path, file_okay=False, exists=True)

SEVERITIES = ("critical", "error", "warning", "info")
"""The grades of findings, from worst to mildest."""


def _devices(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of targets in lists. Raises `UsageError` for an unknown one before anything is prepared."""
    from hwcompat.hardware.backends.factory import known_names

    return known_names(listed(context, option, texts))


def number(_context: click.Context, _option: click.Parameter, value: float | None) -> float | None:
    """Return the number of an option. Raises `click.BadParameter` for NaN, which passes every range check."""
    if value is not None and math.isnan(value):
        raise click.BadParameter("not a number")
    return value


def option(*names: str, **settings: Any) -> Callable[..., Any]:
    """Return a function that gives a command this option under the name of its value."""
    return functools.partial(click.option, *names, **settings)


OPTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        # Which cells
        "models": option(
            "--model",
            multiple=True,
            help="Model type, checkpoint folder, graph file, package.module:factory or Hub id; '-' reads a list.",
        ),
        "priority": option(
            "--priority",
            type=click.Choice(PRIORITIES),
            help="Select model types by priority (medium: optimum-intel can export them).",
        ),
        "architectures": option(
            "--architectures", multiple=True, callback=listed, help="Keep only these architectures or traits."
        ),
        "config": option("--config", type=FILE, help="Read a project file (hwcompat.toml). Options override it."),
        "rules": option(
            "--rules",
            multiple=True,
            type=click.Path(path_type=Path),
            metavar="FILE|DIR",
            help="Add your own rules to the shipped ones. Repeatable.",
        ),
        "devices": option(
            "--device",
            multiple=True,
            callback=_devices,
            envvar="HWCOMPAT_DEVICE",
            help="Target, 'auto' (default), 'all' (every target this machine may have) or 'known' (every target).",
        ),
        "tasks": option(
            "--tasks",
            "--task",
            multiple=True,
            callback=listed,
            help="Tasks, separated by commas, or 'all'. Default: the primary task.",
        ),
        "dims": option(
            "--dims",
            type=click.Choice(("tiny", "real", "pieces")),
            default="tiny",
            show_default=True,
            help="Size of the model. real: one or two layers at the real widths, random weights. pieces: the same, "
            "one layer at a time, for models that don't fit into memory.",
        ),
        "length": option(
            "--length",
            type=click.IntRange(min=1),
            help="Tokens of the text. With --dims pieces; default: those of the tiny model.",
        ),
        "allow_tiny": option(
            "--allow-tiny", is_flag=True, help="Run a tiny model of the type if a checkpoint's weights are missing."
        ),
        "allow_code": option(
            "--allow-code",
            is_flag=True,
            help="Run the code of this repository that its project file names (package.module:factory).",
        ),
        "inputs": option(
            "--inputs",
            type=click.Path(exists=True, path_type=Path),
            metavar="FILE.npz|DIR",
            help="Test a graph file with these arrays, by the names of its inputs, instead of drawn ones.",
        ),
        "precisions": option(
            "--precision",
            multiple=True,
            envvar="HWCOMPAT_PRECISION",
            type=PrecisionChoice(PRECISIONS),
            help="Precision. Repeatable; default: float32.",
        ),
        "precision": option(
            "--precision",
            envvar="HWCOMPAT_PRECISION",
            type=PrecisionChoice(PRECISIONS),
            default="float32",
            show_default=True,
        ),
        "select": option("--select", multiple=True, help="Keep only matching cells, such as 'bert/*/cpu/*'."),
        "skip": option("--skip", multiple=True, help="Leave out matching cells."),
        "shard": option("--shard", metavar="I/N", help="Keep share I of N, to split cells between machines."),
        "list_cells": option("--list", is_flag=True, help="Print the cells and write nothing."),
        # How suites run
        "timeout": option(
            "--timeout",
            type=click.FloatRange(min=0.1),
            callback=number,
            envvar="HWCOMPAT_TIMEOUT",
            help="Seconds per check. Default: the target's own (cpu 300).",
        ),
        "jobs": option(
            "--jobs", type=click.IntRange(min=1), help="Suites at a time. Default: chosen for the machine."
        ),
        "resume": option(
            "--resume", is_flag=True, help="Continue the newest run of the evidence folder if it was cut off."
        ),
        "durable": option(
            "--durable",
            is_flag=True,
            help="Wait after each result until the disk has it, so that a loss of power loses none.",
        ),
        "measure": option(
            "--measure",
            is_flag=True,
            help="Measure the speed of each cell that passes: latency, throughput, decoding, loading and memory.",
        ),
        "dry_run": option(
            "--dry-run", is_flag=True, help="Show what has expired and how long it takes; run nothing."
        ),
        "distributed": option(
            "--distributed",
            type=click.Choice(("ray",)),
            help="Run on the nodes of a cluster, each cell where its target is.",
        ),
        "address": option(
            "--address",
            metavar="HOST:PORT",
            envvar="RAY_ADDRESS",
            help="Address of the cluster, or 'auto'. Default: one node on this machine.",
        ),
        "allow_fallback": option(
            "--allow-fallback", is_flag=True, help="Exit with 0 even if a named device isn't here."
        ),
        "update_expected": option(
            "--update-expected", is_flag=True, help="Write the measured levels into the project file's lock."
        ),
        "expected": option(
            "--expected",
            type=FILE,
            metavar="FILE.csv",
            help="Fail if a cell's result isn't that of this CSV, or passes now (made by report --format expected).",
        ),
        "no_redact": option(
            "--no-redact",
            is_flag=True,
            help="Keep user, host and folder names in the evidence. Secrets are always removed.",
        ),
        "machine": option("--machine", default="", metavar="NAME", help="Name of this machine in the evidence."),
        "host": option(
            "--host",
            metavar="NAME",
            help="Use that machine, over ssh: NAME, USER@NAME, NAME:FOLDER or USER@NAME:FOLDER.",
        ),
        "host_python": option(
            "--host-python",
            default="python3",
            show_default=True,
            metavar="PATH",
            help="Python on the host that has torch, transformers and pytest.",
        ),
        "host_checkpoints": option(
            "--host-checkpoint", multiple=True, metavar="DIR", help="Checkpoint folder on the host. Repeatable."
        ),
        "host_patience": option(
            "--host-patience",
            type=click.FloatRange(min=0),
            callback=number,
            default=600,
            show_default=True,
            metavar="S",
            help="Seconds to retry a lost connection. The run continues on the host meanwhile.",
        ),
        # Folders
        "force": option("--force", is_flag=True, help="Overwrite suites that were edited by hand."),
        "output_dir": option(
            "--output-dir", type=FOLDER, default=DEFAULT_SUITES, show_default=True, help="Folder for suites."
        ),
        "evidence": option(
            "--evidence",
            type=EvidenceLocation(file_okay=False),
            default=DEFAULT_EVIDENCE,
            show_default=True,
            metavar="DIR|ADDRESS",
            help="Folder of evidence, or s3://bucket/prefix.",
        ),
        "report_dir": option(
            "--report-dir", type=FOLDER, default=DEFAULT_REPORTS, show_default=True, help="Folder for reports."
        ),
        "template_dir": option(
            "--template-dir", type=EXISTING_FOLDER, help="Folder of templates that override the shipped ones."
        ),
        # What is shown
        "by": option(
            "--by",
            type=click.Choice(("family", "model", "architecture", "accelerator", "machine")),
            help="Show one view of the matrix. Default: by family, then by model.",
        ),
        "targets": option(
            "--targets", multiple=True, callback=listed, help="Show only these targets (comma-separated)."
        ),
        "baseline": option(
            "--baseline",
            type=FILE,
            metavar="FILE.json",
            help="Earlier report in JSON: only new and worse findings count for --fail-on.",
        ),
        "fail_on": option(
            "--fail-on",
            multiple=True,
            callback=listed,
            metavar="WORDS",
            help="Exit with 1 if cells became worse, expired, unsupported, unknown or changed since the baseline.",
        ),
        "fail_severity": option(
            "--fail-on",
            type=click.Choice(SEVERITIES),
            help="Exit with 1 for findings of this severity or worse, for missing devices and for missing results.",
        ),
        "previous": option(
            "--previous",
            type=FILE,
            metavar="FILE.json",
            help="Coverage report to compare with. Default: the last one.",
        ),
        "fail_under": option(
            "--fail-under",
            type=click.FloatRange(0, 100),
            callback=number,
            metavar="PERCENT",
            help="Exit with 1 if fewer of the types that can be built pass.",
        ),
        # Placement
        "pin": option("--pin", multiple=True, metavar="MODEL=DEVICE", help="Put this model on this device only."),
        "forbid": option("--forbid", multiple=True, metavar="MODEL=DEVICE", help="Keep this model off this device."),
        "inventory": option(
            "--inventory",
            multiple=True,
            type=FILE,
            metavar="FILE.json",
            help="Use the devices of this machine (`hwcompat devices list --format json`). Repeatable.",
        ),
        "in_turn": option("--in-turn", is_flag=True, help="Run models one after the other, not all at once."),
        "costs": option(
            "--costs",
            type=FILE,
            metavar="FILE.toml",
            help="Prefer the lowest cost to the shortest time; [per_hour] has the cost of each device.",
        ),
        "serve": option("--serve", is_flag=True, help="Serve the page on 127.0.0.1 until Ctrl-C."),
    }
)
"""How each value is given on the command line."""

CELLS = (
    *("models", "priority", "architectures", "config", "rules"),
    *("devices", "tasks", "dims", "length", "allow_tiny", "allow_code", "inputs", "precisions"),
)
"""Which models, targets and precisions."""

PATTERNS = ("select", "skip", "shard")


def refuse_selection(why: str, fix: str) -> None:
    """Raise `UsageError` if the command line has an option that selects models, targets or cells."""
    context = click.get_current_context()
    assert context is not None
    given = context.get_parameter_source
    for one in context.command.params:
        if one.name in {*CELLS, *PATTERNS} - {"config", "rules"} and given(one.name) is ParameterSource.COMMANDLINE:
            raise UsageError(f"{one.opts[0]} has no effect here", why=why, fix=fix)


WRITING = ("force", "output_dir", "template_dir")
REFRESHING = ("timeout", "jobs", "resume", "allow_fallback", "no_redact", "machine", "evidence", "report_dir")
RUNNING = (
    *REFRESHING,
    *("durable", "measure", "baseline", "fail_severity", "update_expected", "expected", "distributed", "address"),
    *("host", "host_python", "host_checkpoints", "host_patience"),
)


PANELS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Models and devices": (*CELLS, *PATTERNS, "precision", "list_cells"),
        "Run": (
            *("timeout", "jobs", "resume", "durable", "measure", "dry_run", "allow_fallback", "update_expected"),
            *("expected", "baseline", "fail_severity"),
        ),
        "Other machines": ("distributed", "address", "host", "host_python", "host_checkpoints", "host_patience"),
        "Files": ("force", "output_dir", "template_dir", "evidence", "report_dir", "no_redact", "machine"),
    }
)
"""The groups of options in the help of a command."""


@contextmanager
def rules_of(paths: Sequence[Path], config: Path | None = None) -> Iterator[None]:
    """Load these rules and those of a project file beside the shipped ones in this block, after a note."""
    if not (paths or config):
        yield
        return
    from hwcompat.generators.compatibility.rules import load_rules, own_files, own_rules
    from hwcompat.generators.project.project_reader import read_project

    own = [*paths]
    with suppress(HwCompatError):  # the command itself reports what is wrong with the file
        own += read_project(config).rules if config else ()
    with own_rules(own):
        if files := own_files(rule.id for rule in load_rules().rules):
            note(f"using your rules: {', '.join(files)}")
        yield


def takes(
    *names: str,
    formats: tuple[str, ...] = ("table", "json"),
    writes: bool = False,
    helps: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Give a function these options and `--format`; it gets them as one `Options`, with its arguments by name.

    Evidence in object storage is copied first; a command that `writes` evidence refuses such a place. `helps` are the
    help texts of options that mean something else in this command.
    """

    def decorated(function: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(function)
        def call(**values: Any) -> int:
            own = {name: values.pop(name) for name in [*values] if name not in names and name != "format_"}
            if "fail_severity" in values:
                values["fail_on"] = tuple(filter(None, [values.pop("fail_severity")]))
            if "precision" in values:
                values["precisions"] = (values.pop("precision"),)
            if isinstance(place := values.get("evidence"), Address):
                if writes:
                    raise read_only_location(place)
                values["evidence"], values["remote"] = fetch_remote(place), place
            with rules_of(values.get("rules", ()), values.get("config")):
                return function(Options(**values), **own)

        called: Callable[..., int] = call
        if formats:
            choice = click.Choice(formats)
            called = click.option("--format", "format_", type=choice, default=formats[0], show_default=True)(called)
        texts = {**({"evidence": "Folder of evidence."} if writes else {}), **helps}
        for name in reversed(names):
            called = OPTIONS[name](name, **({"help": texts[name]} if name in texts else {}))(called)
        for title, group in reversed([*PANELS.items()]):
            if shown := [name for name in names if name in group]:
                called = click.option_panel(title, options=shown)(called)
        return called

    return decorated
