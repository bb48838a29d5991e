"""Print docs/measured/explained.md: the output of `--explain` for ten surprising cells of stored evidence, and for
ten cells of devices before and after rules replaced assumptions.

`python -m benchmarks.explained [EVIDENCE…] > docs/measured/explained.md`. A cell is surprising if its prediction was
wrong, or if it was right and most of its family gives the opposite. Of each target and kind the first by name is
taken, targets in turn, until there are ten. A changed cell is one that is judged otherwise than by its family alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import click

from benchmarks.calibration import KEPT, kept_places
from benchmarks.evidence_table import gathered
from generators.compatibility.explanation import explain
from generators.compatibility.prediction_scores import Scored, by_family, score
from generators.compatibility.published_rows import shipped_lines
from generators.compatibility.rule_facts import Facts, facts_here
from generators.compatibility.rules import RuleSet, load_rules, predict
from generators.models.recipe_store import load_recipe
from hardware.detection import HardwareInfo, detect
from hardware.evidence.store import Evidence
from hwcompat.plugins.study.external import external_scores
from reports.explain_command import chain_text
from reports.reason_text import texts

_HOW_MANY = 10

_OUTSIDE = ("xpu", "tpu", "rocm", "mps")
"""Devices that only others measured."""

_CHANGED = """## Before and after

Of these {count} cells of devices, today's rules are right about {right}, and the assumptions about their family,
which were all that there was before, about {before}. They are the first type by name of each target and each way
to change, targets in turn; what `xpu` and `tpu` do was measured by others.
"""

_HEAD = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")


def _surprising(cells: Sequence[Scored]) -> list[Scored]:
    most = by_family([one for one in cells if not one.held_out])
    groups: dict[tuple[str, str], list[Scored]] = {}
    for one in cells:
        kind = "wrong" if one.said is not None and one.said is not one.works else ""
        kind = kind or ("rare" if one.said is one.works and most(one) is not one.works else "")
        if kind:
            groups.setdefault((kind, str(one.cell.target)), []).append(one)
    return _in_turn(groups)


def _in_turn(groups: Mapping[tuple[str, str], list[Scored]]) -> list[Scored]:
    turns = zip_longest(*(sorted(group, key=lambda one: one.cell.id) for _, group in sorted(groups.items())))
    return [one for turn in turns for one in turn if one is not None][:_HOW_MANY]


def _changed(inventory: HardwareInfo) -> Iterator[str]:
    """Yield ten cells of devices with what was assumed about them, what rules say, and what was measured."""
    rules = load_rules()
    assumed = RuleSet(rules=tuple(one for one in rules.rules if one.id.startswith("prior.")))
    kept = gathered([KEPT / "cuda.jsonl.gz"])
    cells = list(score(Evidence(runs=kept.runs, checks=kept.checks, ends=(), broken=())).cells)
    cells += [
        cell for one in external_scores(shipped_lines(), inventory) if one.target in _OUTSIDE for cell in one.cells
    ]
    groups: dict[tuple[str, str], list[Scored]] = {}
    after: dict[str, tuple[Scored, Facts]] = {}
    seen: set[str] = set()
    for one in sorted(cells, key=lambda one: one.cell.id):
        recipe = load_recipe(one.cell.model, one.cell.task)
        if recipe is None:
            continue
        facts = facts_here(recipe, one.cell, inventory)
        before = replace(one, predicted=predict(one.cell, facts, assumed))
        today = replace(one, predicted=predict(one.cell, facts, rules))
        group = groups.setdefault((str(today.said is today.works), str(one.cell.target)), [])
        if before.said is not today.said and one.cell.model not in seen:
            seen.add(one.cell.model)
            group.append(before)
            after[one.cell.id] = (today, facts)
    chosen = _in_turn(groups)
    right = [
        sum(each.said is each.works for each in some) for some in (chosen, [after[b.cell.id][0] for b in chosen])
    ]
    yield _CHANGED.format(count=len(chosen), before=right[0], right=right[1])
    for before in chosen:
        today, facts = after[before.cell.id]
        chain = explain(today.cell.target, facts, rules)
        why = "; ".join(texts(before.predicted.reasons[:1]))
        found = "; ".join(texts(today.measured.reasons[:1]))
        said = f"Before: {before.predicted.level} ({why}). Measured: {today.measured.level} ({found})."
        text = chain_text(today.cell, today.predicted, None, chain)
        yield f"### {today.cell.id}\n\n{said}\n\n```\n{text}\n```\n"


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
    here = detect()
    click.echo("\n".join([*_page(cells, here), *_changed(here)]), nl=False)


if __name__ == "__main__":
    main()
