"""Print docs/measured/calibration.md: how often predictions that were stored before their runs were right.

`python -m benchmarks.calibration [EVIDENCE…] > docs/measured/calibration.md` reads folders of evidence or kept files;
by default the evidence in docs/evidence. `--keep FOLDER…` first writes the last runs of `--targets` there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from benchmarks.evidence_table import Gathered, dates_said, gathered, keep, versions_said
from generators.compatibility.prediction_scores import (
    SUPPORTED,
    PredictionTally,
    Scored,
    balanced_range,
    by_family,
    score,
    tally,
)
from generators.compatibility.rule_facts import Facts, facts_here
from generators.compatibility.rules import RuleSet, load_rules, predict
from generators.compatibility.verdict import Basis, Level, Verdict
from generators.models.recipe_store import load_recipe
from hardware.cell import Cell
from hardware.detection import HardwareInfo, detect
from hardware.evidence.record import RunLine
from hardware.evidence.shipped_evidence import shipped_file
from hardware.evidence.store import Evidence
from hardware.target import Target
from hwcompat.plugins.study.calibration import Calibration, calibration_text

KEPT = Path("docs/evidence")
TARGETS = ("cpu", "simulated", "openvino", "qnn:emulator", "webgpu", "webnn")

OF_CODE = (
    *("padding_error", "mask_heard", "cache", "traced", "step_traced", "trace_operators", "largest_rank"),
    *("host_functions", "onnx_export", "onnx_operators"),
)
"""Facts that probing the code of a type in torch on this kind of machine gives."""

_CUDA = """## Today's rules on a GPU

