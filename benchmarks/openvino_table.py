"""Print docs/measured/openvino.md: which model types pass on target openvino, and why others don't.

`python -m benchmarks.openvino_table [--keep] [EVIDENCE…] > docs/measured/openvino.md` reads folders that
`--run --device openvino` wrote, by default docs/evidence. `--keep` writes the lines that count there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from benchmarks.evidence_table import dates_said, gathered, keep, one_line, versions_said
from generators.compatibility.expiry import Expiry
from generators.compatibility.judge import judge_cell
from generators.compatibility.verdict import Level
from hardware.cell import Cell
from hardware.evidence.record import CheckLine, Outcome, RunLine, Stage
from hardware.evidence.shipped_evidence import last_checks
from hardware.target import Target
from hardware.testing.tolerances import tolerance_for

KEPT = Path("docs/evidence/openvino.jsonl.gz")
ON_CPU = Path("docs/measured/transformers-5.5.4.md")
TEN = ("bert", "gpt2", "llama", "t5", "vit", "clip", "whisper", "resnet", "mixtral", "mamba")
"""One type for each kind of model; their losses compare precisions."""

_TARGET = Target(name="openvino")
_VERSIONS = ("openvino", "optimum-intel", "nncf", "torch", "transformers", "hwcompat")
_PASSES = (Level.HIGH, Level.MEDIUM)

_CLASSES = (
    (r"doesn't compile the model", "the plugin doesn't compile it"),
    (r"(?:doesn't|failed to) run (?:on|for)|Exception from src/|Can't set the input", "the plugin doesn't run it"),
    (r"no conversion rule|conversion rule fails", "no conversion rule"),
    (r"Couldn't get TorchScript|by tracing", "torch can't trace it"),
    (r"(?:decodes with|gives) (?:other|different) numbers", "the conversion changes numbers"),
    (r"in a way of its own|a custom decoding loop", "custom decoding"),
    (
        r"cannot generate|doesn't (?:support generate|decode)|decoding with the \S+ export failed",
        "no graphs that decode",
    ),
    (r"^off by", "differs from float64"),
)
"""Patterns of messages in order, and the class of failure that each gives."""

_HEAD = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One cell: its level, export route and largest error, and the reason if it doesn't pass."""

    cell: Cell
    checks: Mapping[str, CheckLine]
    level: Level

    @property
    def passes(self) -> bool:
        """Whether its level is high, or medium under a stated condition."""
        return self.level in _PASSES

    @property
    def failed(self) -> list[CheckLine]:
        """The checks that didn't pass."""
        return [line for line in self.checks.values() if line.outcome is not Outcome.PASSED]

    @property
    def conditions(self) -> Mapping[str, str]:
        """The conditions of the export, from the first check that has any."""
        return next((line.conditions for line in reversed(self.checks.values()) if "export" in line.conditions), {})

    @property
    def error(self) -> float | None:
        """The largest error of all comparing checks, relative to the output's scale."""
        errors = [line.max_rel_error for line in self.checks.values() if line.max_rel_error is not None]
        return max(errors, default=None)

    @property
    def way(self) -> str:
        """The export route."""
        conditions = self.conditions
        if conditions.get("export") == "optimum-intel":
            limit = conditions.get("exporter_limit")
            return f"optimum-intel beyond its limit ({limit})" if limit else "optimum-intel"
        shapes = ", static" if "shapes" in conditions else ", dynamic"
        constants = ", image sizes as constants" if "held" in conditions else ""
        return "traced" + shapes + constants


def rows_of(runs: Sequence[RunLine], lines: Sequence[CheckLine]) -> list[Row]:
    """Return each cell of the target, judged by its last run with the versions of that run."""
    versions = {run.run_id: run.versions for run in runs}
    found = []
    for name, checks in last_checks(lines, _TARGET).items():
        cell = Cell.parse(name)
        now = versions.get(next(iter(checks.values())).run_id, {})
        expiry = Expiry(cell=cell, now=now, then=versions)
        verdict = judge_cell(cell, tuple(checks), tuple(checks.values()), expiry=expiry)
        found.append(Row(cell=cell, checks=checks, level=verdict.level))
    return found


