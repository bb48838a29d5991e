"""The command that tests operators: ops."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from hwcompat.generators.options import Options
from hwcompat.hardware.command_line import PrecisionChoice, listed, note
from hwcompat.hardware.command_names import own_command
from hwcompat.hardware.errors import BackendUnavailable, UsageError
from hwcompat.hardware.files import OUTPUT

from .option_table import FOLDER, takes

if TYPE_CHECKING:
    from hwcompat.generators.operators.operator_results import OperatorReport
    from hwcompat.generators.operators.run_operators import OperatorRun

_PRECISIONS = ("float32", "bfloat16", "float16")


@click.command("ops", short_help="Test the operators that models call on a target.")
@click.argument("target")
@click.option(
    "--mode",
    type=click.Choice(("support", "correct")),
    default="correct",
    show_default=True,
    help="support: look up which operators the target has, and run nothing. correct: run each and compare.",
)
@click.option("--operator", "operators", multiple=True, callback=listed, help="Test only these (aten.addmm).")
@click.option("--operators-of", "model", metavar="MODEL", default="", help="Test only those that a model type calls.")
@click.option("--breadth", is_flag=True, help="Test the operators of torch's own tests too (op_db).")
@click.option(
    "--onnx",
    "of_onnx",
    is_flag=True,
    help="Run ONNX's own tests of operators instead. --operator then selects by a part of a name.",
)
@click.option("--coverage", is_flag=True, help="Show which model types the results allow, and which come next.")
@click.option(
    "--precision",
    "precisions",
    multiple=True,
    type=PrecisionChoice(_PRECISIONS),
    help="Precision. Repeatable; default: float32, bfloat16 and float16.",
)
@click.option(
    "--output-dir",
    "folder",
    type=FOLDER,
    default=OUTPUT / "operators",
    show_default=True,
    help="Folder for suites and evidence of operators.",
)
@takes("timeout", "jobs", formats=("table", "json", "csv", "markdown", "html"))
def ops_command(
    asked: Options,
    target: str,
    mode: str,
    operators: Sequence[str],
    model: str,
    breadth: bool,
    of_onnx: bool,
    coverage: bool,
    precisions: Sequence[str],
    folder: Path,
) -> int:
    """Test the operators that models call on TARGET, in each precision, against float64 on the CPU.

    An operator is supported, unsupported, wrong, on the host, or it crashes. Exit with 1 if any is wrong, runs on the
    host, crashes, or stays unknown although it was run.

    \b
    Examples:
      hwcompat ops cpu
      hwcompat ops cuda --operators-of llama --coverage
      hwcompat ops openvino --mode support --format csv
    """
    from hwcompat.generators.operators.onnx_node_tests import chosen_nodes, refuse_onnx
    from hwcompat.generators.operators.operator_results import FAULTY, OperatorOutcome, coverage_of, support_report
    from hwcompat.generators.operators.run_operators import OperatorRun, chosen_operators, target_of
    from hwcompat.hardware.testing.runner import Limits, default_memory_limit
    from hwcompat.reports.operator_tables import operators_text

    place = target_of(target)
    if of_onnx:
        refuse_onnx(place, bool(precisions or model or breadth or coverage or mode == "support"))
        chosen, precisions = chosen_nodes(operators), ("float32",)
    else:
        chosen = chosen_operators(operators, model, breadth=breadth)
    wanted = tuple(precisions or _PRECISIONS)
    if mode == "support":
        report = support_report(place, chosen, wanted)
    else:
        report = _run(
            OperatorRun(
                target=place,
                operators=chosen,
                precisions=wanted,
                folder=folder,
                command=own_command(),
                limits=Limits(timeout_s=asked.timeout, memory_bytes=default_memory_limit()),
                jobs=asked.jobs,
                breadth=breadth,
            )
        )
    found = [coverage_of(report, one) for one in wanted] if coverage else []
    click.echo(operators_text(report, found, asked.format_), nl=False)
    bad = FAULTY if mode == "support" else {*FAULTY, OperatorOutcome.UNKNOWN}
    return int(any(one.outcome in bad for one in report.results))


def _run(asked: OperatorRun) -> OperatorReport:
    from hwcompat.generators.operators.run_operators import run_operators, why_unavailable
    from hwcompat.hardware.backends.simulated import SimulatedFault
    from hwcompat.hardware.basic_detection import inventory_here
    from hwcompat.reports.progress_bar import progress_on

    fault = SimulatedFault.asked()
    if why := why_unavailable(asked.target):
        raise BackendUnavailable(f"{asked.target} can't be used", why=why)
    report, lines = run_operators(asked, inventory_here(), progress_on(sys.stderr))
    if fault and (why := fault.why_no_effect(lines)):
        raise UsageError(why)
    note(f"suites and evidence: {asked.folder}")
    return report
