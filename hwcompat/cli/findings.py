"""Commands about failures and reports: report, compare, diagnose, localize, repro, fix, upstream."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import rich_click as click

from generators.options import Options
from hardware.command_line import PrecisionChoice
from hardware.command_names import own_command
from hardware.evidence.evidence_place import EvidencePlace
from hardware.files import DEFAULT_EVIDENCE, DEFAULT_SUITES
from hardware.plugins import plugins
from reports.formats import FORMATS
from reports.report_request import Request, request_of

from .options import CELLS, EXISTING_FOLDER, FILE, PATTERNS, RUNNING, WRITING, SEVERITIES, takes

_PATH = click.Path(path_type=Path)

REPORT_OPTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "evidence": functools.partial(
            click.option,
            "--evidence",
            type=EvidencePlace(),
            metavar="DIR|ADDRESS",
            help=f"Folder of evidence, or s3://bucket/prefix.  [default: {DEFAULT_EVIDENCE}]",
        ),
        "output_dir": functools.partial(
            click.option, "--output-dir", type=_PATH, metavar="DIR", help="Write files instead of printing."
        ),
        "fail_on": functools.partial(
            click.option,
            "--fail-on",
            type=click.Choice(SEVERITIES),
            default="error",
            show_default=True,
            help="Exit with 1 for findings of this severity or worse.",
        ),
        "suites": functools.partial(
            click.option,
            "--suites",
            type=_PATH,
            metavar="DIR",
            default=DEFAULT_SUITES,
            show_default=True,
            help="Folder of the suites that sarif, github and gitlab point into.",
        ),
        "baseline": functools.partial(
            click.option,
            "--baseline",
            type=FILE,
            metavar="FILE.json",
            help="Earlier report in JSON: only new and worse findings count for --fail-on.",
        ),
        "anonymise_models": functools.partial(
            click.option,
            "--anonymize-models",
            "--anonymise-models",
            is_flag=True,
            help="Replace names and folders of models that aren't public types by pseudonyms.",
        ),
        "machine": functools.partial(click.option, "--machine", metavar="NAME", help="Look at this machine's runs only."),
        "device": functools.partial(
            click.option, "--device", metavar="TARGET", help="Target for --model. Default: the best that is here."
        ),
        "precision": functools.partial(
            click.option,
            "--precision",
            type=PrecisionChoice(["float32", "bfloat16", "float16"]),
            help="Precision for the memory estimate. Default: that of its config.json, or float32.",
        ),
        "batch": functools.partial(
            click.option, "--batch", type=click.IntRange(1, 2**20), metavar="N", help="Examples per batch, for memory."
        ),
        "context": functools.partial(
            click.option, "--context", type=click.IntRange(8, 2**24), metavar="N", help="Tokens per text, for memory."
        ),
        "training": functools.partial(
            click.option, "--training", is_flag=True, help="Estimate the memory of training with AdamW."
        ),
        "memory": functools.partial(
            click.option, "--memory", multiple=True, metavar="SIZE", help="Check whether it fits, as 24GiB. Repeatable."
        ),
        "without_memory": functools.partial(
            click.option, "--without-memory", is_flag=True, help="Skip the memory estimate, which takes seconds."
        ),
        "collect_all": functools.partial(
            click.option, "--collect-all", is_flag=True, help="Report on every part of the product and all evidence."
        ),
        "matrix": functools.partial(click.option, "--matrix", is_flag=True, help="Add the compatibility matrix."),
        "test_hardware": functools.partial(
            click.option, "--test-hardware", is_flag=True, help="Run a small computation on every target that is here."
        ),
        "models": functools.partial(
            click.option,
            "--model",
            "--check-model",
            multiple=True,
            metavar="NAME",
            help="Report whether this model works. Repeatable.",
        ),
    }
)
"""How each value of a `Request` is given on the command line."""


def requests(*names: str, formats: tuple[str, ...]) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Give a function these options and `--format`; it gets them as one `Request`, with its arguments by name."""

    def decorated(function: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(function)
        def call(**values: Any) -> int:
            own = {name: values.pop(name) for name in [*values] if name not in names and name != "format"}
            return function(request_of(values), **own)

        choice = click.Choice(formats)
        called: Callable[..., int] = click.option("--format", type=choice, default=formats[0], show_default=True)(call)
        for name in reversed(names):
            called = REPORT_OPTIONS[name](name)(called)
        return called

    return decorated


@click.command("report", short_help="Report findings with causes and remedies, from all evidence.")
@requests(
    *("collect_all", "matrix", "test_hardware", "models", "device", "precision", "batch", "context", "training"),
    *("memory", "without_memory", "evidence", "output_dir", "suites", "fail_on", "baseline", "anonymise_models"),
    formats=("markdown", *(name for name in FORMATS.names() if name != "markdown")),
)
def report_command(request: Request) -> int:
    """Report findings with causes and remedies. Without options, report on everything (--collect-all).

    \b
    Examples:
      hwcompat report
      hwcompat report --format html --output-dir reports
      hwcompat report --model bert --device cpu
    """
    from dataclasses import replace

    from reports.collect_command import collect

    return collect(request if request.has_action else replace(request, collect_all=True))


@click.command("compare", short_help="Show what changed between two runs, machines or folders.")
@click.argument("before", required=False, metavar="[A]")
@click.argument("after", required=False, metavar="[B]")
@requests("machine", "evidence", "output_dir", "fail_on", formats=("text", "markdown", "json"))
def compare_command(request: Request, before: str | None, after: str | None) -> int:
    """Show what changed from A to B (default: latest), and the likely cause.

    Each is the id of a run or its beginning, a machine, a folder of evidence, `latest`, or `previous`. With
    `last-green` as A: since when is broken what is broken in B. Without A, list the last runs.

    \b
    Examples:
      hwcompat compare previous latest
      hwcompat compare last-green
    """
    from reports.compare_command import compare

    return compare(request, [one for one in (before, after) if one])


@click.command("diagnose", short_help="Find the cause in a traceback or log.")
@click.argument("source", metavar="FILE|-")
@requests("output_dir", "fail_on", formats=("markdown", "json"))
def diagnose_command(request: Request, source: str) -> int:
    """Find the cause in a traceback or log and say what to do. Works offline; - reads standard input."""
    from reports.diagnose_command import diagnose_pasted

    return diagnose_pasted(request, source)


@click.command("localize", short_help="Find the first module or node whose values are wrong.")
@click.argument("cell")
@requests("evidence", "output_dir", formats=("markdown", "json"))
def localize_command(request: Request, cell: str) -> int:
    """Find the first module or graph node of CELL whose values differ from the reference."""
    code: int = plugins().job("localize")(request, cell)
    return code


@click.command("repro", short_help="Write a script that shows a failure without hwcompat.")
@click.argument("cell")
@requests("evidence", "output_dir", formats=("markdown",))
def repro_command(request: Request, cell: str) -> int:
    """Write a script that shows the failure of CELL without hwcompat, and check that it fails the same way."""
    code: int = plugins().job("repro")(request, cell)
    return code


@click.command("fix", short_help="Try the changes that may fix a failing cell.")
@click.argument("cells", nargs=-1, required=True, metavar="CELL...")
@requests("evidence", "output_dir", formats=("markdown", "json"))
def fix_command(request: Request, cells: tuple[str, ...]) -> int:
    """Try the changes that may fix failing cells, each in a child process; CELL may be a pattern.

    \b
    Exit codes: 0 every cell was fixed, 1 not every one, 5 no change applies.
    """
    code: int = plugins().job("remedies")(request, cells)
    return code


@click.command("upstream", short_help="Run transformers' own tests of models on a target.")
@click.argument("checkout", type=EXISTING_FOLDER)
@takes(*CELLS, *PATTERNS, *WRITING, *RUNNING, formats=())
def upstream_command(asked: Options, checkout: Path) -> int:
    """Run transformers' own tests of models, from a checkout of the installed version.

    Their results are shown beside the verdicts and don't change them.
    """
    code: int = plugins().job("upstream")(asked, checkout, own_command("upstream"))
    return code
