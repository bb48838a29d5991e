"""Commands that show what is known: matrix, coverage, explain, calibration, backlog, classify."""

from __future__ import annotations

import rich_click as click

from hwcompat.generators.options import Options
from hwcompat.hardware.command_line import terminal_width
from hwcompat.hardware.command_names import own_command
from hwcompat.hardware.errors import UsageError
from hwcompat.hardware.plugins import plugins

from .option_table import CELLS, PATTERNS, refuse_selection, takes


@click.command("matrix", short_help="Show which models work on which targets.")
@takes(
    *("models", "targets", "by", "precision", "baseline", "fail_on", "config", "rules", "evidence"),
    formats=("table", "text", "json", "markdown", "csv", "html"),
    helps={"baseline": "Earlier matrix in JSON: show what changed since."},
)
def matrix_command(asked: Options) -> int:
    """Show which models work on which targets, with the basis of each level and counts.

    \b
    Examples:
      hwcompat matrix
      hwcompat matrix --model bert --targets cpu,openvino
      hwcompat matrix --format json > before.json
      hwcompat matrix --baseline before.json --fail-on worse
    """
    from hwcompat.reports.matrix_command import report_matrix

    if asked.fail_on and not asked.baseline:
        raise UsageError("--fail-on needs --baseline", fix="Name the matrix to compare with: --baseline FILE.json")

    return report_matrix(asked)


@click.command("coverage", short_help="Count how many of all model types work on a target.")
@takes(
    *("targets", "precision", "previous", "fail_under", "machine", "evidence", "report_dir"),
    formats=("table", "text", "json", "markdown", "html"),
)
def coverage_command(asked: Options) -> int:
    """Count how many of all model types work on a target, why the others don't, and what is new.

    \b
    Examples:
      hwcompat coverage --targets cpu,openvino
      hwcompat coverage --previous coverage.json --fail-under 90
    """
    from hwcompat.reports.coverage_command import report_coverage

    return report_coverage(asked, own_command())


@click.command("explain", short_help="Show the rules and facts behind a prediction.")
@click.argument("cell", required=False, metavar="[CELL]")
@takes(*CELLS, *PATTERNS, "template_dir", "evidence", formats=("table", "text", "json"))
def explain_command(asked: Options, cell: str | None) -> int:
    """Show the rules and facts behind the prediction of CELL, what was measured, and what would change it.

    Without CELL, explain each cell of a selection of models.

    \b
    Examples:
      hwcompat explain bert/fill-mask/openvino/float32
      hwcompat explain --model ./my-checkpoint --device openvino
    """
    if cell:
        from hwcompat.reports.explain_command import report_explanation

        refuse_selection("a cell names all of it", "Leave it out, or leave the cell out.")
        return report_explanation(asked, cell)
    from hwcompat.reports.suites_text import explained_text

    from .suite_commands import select_suites

    selection = select_suites(asked, with_missing=True)
    click.echo(explained_text(selection.planned, asked.format_, width=terminal_width()))
    return selection.finish(0)


@click.command("calibration", short_help="Show how often predictions were right.")
@click.option("--external", is_flag=True, help="Score predictions against what others measured and published.")
@takes("evidence", "config", formats=("table", "text", "json", "markdown"))
def calibration_command(asked: Options, external: bool) -> int:
    """Show how often the predictions that were stored before runs were right, by target and by rule.

    With --external, score predictions of rules against imported results instead, beside two baselines.
    """
    code: int = plugins().job("external" if external else "calibration")(asked)
    return code


@click.command("backlog", short_help="List the operators that a target lacks, most wanted first.")
@click.argument("target")
@takes("precision", "dims", "evidence", formats=("table", "text", "json", "markdown"))
def backlog_command(asked: Options, target: str) -> int:
    """List the operators that model types need and TARGET lacks; those that unlock most types come first."""
    code: int = plugins().job("backlog")(asked, target)
    return code