def passing_on_cpu(coverage: str) -> set[str]:
    """Return the types that a Markdown coverage report lists as passed, with or without a condition."""
    passed = coverage.partition("### Passed\n")[2].partition("\n## ")[0]
    under = coverage.partition("### Passed under condition")[2].partition("\n###")[0]
    listed = [line.partition(": ")[2] for line in passed.splitlines() if line.startswith("- ")]
    listed += [line.split("|")[1] for line in under.splitlines() if line.startswith("| ")][1:]
    return {name.strip() for names in listed for name in names.split(",")}


def class_of(row: Row) -> tuple[str, str, Stage | None]:
    """Return the class of a cell's failure, its message, and its stage."""
    first = row.failed[0]
    text = first.error_message
    reasons = re.split(r"; (?=optimum-intel|convert_model)", text.removeprefix("Unsupported: "))
    cause = re.sub(r"^(NotApplicable: )?this model cannot generate on \S+: ", "", reasons[-1])
    named = next((name for sign, name in _CLASSES if re.search(sign, reasons[-1])), first.error_type)
    if first.outcome.is_breakdown:
        named = str(first.outcome)
    return named, f"{first.check_name}: {one_line(cause, 220)}", first.stage


def _all_types(rows: Sequence[Row], on_cpu: set[str]) -> Iterator[str]:
    found = {row.cell.model: row for row in rows if row.cell.precision == "float32" and not row.cell.target.variant}
    asked = [row for name, row in found.items() if name in on_cpu]
    right = [row for row in asked if row.passes]
    yield "\n## All types, float32\n"
    share = 100 * len(right) / len(on_cpu)
    yield (
        f"**{len(right)} of the {len(on_cpu)} types that pass on cpu pass here ({share:.0f} %)**: "
        f"{sum(row.level is Level.HIGH for row in right)} high, "
        f"{sum(row.level is Level.MEDIUM for row in right)} medium. "
        f"{len(asked) - len(right)} don't; {len(on_cpu) - len(asked)} have no evidence yet. The types are those of "
        f"[the coverage of cpu]({ON_CPU.name}), doing their primary task.\n"
    )
    ways = Counter(row.way for row in right)
    yield "| way of export | passing | types |\n|---|---:|---|"
    for way, count in ways.most_common():
        yield f"| {way} | {count} | {', '.join(sorted(row.cell.model for row in right if row.way == way))} |"
    yield from _failing([row for row in asked if not row.passes])
    if missing := sorted(on_cpu - set(found)):
        yield f"\nWithout evidence: {', '.join(missing)}."
    if others := sorted(set(found) - on_cpu):
        passed = sum(found[name].passes for name in others)
        yield (
            f"\nBesides, {passed} of {len(others)} types pass that don't on cpu, or are other libraries': "
            + ", ".join(f"{name} ({found[name].level})" for name in others)
            + "."
        )


def _failing(rows: Sequence[Row]) -> Iterator[str]:
    if not rows:
        return
    sorted_rows = sorted(((*class_of(row), row) for row in rows), key=lambda one: (one[0], one[3].cell.model))
    counts = Counter(one[0] for one in sorted_rows)
    yield "\n### Failing\n\n" + ", ".join(f"{name}: {count}" for name, count in counts.most_common()) + ".\n"
    yield "| type | task | level | class | stage | cause |\n|---|---|---|---|---|---|"
    for name, cause, stage, row in sorted_rows:
        yield f"| {row.cell.model} | {row.cell.task} | {row.level} | {name} | {stage or '-'} | {cause} |"