The predictions that were stored before these runs were assumptions about families. The table has those of today's
rules, so that it isn't a forecast; the held-out types weren't used to tune them. "95 % of samples" is about the
balanced accuracy, "by family" that of the baseline; always "yes" has 50 %."""

_HEAD = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")


def _without_code(cells: Sequence[Scored], rules: RuleSet, inventory: HardwareInfo) -> PredictionTally:
    """Score the predictions of today's rules for these cells without facts of the types' code."""
    return tally(
        (_is_supported(predict(one.cell, _stripped(one.cell, inventory), rules)), one.works) for one in cells
    )


def _stripped(cell: Cell, inventory: HardwareInfo) -> Facts:
    recipe = load_recipe(cell.model, cell.task)
    if recipe is None:
        return Facts()
    return replace(facts_here(recipe, cell, inventory), **dict.fromkeys(OF_CODE))


def _is_supported(verdict: Verdict) -> bool | None:
    return None if verdict.level is Level.UNKNOWN else verdict.level in SUPPORTED


def _predicted_today(run: RunLine, rules: RuleSet, inventory: HardwareInfo) -> RunLine:
    """Return the run with predictions of today's rules. Rules are tuned so; it isn't a forecast."""

    def verdict(cell: Cell) -> Verdict:
        recipe = load_recipe(cell.model, cell.task)
        if recipe is None:
            return Verdict(cell=cell.id, level=Level.UNKNOWN, basis=Basis.PREDICTED)
        return predict(cell, facts_here(recipe, cell, inventory), rules)

    plan = (replace(one, verdict=verdict(Cell.parse(one.cell_id)).to_dict()) for one in run.plan)
    return replace(run, plan=tuple(plan))


def _figures(one: PredictionTally) -> str:
    shares = (one.agreement, one.balanced_accuracy, one.wrongly_supported, one.abstentions)
    return " | ".join("-" if share is None else f"{100 * share:.1f} %" for share in shares)


def _page(found: Gathered) -> str:
    evidence = Evidence(runs=found.runs, checks=found.checks, ends=(), broken=())
    report = Calibration(scores=score(evidence))
    rules, inventory = load_rules(), detect()
    today = score(replace(evidence, runs=tuple(_predicted_today(run, rules, inventory) for run in found.runs)))
    held_out = tally((one.said, one.works) for one in report.scores.cells if one.held_out)
    right = held_out.true_supported + held_out.true_unsupported
    head = _HEAD.format(
        answered=held_out.answered,
        right=right,
        share=right / held_out.answered,
        dates=dates_said(found.runs),
        versions=versions_said(found.runs, ("torch", "transformers", "openvino", "onnxruntime-qnn", "hwcompat")),
    )
    rows = ["| all targets | agreement | balanced | wrong of positive | abstained |", "|---|---|---|---|---|"]
    for name, held_out in (("held-out types", True), ("types that rules saw", False)):
        cells = [one for one in report.scores.cells if one.held_out is held_out]
        rows.append(f"| {name}, stored before the run | {_figures(tally((one.said, one.works) for one in cells))} |")
        anew = tally((one.said, one.works) for one in today.cells if one.held_out is held_out)
        rows.append(f"| {name}, today's rules on the same runs | {_figures(anew)} |")
        rows.append(f"| … without facts of modeling code | {_figures(_without_code(cells, rules, inventory))} |")
    table = calibration_text(report, "markdown")
    without = "## Predictions without facts of modeling code\n\n" + "\n".join(rows)
    return f"{head}\n{table}\n{without}\n\n{_CUDA}\n\n{_on_cuda(rules, inventory)}\n"


def _on_cuda(rules: RuleSet, inventory: HardwareInfo) -> str:
    """Return the table of today's rules on the kept runs of a GPU, whose stored predictions were assumptions."""
    kept = gathered([KEPT / "cuda.jsonl.gz"])
    runs = tuple(_predicted_today(run, rules, inventory) for run in kept.runs)
    cells = score(Evidence(runs=runs, checks=kept.checks, ends=(), broken=())).cells
    rows = [
        "| cuda | cells | agreement | balanced | wrong of positive | abstained | 95 % of samples | by family |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, held_out in (("held-out types", True), ("types that rules saw", False)):
        for precision in (*dict.fromkeys(one.cell.precision for one in cells), ""):
            own = [one for one in cells if one.held_out is held_out and precision in ("", one.cell.precision)]
            guess = by_family([one for one in cells if not one.held_out and precision in ("", one.cell.precision)])
            family, ends = tally((guess(one), one.works) for one in own), balanced_range(own)
            shown = f"{100 * ends[0]:.1f} to {100 * ends[1]:.1f} %" if ends else "-"
            figures = _figures(tally((one.said, one.works) for one in own))
            balanced = family.balanced_accuracy
            other = "-" if balanced is None else f"{100 * balanced:.1f} %"
            rows.append(f"| {name}, {precision or 'all'} | {len(own)} | {figures} | {shown} | {other} |")
    return "\n".join(rows)


def _first_predictions(found: Gathered) -> set[tuple[str, str]]:
    """Return (run id, cell id) of each first run whose prediction or result differs from the newest run's."""
    scores = score(Evidence(runs=found.runs, checks=found.checks, ends=(), broken=()))
    newest = {one.cell.id: (one.said, one.works) for one in scores.cells}
    return {(one.run_id, one.cell.id) for one in scores.first if (one.said, one.works) != newest[one.cell.id]}


def kept_places() -> list[Path]:
    """Return the files of kept evidence of the scored targets."""
    return [path for name in TARGETS if (path := shipped_file(Target.parse(name), KEPT)) is not None]


@click.command()
@click.argument("places", nargs=-1, type=click.Path(path_type=Path, exists=True))
@click.option("--keep", "keeps", is_flag=True, help=f"Write the lines that count to {KEPT}/TARGET.jsonl.gz.")
@click.option("--targets", default=",".join(TARGETS), show_default=True, help="Which targets are kept.")
def main(places: tuple[Path, ...], keeps: bool, targets: str) -> None:
    """Print the page."""
    found = gathered(places or kept_places())
    if keeps:
        earlier = _first_predictions(found)
        for target in map(Target.parse, targets.split(",")):
            keep(found, target, KEPT / f"{target.name}.jsonl.gz", also=earlier)
    click.echo(_page(found), nl=False)


if __name__ == "__main__":
    main()
