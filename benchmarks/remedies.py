"""Whether remedies turn what can be turned: failing cells of real sweeps, labelled before anything was tried.

    python -m benchmarks.remedies choose EVIDENCE...          the cells to label, by a seed
    python -m benchmarks.remedies run EVIDENCE... --out DIR   the remedies of every cell that is labelled fixable
    python -m benchmarks.remedies page --out DIR              docs/REMEDIES.md

Labels stand in `remedies_labels.toml`. They were committed before a remedy ran, and are not edited
afterwards.
"""

from __future__ import annotations

import json
import random
import re
import tomllib
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import click

from generators.compatibility.current_checks import current_checks
from generators.remedies.judging import Run
from generators.remedies.trying import Workplace, try_cell
from hardware.cell import Cell
from hardware.detection import detect, targets
from hardware.evidence.record import CheckLine
from hardware.evidence.store import lines_by_cell, read_folder
from reports.remedies_view import cell_to_dict, error_type_of

LABELS = Path(__file__).with_name("remedies_labels.toml")
COMMAND = "python -m benchmarks.remedies run"
SEED = 20261123
CHOSEN = 40
_NUMBERS = re.compile(r"\d[\d.e+-]*")
_LONGEST_CAUSE = 240


def failing_cells(folders: Sequence[Path]) -> dict[str, list[CheckLine]]:
    """By cell, the failed checks that speak now, in the order in which they were asked; of cells that failed."""
    found = {}
    for folder in folders:
        for cell, lines in lines_by_cell(current_checks(read_folder(folder))).items():
            failed = [line for line in lines if line.outcome.is_failure]
            if failed:
                found[cell] = failed
    return found


def cause_of(lines: Sequence[CheckLine]) -> tuple[str, ...]:
    """What two cells share that failed for one reason: target, type, stage, checks, the message without numbers."""
    first = lines[0]
    message = _NUMBERS.sub("#", first.error_message.replace(first.model, "MODEL"))[:_LONGEST_CAUSE]
    checks = ",".join(line.check_name for line in lines)
    return first.requested_target, first.error_type, str(first.stage), checks, message


def chosen_cells(cells: dict[str, list[CheckLine]], *, seed: int = SEED, count: int = CHOSEN) -> list[str]:
    """One cell for each cause, drawn by turns from every (target, error type), so that no kind crowds out another."""
    drawn = random.Random(seed)
    causes: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for cell, lines in sorted(cells.items()):
        causes[cause_of(lines)].append(cell)
    strata: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for cause, members in sorted(causes.items()):
        strata[cause[:2]].append(drawn.choice(members))
    for members in strata.values():
        drawn.shuffle(members)
    kept: list[str] = []
    while len(kept) < count and any(strata.values()):
        for name in sorted(strata):
            if strata[name] and len(kept) < count:
                kept.append(strata[name].pop())
    return kept


@click.group()
def main() -> None:
    """Measure remedies."""


@main.command()
@click.argument("evidence", nargs=-1, required=True, type=click.Path(path_type=Path))
def choose(evidence: tuple[Path, ...]) -> None:
    """Print the cells to label, each with what failed."""
    cells = failing_cells(evidence)
    for cell in chosen_cells(cells):
        first = cells[cell][0]
        checks = ", ".join(line.check_name for line in cells[cell])
        click.echo(f"{cell}\t{first.error_type}\t{first.stage}\t{checks}\t{first.error_message[:700]!r}")


@main.command()
@click.argument("evidence", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path))
@click.option("--fixable", type=click.Choice(["here", "elsewhere"]), required=True)
@click.option("--timeout", "timeout_s", type=float, default=150.0)
def run(evidence: tuple[Path, ...], out: Path, fixable: str, timeout_s: float) -> None:
    """Try the remedies of the cells with one label, and note what came of each; goes on where it was ended.

    Those labelled `here` are measured as they are first; the failure of the others is taken from the sweep.
    """
    known = failing_runs(evidence)
    here = [one.target for one in targets(detect()) if one.expected]
    noted = out / "results.jsonl"
    out.mkdir(parents=True, exist_ok=True)
    done = {json.loads(line)["cell"] for line in noted.read_text().splitlines()} if noted.exists() else set()
    place = Workplace(folder=out / "tries", evidence=None, command=COMMAND, timeout_s=timeout_s, child_s=900)
    for entry in labels():
        if entry["fixable"] != fixable or entry["id"] in done:
            continue
        found = try_cell(
            Cell.parse(entry["id"]),
            place,
            here=here,
            error_type_of=error_type_of,
            on_note=click.echo,
            known=known.get(entry["id"]) if fixable == "elsewhere" else None,
            first_is_enough=True,
        )
        with noted.open("a", encoding="utf-8") as file:
            file.write(json.dumps(cell_to_dict(found)) + "\n")


def labels() -> list[dict[str, str]]:
    """The labelled cells, as they were committed."""
    found: list[dict[str, str]] = tomllib.loads(LABELS.read_text(encoding="utf-8"))["cell"]
    return found


def failing_runs(folders: Sequence[Path]) -> dict[str, Run]:
    """By cell, the newest run of a sweep in which it failed."""
    found: dict[str, Run] = {}
    for folder in folders:
        evidence = read_folder(folder)
        by_cell = lines_by_cell(evidence.checks)
        for line in evidence.runs:
            for plan in line.plan:
                lines = tuple(one for one in by_cell.get(plan.cell_id, ()) if one.run_id == line.run_id)
                if any(one.outcome.is_failure for one in lines):
                    found[plan.cell_id] = Run(run=line, plan=plan, lines=lines)
    return found


if __name__ == "__main__":
    main()
