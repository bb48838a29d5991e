"""`hwcompat calibration --external`: predictions scored against what others measured on their devices.

Predictions come from rules alone. A type works on a target if a source shows that some device runs it by some route:
routes of others are wider than ours. Sources that publish only successes can't show a false "works".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

from hwcompat.generators.compatibility.imported import imported_verdicts
from hwcompat.generators.compatibility.prediction_scores import (
    PredictionTally,
    Scored,
    always_yes,
    balanced_range,
    by_family,
    held_out,
    tally,
)
from hwcompat.generators.compatibility.published_rows import shipped_lines, source_of
from hwcompat.generators.compatibility.rule_facts import facts_here
from hwcompat.generators.compatibility.rules import load_rules, predict
from hwcompat.generators.compatibility.verdict import Level
from hwcompat.generators.compatibility.vocabulary import vocabulary
from hwcompat.generators.models.recipe_store import load_recipe
from hwcompat.generators.options import Options
from hwcompat.hardware.basic_detection import inventory_here
from hwcompat.hardware.cell import Cell
from hwcompat.hardware.detection import HardwareInfo
from hwcompat.hardware.evidence.latest import read_latest
from hwcompat.hardware.evidence.record import CheckLine
from hwcompat.hardware.plain_text import json_text, one_line
from hwcompat.hardware.plain_text import markdown as text_of_markdown
from hwcompat.reports.reason_text import texts
from hwcompat.reports.text import text_table

from .fit_scores import MEMORY_RULE, memory_json, memory_tables, rows_about_memory

_TABLE = ("table", "text")
_HEAD = (
    *("", "types", "cells", "works as predicted", "works, predicted to fail", "fails as predicted"),
    *("fails, predicted to work", "no prediction", "recall", "agreement", "balanced", "false works", "abstained"),
    *("always works", "by family", "balanced by family"),
)
_RULE = (
    "A type works on a target if a source shows that one of its devices runs it by one of its routes; checkpoints "
    "that were too large, training and uncertain names don't count. Predictions are of tiny models by rules alone: "
    "nothing that others measured is used for them, and no rule about faults of models' own code, which aren't a "
    "target's. `recall` is the share of working cells, among those predicted, "
    "that were predicted to work; `false works` is the share of predictions to work that are wrong. `always works` "
    "and `by family` are the agreement of two baselines: everything works, and what most types of a family do that "
    "aren't held out. `balanced` is the mean of the shares found of working and of failing cells, with the range of "
    "95 % of samples of the types; it is 50 % if everything is predicted to work, and needs cells that fail."
)
_SURVIVORS = (
    "Survivorship: a source tests what its authors chose, and most leave out what never worked, so that cells work "
    "more often here than among all types. Sources marked * publish only successes, and are scored by recall alone."
)


@dataclass(frozen=True, kw_only=True)
class ExternalScore:
    """The score on one target by one source; `only_successes` if the source publishes nothing else."""

    target: str
    source: str
    only_successes: bool
    cells: tuple[Scored, ...]
    family: PredictionTally
    apart: ExternalScore | None = None
    """The score of the held-out types alone; None if there are none."""

    @property
    def counts(self) -> PredictionTally:
        """The predictions by result."""
        return tally((one.said, one.works) for one in self.cells)

    @property
    def recall(self) -> float | None:
        """The share of working cells, among those predicted, that were predicted to work."""
        found, lost = self.counts.true_supported, self.counts.false_unsupported
        return found / (found + lost) if found + lost else None

    @property
    def balanced_range(self) -> tuple[float, float] | None:
        """The range of the balanced accuracy, as `balanced_range` returns it."""
        return balanced_range(self.cells)

    def figures(self) -> dict[str, float | None]:
        """Return the shares of 1 by column, None if a source can't show one."""
        counts = self.counts
        shares = {
            "recall": self.recall,
            "agreement": counts.agreement,
            "balanced": counts.balanced_accuracy,
            "false_works": counts.wrongly_supported,
            "abstained": counts.abstentions,
            "always_works": tally((always_yes(one), one.works) for one in self.cells).agreement,
            "by_family": self.family.agreement,
            "by_family_balanced": self.family.balanced_accuracy,
        }
        shown = ("recall", "abstained") if self.only_successes else tuple(shares)
        return {name: share if name in shown else None for name, share in shares.items()}


def external_scores(lines: Sequence[CheckLine], inventory: HardwareInfo) -> tuple[ExternalScore, ...]:
    """Return the scores of predictions for the cells that imported results decide, by target and source. Cells of
    targets without a backend, and of types without a recipe, have no prediction to score."""
    by_source: dict[str, list[CheckLine]] = {}
    for line in lines:
        if "result" in line.conditions:
            by_source.setdefault(line.conditions["source"], []).append(line)
    scores = []
    for source, own in sorted(by_source.items()):
        cells: dict[str, list[Scored]] = {}
        for one in _scored(own, inventory):
            cells.setdefault(one.cell.target.name, []).append(one)
        successes = source_of(own[0].conditions["file"])["publishes"] != "all"
        for target, found in cells.items():
            guess = by_family([one for one in found if not one.held_out])
            whole = ExternalScore(
                target=target,
                source=source,
                only_successes=successes,
                cells=tuple(found),
                family=tally((guess(one), one.works) for one in found),
            )
            apart = tuple(one for one in found if one.held_out)
            family = tally((guess(one), one.works) for one in apart)
            scores.append(replace(whole, apart=replace(whole, cells=apart, family=family) if apart else None))
    order = vocabulary().targets
    return tuple(sorted(scores, key=lambda one: (order.index(one.target), one.source)))