def _precisions(rows: Sequence[Row]) -> Iterator[str]:
    found = {
        (row.cell.model, row.cell.precision): row
        for row in rows
        if row.cell.model in TEN and not row.cell.target.variant
    }
    asked = [name for name in ("float32", "float16", "int8") if any(p == name for _, p in found)]
    yield "\n## What a precision costs\n"
    yield (
        "The largest error of all checks that compare against float64 with the weights as they were, relative to the "
        "output's scale, with the precision in which the plugin reports that it computed products. With int8, NNCF's "
        "weight compression (asymmetric, one scale per row) keeps the other factor of each product in float32. A "
        "plugin without arithmetic of a precision silently computes in another one: then the level is low, with "
        "that reason.\n"
    )
    for name in asked:
        stated = tolerance_for(Cell.parse(f"bert/fill-mask/openvino/{name}").target, name)
        yield f"- {name}: tolerance {stated.limit:g} ({stated.reason})"
    yield "\n| type | " + " | ".join(asked) + " |\n|---" * 1 + "|---" * len(asked) + "|"
    for model in TEN:
        yield f"| {model} | " + " | ".join(_loss(found.get((model, name))) for name in asked) + " |"


def _loss(row: Row | None) -> str:
    if row is None:
        return "-"
    dtype = next((line.actual_dtype for line in row.checks.values() if line.actual_dtype), "nothing")
    error = "-" if row.error is None else f"{row.error:.1e}"
    why = "" if row.passes else f"; {row.failed[0].check_name}: {one_line(row.failed[0].error_message, 100)}"
    return f"{error}, in {dtype}, {row.level}{why}"


def _variants(rows: Sequence[Row]) -> Iterator[str]:
    found = [row for row in rows if row.cell.target.variant]
    if not found:
        return
    yield "\n## Devices\n"
    yield "The requested device, and the value of `EXECUTION_DEVICES` or why it couldn't run.\n"
    yield "| requested | model | level | executed on |\n|---|---|---|---|"
    for row in sorted(found, key=lambda row: (str(row.cell.target), row.cell.model)):
        first = next(iter(row.checks.values()))
        elsewhere = f"not available, ran on {first.actual_target} instead: {one_line(first.substitution_reason)}"
        chosen = row.conditions.get("executed_on") or f"{row.cell.target.variant}, {first.accelerator}"
        where = elsewhere if first.substitution_reason else chosen
        yield f"| {row.cell.target} | {row.cell.model} | {row.level} | {where} |"


def page(runs: Sequence[RunLine], lines: Sequence[CheckLine], coverage: str) -> str:
    """Return the page. Raises `ValueError` if there is no evidence of target openvino."""
    rows = rows_of(runs, lines)
    if not rows:
        raise ValueError("no evidence on target openvino")
    devices = sorted({line.accelerator for line in lines if line.actual_target == str(_TARGET) and line.accelerator})
    tested = [row for row in rows if row.cell.precision == "float32" and not row.cell.target.variant]
    result = (
        f"{sum(row.passes for row in tested)} of {len(tested)} model types work on OpenVINO's CPU plugin in float32."
    )
    head = _HEAD.format(
        result=result,
        kept=KEPT,
        dates=dates_said(runs),
        versions=versions_said(runs, _VERSIONS),
        device=" and ".join(devices),
    )
    return "\n".join([head, *_all_types(rows, passing_on_cpu(coverage)), *_precisions(rows), *_variants(rows)])


@click.command()
@click.option("--keep", "keeps", is_flag=True, help=f"Write the lines that count to {KEPT}.")
@click.argument("places", nargs=-1, type=click.Path(path_type=Path, exists=True))
def main(places: tuple[Path, ...], keeps: bool) -> None:
    """Print the page."""
    found = gathered(places or (KEPT,))
    if keeps:
        keep(found, _TARGET, KEPT)
        found = gathered((KEPT,))
    click.echo(page(found.runs, found.checks, ON_CPU.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
