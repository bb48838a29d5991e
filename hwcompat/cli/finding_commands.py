"""Commands about failures and reports: report, compare, diagnose, localize, compare-devices,
repro, fix, upstream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import rich_click as click

from hwcompat.generators.options import Options
from hwcompat.hardware.command_line import PrecisionChoice
from hwcompat.hardware.command_names import own_command
from hwcompat.hardware.plugins import plugins
from hwcompat.reports.formats import FORMATS
from hwcompat.reports.report_request import Request, check_report

from .option_table import EXISTING_FOLDER, FOLDER, takes
from .report_options import apply_evidence_options, requests


@click.command("report", short_help="Report findings with causes and remedies, from all evidence.")
@requests(
    *("collect_all", "matrix", "test_hardware", "models", "device", "precision", "batch", "context", "training"),
    *("memory", "without_memory", "evidence", "output_dir", "suites", "fail_on", "baseline"),
    *("rules", "anonymise_models"),
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
    from hwcompat.reports.collect_command import collect

    request = request if request.has_action else replace(request, collect_all=True)
    check_report(request)
    return collect(request)


@click.command("compare", short_help="Show what changed between two runs, machines or folders.")
@click.argument("before", required=False, metavar="[A]")
@click.argument("after", required=False, metavar="[B]")
@requests("machine", "evidence", "output_dir", "fail_on", formats=("text", "markdown", "json", "html"))
def compare_command(request: Request, before: str | None, after: str | None) -> int:
    """Show what changed from A to B (default: latest), and the likely cause.

    Each is the id of a run or its beginning, a machine, a folder of evidence, `latest`, or `previous`. With
    `last-green` as A, show since when each failing cell of B has been failing. Without A, list the last runs.

    \b
    Examples:
      hwcompat compare previous latest
      hwcompat compare last-green
    """
    from hwcompat.reports.compare_command import compare

    return compare(request, [one for one in (before, after) if one])


@click.command("diagnose", short_help="Find the cause in a traceback or log.")
@click.argument("source", metavar="FILE|-")
@requests("output_dir", "fail_on", formats=("text", "markdown", "json"))
def diagnose_command(request: Request, source: str) -> int:
    """Find the cause in a traceback or log and say what to do. Works offline; - reads standard input."""
    from hwcompat.reports.diagnose_command import diagnose_pasted

    return diagnose_pasted(request, source)


@click.command("localize", short_help="Find the first module or node whose values are wrong.")
@click.argument("cell")
@requests("evidence", "output_dir", formats=("text", "markdown", "json"))
def localize_command(request: Request, cell: str) -> int:
    """Find the first module or graph node of CELL whose values differ from the reference."""
    code: int = plugins().job("localize")(request, cell)
    return code


@click.command("compare-devices", short_help="Compare two devices with each other, layer by layer.")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option("--model", required=True, metavar="TYPE", help="Model type.")
@click.option("--task", default="", help="Task. Default: the primary task.")
@click.option("--precision", type=PrecisionChoice(("float32", "float16", "bfloat16")), default="float32")
@click.option(
    "--steps",
    type=click.IntRange(0, 256),
    default=16,
    show_default=True,
    help="Number of tokens to decode, if the model decodes; 0: none.",
)
@click.option("--keep", type=FOLDER, help="Write the run of each target here, to compare it on another machine.")
@requests("output_dir", formats=("text", "markdown", "json"))
def compare_devices_command(
    request: Request,
    first: str,
    second: str,
    model: str,
    task: str,
    precision: str,
    steps: int,
    keep: Path | None,
) -> int:
    """Run a model type on A and B and compare them with each other and with float64, layer by layer and token by
    token. A and B are targets, or files (.npz) that --keep wrote on another machine.

    Exit with 0 if the outputs agree within the tolerance and the tokens are the same, else with 1.

    \b
    Examples:
      hwcompat compare-devices cpu openvino --model bert
      hwcompat compare-devices cuda:0 cuda:1 --model llama --precision bfloat16
      hwcompat compare-devices cpu kept/llama-float32-cuda.npz --model llama
    """
    code: int = plugins().job("compare_devices")(request, (first, second), model, task, precision, steps, keep)
    return code


@click.command("repro", short_help="Write a script that shows a failure without hwcompat.")
@click.argument("cell")
@requests(
    *("evidence", "output_dir"),
    formats=("text", "markdown"),
    folder="Folder for the script and the issue text.  [default: hwcompat-out/repro]",
)
def repro_command(request: Request, cell: str) -> int:
    """Write a script that shows the failure of CELL without hwcompat, and check that it fails the same way."""
    code: int = plugins().job("repro")(request, cell)
    return code


@click.command("fix", short_help="Try the changes that may fix a failing cell.")
@click.argument("cells", nargs=-1, required=True, metavar="CELL...")
@requests("evidence", "output_dir", formats=("text", "markdown", "json"))
def fix_command(request: Request, cells: tuple[str, ...]) -> int:
    """Try the changes that may fix failing cells, each in a child process; CELL may be a pattern.

    \b
    Exit codes: 0 every cell was fixed, 1 some weren't, 5 no change applies.
    """
    code: int = plugins().job("remedies")(request, cells)
    return code


@click.command("upstream", short_help="Run transformers' own tests of models on a target.")
@click.argument("checkout", type=EXISTING_FOLDER)
@click.argument("pytest_arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- PYTEST...]")
@takes(
    *("models", "devices", "timeout", "machine", "no_redact", "evidence"),
    formats=(),
    writes=True,
    helps={"models": "Model type. Repeatable.", "devices": "Target, or 'auto' (default). Repeatable."},
)
def upstream_command(asked: Options, checkout: Path, pytest_arguments: Sequence[str] = ()) -> int:
    """Run transformers' own tests of models, from a checkout of the installed version.

    Their results are shown beside the verdicts and don't change them.
    """
    asked = replace(asked, pytest_arguments=tuple(pytest_arguments))
    apply_evidence_options(asked)
    code: int = plugins().job("upstream")(asked, checkout, own_command())
    return code
