"""Print docs/measured/explained.md: the output of `--explain` for ten surprising cells of stored evidence.

`python -m benchmarks.explained [EVIDENCE…] > docs/measured/explained.md`. A cell is surprising if its prediction was
wrong, or if it was right and most of its family gives the opposite. Of each target and kind the first by name is
taken, targets in turn, until there are ten.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

import click

from benchmarks.calibration import kept_places
from benchmarks.evidence_table import gathered
from generators.compatibility.explanation import explain
from generators.compatibility.prediction_scores import Scored, by_family, score
from generators.compatibility.rule_facts import facts_here
from generators.compatibility.rules import load_rules, predict
from generators.models.recipe_store import load_recipe
from hardware.detection import HardwareInfo, detect
from hardware.evidence.store import Evidence
from reports.explain_command import chain_text

_HOW_MANY = 10

_HEAD = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")


def _surprising(cells: Sequence[Scored]) -> list[Scored]:
    most = by_family([one for one in cells if not one.held_out])
    groups: dict[tuple[str, str], list[Scored]] = {}
    for one in cells:
        kind = "wrong" if one.said is not None and one.said is not one.works else ""
        kind = kind or ("rare" if one.said is one.works and most(one) is not one.works else "")
        if kind:
            groups.setdefault((kind, str(one.cell.target)), []).append(one)
    turns = zip_longest(*(sorted(group, key=lambda one: one.cell.id) for _, group in sorted(groups.items())))
    return [one for turn in turns for one in turn if one is not None][:_HOW_MANY]


def _page(cells: Sequence[Scored], inventory: HardwareInfo) -> Iterator[str]:
    rules = load_rules()
    chosen = _surprising(cells)
    wrong = sum(one.said is not None and one.said is not one.works for one in chosen)
    yield _HEAD.format(count=len(chosen), wrong=wrong)
    for one in chosen:
        recipe = load_recipe(one.cell.model, one.cell.task)
        if recipe is None:
            continue
        facts = facts_here(recipe, one.cell, inventory)
        chain = explain(one.cell.target, facts, rules)
        text = chain_text(one.cell, predict(one.cell, facts, rules), one.measured, chain)
        yield f"## {one.cell.id}\n\nStored prediction: {one.predicted.level}.\n\n```\n{text}\n```\n"


@click.command()
@click.argument("places", nargs=-1, type=click.Path(path_type=Path, exists=True))
def main(places: tuple[Path, ...]) -> None:
    """Print the page."""
    found = gathered(places or kept_places())
    cells = score(Evidence(runs=found.runs, checks=found.checks, ends=(), broken=())).cells
    click.echo("\n".join(_page(cells, detect())), nl=False)


if __name__ == "__main__":
    main()