def _scored(lines: Sequence[CheckLine], inventory: HardwareInfo) -> Iterator[Scored]:
    rules = load_rules().about_targets()
    for id_, verdict in imported_verdicts(lines).items():
        cell = Cell.parse(id_)
        recipe = load_recipe(cell.model, cell.task) if cell.target.name in vocabulary().hardware_types else None
        if recipe is None:
            continue
        works = any(reason.text("verb") == "works" for reason in verdict.conditions)
        yield Scored(
            cell=cell,
            family=recipe.family,
            held_out=cell.model in held_out(),
            predicted=predict(cell, facts_here(recipe, cell, inventory), rules),
            measured=replace(verdict, level=Level.MEDIUM if works else Level.UNSUPPORTED),
            run_id=lines[0].conditions["source"],
        )


def external_text(scores: Sequence[ExternalScore], format: str) -> str:
    """Return the scores in `table` or `markdown`, ending in a newline."""
    markdown = format not in _TABLE
    apart = [one.apart for one in scores if one.apart]
    judged = [one.counts for one in scores if not one.only_successes]
    right = sum(one.true_supported + one.true_unsupported for one in judged)
    answered = sum(one.answered for one in judged)
    lost = sum(one.counts.false_unsupported for one in scores if one.only_successes)
    found = sum(one.counts.true_supported for one in scores if one.only_successes)
    said = (
        f"Of {answered} predictions that others' results decide, {right} were right; of {found + lost} cells that "
        f"work by sources that publish only successes, {found} were predicted to work."
    )
    parts = [
        *(["# What others measured"] if markdown else []),
        said,
        *(["Made by `hwcompat calibration --external --format markdown`."] if markdown else []),
        _table([_HEAD, *map(_row, scores)], markdown),
        _RULE if markdown else _RULE.replace("`", ""),
        _SURVIVORS,
        f"{'## ' if markdown else ''}The types among them that are held out",
        "Rules weren't tuned on these types (`generators/compatibility/held_out.txt`).".replace("`", "`" * markdown),
        _table([_HEAD, *map(_row, apart)], markdown),
    ]
    for said_works, title in (
        (True, "Predicted to work, but fails there"),
        (False, "Predicted to fail, but works there"),
    ):
        wrong = [
            cell for one in scores for cell in one.cells if cell.said is said_works and cell.works is not said_works
        ]
        parts.append(f"{'## ' if markdown else ''}{title} ({len(wrong)})")
        if wrong:
            parts.append(_table([("cell", "predicted by", "what others measured"), *map(_wrong, wrong)], markdown))
    said, scored, wrong_rows = memory_tables(rows_about_memory())
    parts += [
        f"{'## ' if markdown else ''}Memory",
        said if markdown else said.replace("`", ""),
        _table(scored, markdown),
        MEMORY_RULE,
        *(["### Rows on which they disagree"] if markdown else ["Rows on which they disagree"]),
        _table(wrong_rows, markdown),
    ]
    return "\n\n".join(parts) + "\n"


def _row(one: ExternalScore) -> tuple[str, ...]:
    counts = one.counts
    numbers = (
        *(len({cell.cell.model for cell in one.cells}), counts.total, counts.true_supported),
        *(counts.false_unsupported, counts.true_unsupported, counts.false_supported),
        counts.abstained_works + counts.abstained_fails,
    )
    shares = {name: "-" if share is None else f"{100 * share:.1f} %" for name, share in one.figures().items()}
    if shares["balanced"] != "-" and (ends := one.balanced_range):
        shares["balanced"] += f" ({100 * ends[0]:.1f} to {100 * ends[1]:.1f} %)"
    name = f"{one.target} ({one.source}){'*' if one.only_successes else ''}"
    return (name, *map(str, numbers), *shares.values())


def _wrong(one: Scored) -> tuple[str, str, str]:
    why = one_line("; ".join(texts(one.measured.conditions[:2])), longest=140)
    return (one.cell.id, ", ".join(one.predicted.rule_ids), why)


def _table(rows: Sequence[Sequence[str]], markdown: bool) -> str:
    shown = text_of_markdown if markdown else one_line  # messages come from others
    cells = [[shown(cell.replace("|", "/")) for cell in row] for row in rows]
    return text_table(cells[0], cells[1:], "github" if markdown else "simple")


def _json(one: ExternalScore) -> dict[str, Any]:
    wrong = [cell for cell in one.cells if cell.said is not None and cell.said is not cell.works]
    return {
        "target": one.target,
        "source": one.source,
        "only_successes": one.only_successes,
        "cells": len(one.cells),
        **one.figures(),
        "balanced_range": None if one.only_successes else one.balanced_range,
        "held_out": {"cells": len(one.apart.cells), **one.apart.figures()} if one.apart else None,
        "wrong": [
            {"cell": cell.cell.id, "works": cell.works, "rules": list(cell.predicted.rule_ids)} for cell in wrong
        ],
    }


def report_external(options: Options) -> int:
    """Print the scores against shipped and imported results; return the exit code."""
    own = read_latest(options.evidence).imported if options.has_evidence else ()
    scores = external_scores([*shipped_lines(), *own], inventory_here())
    if options.format_ == "json":
        click.echo(
            json_text(
                {
                    **{"schema_version": 1, "rule": _RULE, "note": _SURVIVORS, "scores": [*map(_json, scores)]},
                    "memory": memory_json(rows_about_memory()),
                }
            )
        )
    else:
        click.echo(external_text(scores, options.format_), nl=False)
    return 0
