"""Whether remedies turn what can be turned: failing cells of real sweeps, labelled before anything was tried.

    python -m benchmarks.remedies choose EVIDENCE...          the cells to label, by a seed
    python -m benchmarks.remedies run EVIDENCE... --out DIR   the remedies of every cell that is labelled fixable
    python -m benchmarks.remedies page --out DIR              docs/REMEDIES.md

Labels stand in `remedies_labels.toml`. They were committed before a remedy ran, and are not edited
afterwards.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import click

from generators.compatibility.current_checks import current_checks
from hardware.evidence.record import CheckLine
from hardware.evidence.store import lines_by_cell, read_folder

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


if __name__ == "__main__":
    main()
