"""Prints docs/QNN.md: what evidence says of model types on target qnn, and which operator stands in the others' way.

`python -m benchmarks.qnn_table EVIDENCE_FOLDER… > docs/QNN.md`, where the folders are what `--run --device qnn` left.
The last run of a check counts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from benchmarks.evidence_table import dates_said, gathered, last_checks, one_line, versions_said
from hardware.cell import Cell
from hardware.evidence.record import CheckLine, Outcome, RunLine
from hardware.target import Target
from hardware.testing.tolerances import tolerance_for

_LEFT = re.compile(r"it leaves (.+?) to the host")
_NAMED = re.compile(r"type: (\w+) \}")
_VERSIONS = ("onnxruntime-qnn", "onnxruntime (qnn)", "onnx", "torch", "transformers", "hwcompat")

_HEAD = """# Target qnn

Made by `python -m benchmarks.qnn_table` from the evidence of `python run_test_generation.py --device qnn --run`, with
runs from {dates}. Versions: {versions}.

Everything here was computed by {device}.
It stands for a device: operators and arithmetic are HTP's, speed and memory aren't, and nothing here ran on an NPU.
Every session was strict (`session.disable_cpu_ep_fallback`), so that no operator ran on the host; which provider took
each node is ONNX Runtime's own record.

Errors are the largest of all checks that compare, relative to the output's scale, against a float64 reference. HTP
computes float32 graphs in a float16 of its own: 11 bits of mantissa, no infinity, up to 131,008. What is saved and
loaded again (`save_reload`) is a context binary that was compiled ahead of time. It doesn't decode with a cache.
"""


@dataclass(frozen=True, kw_only=True)
class Row:
    """What became of one cell: its checks that passed, the largest error, and the reason where one didn't."""

    cell: Cell
    passed: int
    checks: int
    error: float | None
    native: int
    offloaded: int
    reason: str

    @property
    def works(self) -> bool:
        """Whether every check passed and nothing ran on the host."""
        return self.passed == self.checks and not self.offloaded and self.native > 0


def _rows(lines: Sequence[CheckLine]) -> Iterator[Row]:
    for name, checks in last_checks(lines, "qnn").items():
        errors = [one.max_rel_error for one in checks.values() if one.max_rel_error is not None]
        failed = [one for one in checks.values() if one.outcome is not Outcome.PASSED]
        proof = checks["runs_natively"]
        yield Row(
            cell=Cell.parse(name),
            passed=len(checks) - len(failed),
            checks=len(checks),
            error=max(errors, default=None),
            native=sum(proof.native_ops.values()),
            offloaded=sum(proof.offloaded_ops.values()),
            reason=_reason(failed[0]) if failed else "",
        )


def _reason(line: CheckLine) -> str:
    """What stands in the way: operators where they are named, else the message, on one line of a table."""
    left = _LEFT.search(line.error_message)
    if left:
        return f"HTP doesn't take {left[1]}"
    text = line.error_message.removeprefix("Unsupported: ").removeprefix("QNN doesn't run the model: ")
    named = Counter(_NAMED.findall(text))
    operators = ", ".join(f"{name} ({count})" for name, count in sorted(named.items()))
    text = re.sub(r"\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text.partition("; Unsupported nodes")[0])
    words = f"{line.check_name}, {line.error_type or line.outcome}: {one_line(text)}"
    return f"{words} (refused: {operators})" if operators else words


def _head(runs: Sequence[RunLine], lines: Sequence[CheckLine]) -> str:
    devices = sorted({line.accelerator for line in lines if line.accelerator and line.actual_target == "qnn"})
    return _HEAD.format(
        dates=dates_said(runs),
        versions=versions_said(runs, _VERSIONS),
        device=" and ".join(devices),
    )


def _section(precision: str, rows: Sequence[Row]) -> Iterator[str]:
    right, wrong = [row for row in rows if row.works], [row for row in rows if not row.works]
    stated = tolerance_for(Target(name="qnn"), precision)
    yield f"\n## {precision}\n"
    yield (
        f"{len(right)} of {len(rows)} cells pass every check within {stated.limit:g} ({stated.reason}), with no "
        "operator on the host.\n"
    )
    yield "| model | task | checks | largest error | nodes on HTP |\n|---|---|---|---|---|"
    for row in right:
        error = "-" if row.error is None else f"{row.error:.1e}"
        yield f"| {row.cell.model} | {row.cell.task} | {row.passed} | {error} | {row.native} |"
    if wrong:
        yield "\n| model | task | checks | what stands in the way |\n|---|---|---|---|"
        for row in wrong:
            yield f"| {row.cell.model} | {row.cell.task} | {row.passed} of {row.checks} | {row.reason} |"


def page(runs: Sequence[RunLine], lines: Sequence[CheckLine]) -> str:
    """The whole page. Raises `ValueError` where there is nothing of target qnn."""
    rows = list(_rows(lines))
    if not rows:
        raise ValueError("no evidence on target qnn")
    precisions = sorted({row.cell.precision for row in rows})
    sections = (text for name in precisions for text in _section(name, [r for r in rows if r.cell.precision == name]))
    return "\n".join([_head(runs, lines), *sections])


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, file_okay=False))
def main(folders: tuple[Path, ...]) -> None:
    """Print the page."""
    found = gathered(folders)
    click.echo(page(found.runs, found.checks))


if __name__ == "__main__":
    main()
